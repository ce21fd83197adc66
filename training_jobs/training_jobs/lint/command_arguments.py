"""The arguments that a command gives its scripts, and those at which they end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from training_jobs.lint.checks import scripts_of
from training_jobs.lint.commands import Command, Start
from training_jobs.lint.dataclass_options import options_of
from training_jobs.lint.deepspeed_file import deepspeed_refusals
from training_jobs.lint.options import NEGATIVE, Refusal, refusals
from training_jobs.lint.script import Script
from training_jobs.lint.shell import ALL, UNKNOWN
from training_jobs.lint.trainer_values import Device


class RefusedArgument(NamedTuple):
    """An argument at which a script of a command ends.

    Attributes:
        line: The line of the command.
        is_hyperparameter: Whether it is one, and not written in the command.
        refusal: Why.
    """

    line: int
    is_hyperparameter: bool
    refusal: Refusal


def refused_arguments(
    command: Command, passed: Mapping[str, str | None], device: Device = ""
) -> Iterator[RefusedArgument]:
    """Yield the arguments at which scripts of a command end.

    Args:
        command: The command.
        passed: The hyperparameters, for ``"$@"``; None for a value that is not known.
        device: What computes.
    """
    for start in command.starts:
        given = given_by(start, passed)
        scripts = scripts_of(command.folder, [Path(start.script)] if start.script and given else [])
        for refusal in (one for script in scripts if given for one in _refused(command, start, script, *given, device)):
            is_passed = given is not None and refusal.key in passed and given[0].get(refusal.key) == passed[refusal.key]
            yield RefusedArgument(start.run.line, is_passed, refusal)


def _refused(
    command: Command, start: Start, script: Script, given: Mapping[str, str | None], flags: list[str], device: Device
) -> Iterator[Refusal]:
    options = options_of(script, command.job.versions if script.imports & {"transformers", "trl"} else {})
    # Files that arguments name are sought where the script is started.
    folder = command.folder if start.run.folder == PurePosixPath() else None
    if options is not None and not any(option.is_positional for option in options.options):
        yield from refusals(options, given, flags, True, folder, device, command.job.absent)
    if folder is not None:
        yield from deepspeed_refusals(given, folder, command.world(start), command.job, options)


def given_by(start: Start, passed: Mapping[str, str | None]) -> tuple[dict[str, str | None], list[str]] | None:
    """Return the options that a script is given, and those that have no value; None where that is not certain.

    Args:
        start: The start of the script.
        passed: The hyperparameters, for ``"$@"``; None for a value that is not known.
    """
    if "torch.distributed.launch" in start.run.words:  # which passes others
        return None
    given: dict[str, str | None] = {}
    key, flags = "", list[str]()
    for word in start.arguments:
        if word == ALL:
            given |= passed
            key = ""
        elif word.startswith("-") and not NEGATIVE.fullmatch(word):
            key, _, value = word.lstrip("-").partition("=")
            flags = [*(flag for flag in flags if flag != key), *([] if "=" in word else [key])]
            given[key] = (None if UNKNOWN in value else json.dumps(value)) if "=" in word else "true"
        elif not key or UNKNOWN in key:
            return None
        elif key in flags:
            flags.remove(key)
            given[key] = None if UNKNOWN in word else json.dumps(word)
    if start.launcher == "deepspeed" and "no_local_rank" not in start.options:
        given["local_rank"] = None
    return (given, flags) if UNKNOWN not in "".join(given) else None
