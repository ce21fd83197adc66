"""How mistakes in scripts are said, by the rules of ``training-jobs lint``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.jobs.advice import Advice, advice
from cdk_sagemaker_training.request.context import JobContext
from cdk_sagemaker_training.request.data import checkpoints_of
from cdk_sagemaker_training.request.image_contents import device_of
from cdk_sagemaker_training.request.scripts.known import compilers_of, given_arguments, is_offline

if TYPE_CHECKING:
    from training_jobs.lint import Command, Job
    from training_jobs.lint.commands import CommandMistake
    from training_jobs.lint.options import Options
    from training_jobs.lint.requirements import Mistake, Target

_MOST = 3  # of one rule, in one warning
# Files that name folders; what is uploaded; what saves a model; and hyperparameters that name a folder.
TEXTS = (".py", ".sh", ".json", ".yaml", ".yml", ".toml", ".cfg", ".ini")
READS_HYPERPARAMETERS = re.compile(r"SM_HP|SM_TRAINING_ENV|SM_USER_ARGS|hyperparameters\.json")
OFF = "; a comment `# training-jobs: allow options` at its beginning switches this off"


def script_advice(
    root: Path,
    files: Iterable[Path],
    context: JobContext,
    entry_point: str = "",
    installed: Job | None = None,
) -> Iterator[Advice]:
    """Warn of mistakes in scripts, with their lines.

    Args:
        root: Their folder.
        files: Them, relative to it.
        context: The job.
        entry_point: That which is started; "" where that is not known.
        installed: What is known of what is installed.
    """
    from training_jobs.lint import Job, lint_folder  # here, since most jobs have no folder
    from training_jobs.lint.options import values_of_config
    from training_jobs.lint.script import OPTIONS

    request, compilers = context.job_request, compilers_of(context)
    channels = context.props.get("channels") or {}
    given = given_arguments(context)
    job = replace(
        installed or Job(),
        compiled=any(compilers),
        dynamic=request.environment.get("TRAINING_COMPILER_DYNAMIC") == "true",
        xla=compilers[1],
        spot=context.props.get("spot") is not None,
        checkpoints=checkpoints_of(context.props) is not None,
        groups=request.group_names,
        channels=tuple(channels),
        sharded=tuple(
            name for name, channel in channels.items() if getattr(channel, "distribution", "") == "ShardedByS3Key"
        ),
        entry_point=entry_point,
        arguments={
            name: value for name, value in {**values_of_config(given, root), **given}.items() if OPTIONS.search(name)
        },
        device=device_of(request),
        offline=is_offline(context.props),
    )
    by_rule: dict[str, list[str]] = {}
    for found in lint_folder(root, job, files):
        by_rule.setdefault(found.rule, []).append(f"{root / found.path}:{found.line}: {found.reason}")
    for rule, texts in by_rule.items():
        more = [f"and {len(texts) - _MOST} more"] if len(texts) > _MOST else []
        off = f"a comment `# training-jobs: allow {rule}` switches this off"
        yield from advice(f"script-{rule}", "; ".join((*texts[:_MOST], *more, off)))


def refuse(
    options: Options | None,
    context: JobContext,
    flags: Sequence[str],
    *,
    pairs: bool,
    folder: Path | None = None,
    absent: frozenset[str] = frozenset(),
) -> None:
    """Check that a script takes the hyperparameters, each as an argument ``--key value`` or ``--key=value``.

    Args:
        options: The script's options; None where they are not certain.
        context: The job.
        flags: Hyperparameters without a value.
        pairs: Whether a value is an argument of its own.
        folder: The folder of the script.
        absent: Modules that are certainly not installed.

    Raises:
        ValueError: The script would end at its arguments, or take False for True.
    """
    if options is None:
        return
    from training_jobs.lint import refusals

    for refusal in refusals(
        options, given_arguments(context), flags, pairs, folder, device_of(context.job_request), absent
    ):
        prop = f"hyperparameters[{refusal.key!r}]" if refusal.key else "hyperparameters"
        raise must(prop, refusal.rule, refusal.example, f"{refusal.got}{OFF}")


def refuse_command(mistakes: Iterable[CommandMistake], place_of: Callable[[int], str]) -> None:
    """Check that what bash or an image starts would start.

    Args:
        mistakes: The mistakes of what is started.
        place_of: Returns the prop by a mistake's line.

    Raises:
        ValueError: The job would end, or wait until it is stopped, when its machines are billed.
    """
    for mistake in mistakes:
        if mistake.kind == "fails":
            off = "a comment `# training-jobs: allow command` in it switches this off"
            raise must(place_of(mistake.line), mistake.rule, mistake.example, f"{mistake.got}; {off}")


def refuse_arguments(command: Command, context: JobContext, place_of: Callable[[int], str]) -> None:
    """Check that the scripts of a command take the arguments that it gives them.

    Args:
        command: The command.
        context: The job.
        place_of: Returns the prop by a line.

    Raises:
        ValueError: A script would end at its arguments.
    """
    from training_jobs.lint import refused_arguments

    passed = {} if command.is_of_image else given_arguments(context)
    for line, is_hyperparameter, refusal in refused_arguments(command, passed, device_of(context.job_request)):
        written = f"{f'--{refusal.key}' if refusal.key else 'the arguments'} of {place_of(line)}"
        prop = f"hyperparameters[{refusal.key!r}]" if is_hyperparameter else written
        raise must(prop, refusal.rule, refusal.example, f"{refusal.got}{OFF}")


def mistakes_at(folder: Path, target: Target, file: str = "requirements.txt") -> Iterator[tuple[str, Mistake]]:
    """Yield the mistakes of a file of requirements, each with its place.

    Args:
        folder: Its folder.
        target: Where pip installs.
        file: It, relative to the folder.
    """
    from training_jobs.lint.requirements import requirement_mistakes

    for mistake in requirement_mistakes(folder, target, file):
        yield f"{folder / mistake.path}:{mistake.line}", mistake


def refuse_requirements(found: Iterable[tuple[str, Mistake]], prop: str) -> None:
    """Check that pip can install requirements, as far as that is known.

    Args:
        found: Their mistakes, with their places.
        prop: That which has them.

    Raises:
        ValueError: pip would end.
    """
    for place, mistake in found:
        if mistake.kind.value == "fails":
            off = "a comment `# training-jobs: allow requirements` in it switches this off"
            raise must(f"{place}, of {prop},", mistake.rule, mistake.example, f"{mistake.got}; {off}")
