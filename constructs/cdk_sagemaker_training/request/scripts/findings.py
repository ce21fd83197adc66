"""How mistakes in scripts are said, by the rules of ``training-jobs lint``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.jobs.advice import Advice, advice
from cdk_sagemaker_training.request.context import JobContext
from cdk_sagemaker_training.request.image_contents import device_of
from cdk_sagemaker_training.request.scripts.known import compilers_of, given_arguments, is_offline

if TYPE_CHECKING:
    from training_jobs.lint import Job
    from training_jobs.lint.options import Options

_MOST = 3  # of one rule, in one warning
# Files that name folders; what is uploaded; what saves a model; and hyperparameters that name a folder.
TEXTS = (".py", ".sh", ".json", ".yaml", ".yml", ".toml", ".cfg", ".ini")
READS_HYPERPARAMETERS = re.compile(r"SM_HP|SM_TRAINING_ENV|SM_USER_ARGS|hyperparameters\.json")
COMMAND_OFF = "a comment `# training-jobs: allow command` in it switches this off"
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

    request, compilers = context.job_request, compilers_of(context)
    job = replace(
        installed or Job(),
        compiled=any(compilers),
        dynamic=request.environment.get("TRAINING_COMPILER_DYNAMIC") == "true",
        xla=compilers[1],
        spot=context.props.get("spot") is not None,
        groups=request.group_names,
        channels=tuple(context.props.get("channels") or ()),
        entry_point=entry_point,
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
