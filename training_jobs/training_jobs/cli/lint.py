"""The command ``lint``: mistakes of training scripts, by their syntax, and of requirements."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from training_jobs.cli.context import AsJson
from training_jobs.cli.errors import JOB_FAILED
from training_jobs.cli.output import print_json

if TYPE_CHECKING:
    from training_jobs.lint import Finding


def lint(
    path: Annotated[Path, typer.Argument(help="A folder, or one script.")] = Path("."),
    compiler: Annotated[
        Literal["inductor", "xla"] | None,
        typer.Option(help="The job's compiler: TorchCompile(), or one with XLA devices."),
    ] = None,
    dynamic: Annotated[bool, typer.Option("--dynamic", help="The compiler takes batches of any shape.")] = False,
    spot: Annotated[bool, typer.Option("--spot", help="The job can be interrupted.")] = False,
    group: Annotated[list[str] | None, typer.Option(help="The name of each of the job's instance groups.")] = None,
    hosts: Annotated[int | None, typer.Option(min=1, help="The number of machines that start the script.")] = None,
    processes_per_host: Annotated[
        int | None,
        typer.Option(min=1, help="torchrun's processes on each machine. Default: no launcher, with --hosts."),
    ] = None,
    devices: Annotated[
        int | None, typer.Option(min=0, help="The number of accelerators of each machine: replicas of tf.distribute.")
    ] = None,
    sharded: Annotated[
        list[str] | None,
        typer.Option(help="Each channel with distribution='ShardedByS3Key', of which hosts have shares."),
    ] = None,
    package: Annotated[
        list[str] | None,
        typer.Option(
            help="A version that the container has, like transformers==5.3.0; also of trl, torch, keras and others."
        ),
    ] = None,
    python: Annotated[
        str | None, typer.Option(help="The container's Python, like 3.12, in which pip installs requirements.txt.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find mistakes in scripts, a Dockerfile and requirements.txt that cost time, end jobs or train wrong; exit code 1 if any.

    Nothing is run. `cdk synth` says the same of the folders of TrainingImage and TrainingCode, with what it knows of their jobs.
    A comment `# training-jobs: allow RULE` switches a rule off: on its line, on the one above it, or for a file above its first
    statement.
    """
    from training_jobs.lint import Finding, Job, lint_folder
    from training_jobs.lint.requirements import Target, requirement_mistakes

    if not path.exists():
        raise typer.BadParameter(f"must be a folder or a script, like src, got {str(path)!r}", param_hint="PATH")
    versions = dict(one.split("==", 1) for one in package or () if "==" in one)
    if len(versions) != len(package or ()):
        raise typer.BadParameter(
            f"must be NAME==VERSION, like transformers==5.3.0, got {package}", param_hint="--package"
        )
    job = Job(compiler is not None, dynamic, compiler == "xla", spot, groups=tuple(group or ()), versions=versions)
    job = replace(job, sharded=tuple(sharded or ()), devices=devices)
    if hosts is not None or processes_per_host is not None:
        launched = processes_per_host is not None
        job = replace(job, hosts=hosts or 1, processes_per_host=processes_per_host or 1, launched=launched)
    if python is not None and not re.fullmatch(r"3\.\d+", python):
        raise typer.BadParameter(f"must be a version of Python 3, like 3.12, got {python!r}", param_hint="--python")
    found = lint_folder(path, job)
    if (path / "requirements.txt").is_file():
        target = Target(int(python[2:]) if python else None, versions)
        found += [Finding(one.path, one.line, "requirements", str(one)) for one in requirement_mistakes(path, target)]
    if (path / "Dockerfile").is_file():
        found += _of_dockerfile(path)
    if as_json:
        print_json([asdict(one) for one in found])
    else:
        for one in found:
            typer.echo(str(one))
    if found:
        raise typer.Exit(JOB_FAILED)


def _of_dockerfile(folder: Path) -> list[Finding]:
    """The mistakes of a folder's Dockerfile in what it starts."""
    from training_jobs.facts.bases import base_of
    from training_jobs.lint import Finding, refused_arguments
    from training_jobs.lint.dockerfile import Dockerfile, MalformedError
    from training_jobs.lint.image_start import ImageStart

    dockerfile = Dockerfile(folder, "Dockerfile", {})
    try:
        start = ImageStart(dockerfile, base_of(dockerfile.image.parent))
        found = [Finding(dockerfile.file, mistake.line, "command", str(mistake)) for mistake in start.mistakes()]
        refused = () if start.starts_toolkit or dockerfile.allows_commands else refused_arguments(start.command, {})
        found += [
            Finding(dockerfile.file, start.line, "options", f"the script's arguments {one.refusal}") for one in refused
        ]
        return found
    except MalformedError as error:
        return [Finding(dockerfile.file, 1, "command", f"must be a Dockerfile that Docker reads: {error}")]
