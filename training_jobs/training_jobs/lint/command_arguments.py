"""The arguments that a command gives its scripts, and those at which they end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

from training_jobs.lint.checks import scripts_of
from training_jobs.lint.commands import Command, Start
from training_jobs.lint.dataclass_options import options_of
from training_jobs.lint.deepspeed_file import deepspeed_refusals
from training_jobs.lint.options import NEGATIVE, Options, Refusal, refusals
from training_jobs.lint.script import Script
from training_jobs.lint.shell import ALL, UNKNOWN
from training_jobs.lint.trainer_values import Device

_TRAIN = "train"  # the argument by which SageMaker starts an image


class Given(NamedTuple):
    """What a script is given.

    Attributes:
        options: The texts of its options; None for one that is not known.
        flags: Those that have no value.
        others: The arguments before them.
    """

    options: dict[str, str | None]
    flags: list[str]
    others: list[str]


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
        given, path = given_by(start, passed), command.script_of(start)
        if given is None or path is None:
            continue
        scripts = scripts_of(command.folder, [path])
        for refusal in (one for script in scripts for one in _refused(command, start, script, given, device)):
            is_passed = refusal.key in passed and given.options.get(refusal.key) == passed[refusal.key]
            yield RefusedArgument(start.run.line, is_passed, refusal)


def _refused(command: Command, start: Start, script: Script, given: Given, device: Device) -> Iterator[Refusal]:
    options = options_of(script, command.job.versions if script.imports & {"transformers", "trl"} else {})
    # Files that arguments name are sought where the script is started.
    folder = command.folder if start.run.folder == PurePosixPath() and not command.is_of_image else None
    if options is not None and not any(option.is_positional for option in options.options):
        if given.others and not options.ignores_others:
            yield _other(given.others[0], options, command.is_of_image)
            return
        yield from refusals(options, given.options, given.flags, True, folder, device, command.job.absent)
    if folder is not None:
        yield from deepspeed_refusals(given.options, folder, command.world(start), command.job, options)


def _other(word: str, options: Options, is_of_image: bool) -> Refusal:
    """An argument that is no option, of a script without positional arguments."""
    rule, example = "be options of the script, since argparse ends it at others", "--epochs 3"
    if is_of_image and word == _TRAIN:
        rule = (
            "be taken by the script: SageMaker runs `docker run IMAGE train`, so ENTRYPOINT passes 'train' on, and argparse ends "
            "at it"
        )
        example = (
            "parser.add_argument('command'), parse_known_args(), or ENTRYPOINT ['python', 'start.py'] that drops it"
        )
    return Refusal("", rule, example, f"{word!r} with {options.path}")


def given_by(start: Start, passed: Mapping[str, str | None]) -> Given | None:
    """Return what a script is given; None where that is not certain.

    Args:
        start: The start of the script.
        passed: The hyperparameters, for ``"$@"``; None for a value that is not known.
    """
    if "torch.distributed.launch" in start.run.words:  # which passes others
        return None
    given: dict[str, str | None] = {}
    key, flags, others = "", list[str](), list[str]()
    for word in start.arguments:
        if word == ALL:
            given |= passed
            key = ""
        elif word.startswith("-") and not NEGATIVE.fullmatch(word):
            key, _, value = word.lstrip("-").partition("=")
            flags = [*(flag for flag in flags if flag != key), *([] if "=" in word else [key])]
            given[key] = (None if UNKNOWN in value else json.dumps(value)) if "=" in word else "true"
        elif UNKNOWN in key or (not key and UNKNOWN in word):
            return None
        elif not key:
            others.append(word)
        elif key in flags:
            flags.remove(key)
            given[key] = None if UNKNOWN in word else json.dumps(word)
    if start.launcher == "deepspeed" and "no_local_rank" not in start.options:
        given["local_rank"] = None
    return Given(given, flags, others) if UNKNOWN not in "".join(given) else None
