"""Mistakes in what an image that a Dockerfile builds starts, copies and installs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.jobs.advice import Advice, advice
from cdk_sagemaker_training.request.context import JobContext
from cdk_sagemaker_training.request.scripts.findings import (
    READS_HYPERPARAMETERS,
    TEXTS,
    mistakes_at,
    refuse,
    refuse_arguments,
    refuse_command,
    refuse_requirements,
    script_advice,
)
from cdk_sagemaker_training.request.scripts.known import (
    given_arguments,
    installed_in,
    is_of_framework,
    machines_of,
    started_in,
    target_of,
)
from training_jobs.facts.bases import BARE_MODULES, has_no_packages, is_public

if TYPE_CHECKING:
    from cdk_sagemaker_training.resources.image import TrainingImage
    from training_jobs.lint import Job
    from training_jobs.lint.image_start import ImageStart
    from training_jobs.lint.requirements import Mistake

# Docker's own image of Python, with the version.
_OF_PYTHON = re.compile(r"python:3\.(\d+)(?:[.-].*)?")
# How a script of an image may run another.
_STARTS_OTHERS = re.compile(r"argv|subprocess|exec|runpy|sagemaker|import_module|hyperparameters|system\(")


def check_built_image(image: TrainingImage, context: JobContext) -> None:
    """Check that what SageMaker starts in an image that a Dockerfile builds is there, and takes its arguments.

    Raises:
        ValueError: The build would end, or the job would, or wait until it is stopped, when its machines are billed.
    """
    if (start := _start(image, context)) is None:
        return
    _check_options(start, context)
    _check_start(start, context)
    refuse_requirements(_requirement_mistakes(start, image), "image")


def built_image_advice(image: TrainingImage, context: JobContext) -> Iterator[Advice]:
    """Warn of mistakes in the scripts that a Dockerfile copies, in what pip installs, and in what starts."""
    if (start := _start(image, context)) is None:
        return
    command = None if start.starts_toolkit else start.command
    job = started_in(start.job, context, command, start.dockerfile.image.env)
    yield from script_advice(start.dockerfile.directory, _scripts(start), context, _entry_point(start), job)
    for place, mistake in _requirement_mistakes(start, image):
        if (kind := mistake.kind.value) in ("replaces-framework", "built-otherwise"):
            yield from advice(f"requirement-{kind}", f"{place} {mistake}.")
    if not start.dockerfile.allows_commands:
        yield from _start_advice(start, context)


def _start(image: TrainingImage, context: JobContext) -> ImageStart | None:
    """What SageMaker starts in an image that a Dockerfile builds; None for others, or where that is not known."""
    from training_jobs.lint.image_start import TRAIN, ImageStart

    props, dockerfile = context.props, image.dockerfile
    entrypoint, arguments = props.get("container_entrypoint"), props.get("container_arguments")
    words = [*(entrypoint or ()), *(arguments or ())]
    if dockerfile is None or not dockerfile.path.is_file() or any(map(is_unresolved, (image.base, *words))):
        return None
    hyperparameters, environment = props.get("hyperparameters") or {}, props.get("environment") or {}
    given = {**hyperparameters, **environment, **context.job_request.environment}
    named = next((str(given[name]) for name in ("SAGEMAKER_PROGRAM", "sagemaker_program") if name in given), None)
    hosts, devices, variables = machines_of(context)
    start = ImageStart(
        dockerfile,
        "toolkit" if is_of_framework(image) else "public" if is_public(dockerfile.image.parent) else "",
        None if entrypoint is None else tuple(entrypoint),
        TRAIN if arguments is None else tuple(arguments),
        hosts,
        devices,
        variables=variables,
        program=named if props.get("code") is None else "",
    )
    return replace(start, job=_installed(start, image, props))


def _installed(start: ImageStart, image: TrainingImage, props: Mapping[str, Any]) -> Job:
    """What is known of what is installed."""
    from training_jobs.lint import Job

    if start.base == "toolkit" and not image.provides:
        return replace(installed_in(image, props), built=True)
    installs, parent = start.installs, start.dockerfile.image.parent
    elsewhere = "PYTHONPATH" in {**start.dockerfile.image.env, **(props.get("environment") or {})}
    if installs is None or elsewhere or image.provides or not has_no_packages(parent):
        return Job(built=True)
    if not (installs.requirements or installs.files):
        return Job(modules=BARE_MODULES, built=True)
    return Job(absent=installs.absent() - BARE_MODULES, built=True)


def _scripts(start: ImageStart) -> list[Path]:
    """The scripts that a Dockerfile copies, relative to the build context."""
    from training_jobs.lint.checks import SKIPPED

    files = (file.relative_to(start.dockerfile.directory) for file in start.dockerfile.image.files.values())
    return [*dict.fromkeys(file for file in files if file.suffix == ".py" and not SKIPPED & {*file.parts})]


def _entry_point(start: ImageStart) -> str:
    """The script that an image starts, relative to the build context; "" where that is not known."""
    if start.starts_toolkit:
        file = start.dockerfile.image.files.get(start.path_of_program or "") if start.program is None else None
        return "" if file is None else file.relative_to(start.dockerfile.directory).as_posix()
    script = next(map(start.command.script_of, start.command.starts), None)
    return "" if script is None else script.as_posix()


def _check_options(start: ImageStart, context: JobContext) -> None:
    """Check that the script which a Dockerfile copies, and gives the toolkit by SAGEMAKER_PROGRAM, takes the hyperparameters."""
    program = start.dockerfile.image.program if start.entrypoint is None else None
    if program is None or start.program is not None:
        return
    from training_jobs.lint import options_of, scripts_of

    found = [path for path in _scripts(start) if f"/{path}".endswith(f"/{program}")]
    if len(found) == 1:
        refuse(next(map(options_of, scripts_of(start.dockerfile.directory, found)), None), context, (), pairs=True)


def _check_start(start: ImageStart, context: JobContext) -> None:
    def place_of(line: int) -> str:
        of_entrypoint = start.entrypoint is not None and line in (start.line, 1)
        return "container_entrypoint" if of_entrypoint else f"{start.dockerfile.path}:{line}, of image,"

    refuse_command(start.mistakes(), place_of)
    if start.starts_toolkit or start.dockerfile.allows_commands:
        return
    refuse_arguments(start.command, context, lambda _: place_of(start.line))
    if context.props.get("code") is not None and (script := _other_script(start)) is not None:
        raise must("code", "be left out", "code=None", f"{context.props['code']!r} with an image that starts {script}")


def _other_script(start: ImageStart) -> str | None:
    """The script that an image starts, where that runs no other; None where that is not known."""
    started = start.command.starts
    script = start.command.script_of(started[0]) if len(started) == 1 else None
    if script is None:
        return None
    text = (start.dockerfile.directory / script).read_text(errors="replace")
    return None if _STARTS_OTHERS.search(text) else f"'/{started[0].script}'"


def _start_advice(start: ImageStart, context: JobContext) -> Iterator[Advice]:
    """Warn of machines that train by themselves, of files below /opt/ml, and of hyperparameters that nothing reads."""
    place = f"{start.dockerfile.path}:{start.line}"
    for mistake in start.mistakes():
        if mistake.kind != "fails":
            yield from advice(f"command-{mistake.kind}", f"{place} {mistake}")
    if (reserved := next(start.reserved(), None)) is not None:
        source, path = reserved
        text = f"{start.dockerfile.path} copies {source!r} to {path!r}, below /opt/ml, which SageMaker reserves: the file may"
        guide = "AWS's guide, 'How Amazon SageMaker AI Runs Your Training Image'"
        yield from advice(
            "image-in-opt-ml", f"{text} not be there when the job runs ({guide}). Copy it to /opt/program."
        )
    ignored = {*given_arguments(context)} - {*context.job_request.hyperparameters}
    files = start.dockerfile.image.files.values()
    known = start.base == "public" and start.dockerfile.image.is_certain and bool(start.command.starts)
    texts = (path.read_text(errors="replace") for path in files if path.suffix in ("", *TEXTS))
    if ignored and known and not any(map(READS_HYPERPARAMETERS.search, texts)):
        yield from advice(
            "image-ignores-hyperparameters",
            f"{place} starts no toolkit of SageMaker's, and nothing that it copies reads "
            f"/opt/ml/input/config/hyperparameters.json, so its script does not get hyperparameters[{min(ignored)!r}].",
        )


def _requirement_mistakes(start: ImageStart, image: TrainingImage) -> Iterator[tuple[str, Mistake]]:
    """The mistakes of files of requirements that a Dockerfile has pip install, as of requirements.txt."""
    if start.installs is None:
        return
    of_python = _OF_PYTHON.fullmatch(image.base or "") if start.base == "public" else None
    target = target_of(image.base if start.base == "toolkit" else None, image, start.installs.elsewhere)
    target = target if of_python is None else replace(target, python=int(of_python[1]))
    for file in start.installs.files:
        yield from mistakes_at(file.parent, target, file.name)
