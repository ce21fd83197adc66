"""The options of torchrun, accelerate and deepspeed by version, and what their argparse says of arguments.

`release/launcher_table.py` writes the table anew.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from training_jobs.facts.libraries import minor_of

UNKNOWN = "\0"  # a word, or part of one, that is known only when the job runs
_TYPES: Mapping[str, type] = {"int": int, "float": float}
_SCRIPTS = ("training_script", "user_script")
# Programs that are options of Python too: `python -m torch.distributed.launch` takes one more of its own.
_OF_LAUNCH = ("--use-env", "--use_env")


class RefusedError(Exception):
    """An argument at which a launcher ends: argparse's own message."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise RefusedError(message.replace(UNKNOWN, "$..."))


class _Choices(tuple[str, ...]):
    def __contains__(self, value: object) -> bool:
        return UNKNOWN in str(value) or super().__contains__(value)


@cache
def _tables() -> Any:
    return json.loads(Path(__file__).with_suffix(".json").read_text())["launchers"]


def read_arguments(launcher: str, version: str, words: Iterable[str]) -> dict[str, Any]:
    """Return what a launcher reads of its arguments, by the options' names with underscores; those alone that are given.

    The script is ``script``, and its arguments are ``arguments``.

    Args:
        launcher: ``"torchrun"``, ``"accelerate launch"`` or ``"deepspeed"``.
        version: Of its package; where the table has no such version, options of any are taken.
        words: The arguments.

    Raises:
        RefusedError: The launcher would end at them.
    """
    return {**vars(_parser(launcher, version).parse_args([*words]))}


@cache
def _parser(launcher: str, version: str) -> argparse.ArgumentParser:
    parser = _Parser(
        launcher,
        add_help=False,
        allow_abbrev=launcher != "accelerate launch",
        argument_default=argparse.SUPPRESS,
        conflict_handler="resolve",
    )
    parser.add_argument("-h", "--help", action="store_true")
    hyphens = _is_between(launcher, version, _tables()[launcher].get("hyphens_from", ""), "") is not False
    for text, takes, kind, choices in _rows(launcher, "options", version):
        names = text.split()
        if takes == "rest":
            parser.add_argument("arguments", nargs=argparse.REMAINDER)
        elif text in _SCRIPTS:
            parser.add_argument("script")
        elif takes == "nothing":
            parser.add_argument(*names, action="store_true", dest=_name(names))
        else:
            if launcher == "accelerate launch" and hyphens:
                names += [f"--{name[2:].replace('_', '-')}" for name in names if "_" in name]
            among = _Choices(choices) if choices else None
            parser.add_argument(*names, dest=_name(names), type=_converter(kind), choices=among)
    if launcher == "torchrun":
        parser.add_argument(*_OF_LAUNCH, dest="use_env", action="store_true")
    return parser


def _name(names: list[str]) -> str:
    return next((name for name in names if name.startswith("--")), names[0]).lstrip("-").replace("-", "_")


def _converter(kind: str) -> Callable[[str], object]:
    def convert(text: str) -> object:
        return text if UNKNOWN in text else _TYPES.get(kind, str)(text)

    convert.__name__ = kind  # which argparse's message has
    return convert


def keys_of_config(version: str) -> frozenset[str]:
    """Return the keys that a file of ``accelerate launch --config_file`` may have.

    Args:
        version: Of accelerate; where the table has no such version, those of all.
    """
    # `process_config` takes the place of older ones.
    return frozenset(row[0] for row in _rows("accelerate launch", "keys", version)) | {"fp16", "dynamo_backend"}


def options_of_config(version: str) -> frozenset[str]:
    """Return the names of accelerate's options, which the parts of that file set.

    Args:
        version: Of accelerate; where the table has no such version, those of all.
    """
    return frozenset(_name(row[0].split()) for row in _rows("accelerate launch", "options", version))


def fields_of_deepspeed(part: str, version: str) -> Mapping[str, str]:
    """Return the keys that a part of a file of DeepSpeed may have, and their types.

    Args:
        part: ``"zero_optimization"``, ``"offload_param"`` or ``"offload_optimizer"``.
        version: Of deepspeed; where the table has no such version, the keys of all.
    """
    return dict(_rows("deepspeed", part, version))


def _rows(launcher: str, table: str, version: str) -> list[list[Any]]:
    return [
        row[:-2] for row in _tables()[launcher][table] if _is_between(launcher, version, row[-2], row[-1]) is not False
    ]


def _is_between(launcher: str, version: str, first: str, last: str) -> bool | None:
    """Whether a version is one of a row's; None where the table does not have it."""
    versions, minor = _tables()[launcher]["versions"], minor_of(version)
    if minor not in versions:
        return None
    number = versions.index(minor)
    return (not first or versions.index(first) <= number) and (not last or number <= versions.index(last))
