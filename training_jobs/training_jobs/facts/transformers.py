"""What TrainingArguments and the Trainer of Hugging Face's transformers take, by version, from the library's wheels.

`release/transformers_arguments.py` writes the table anew. A version is known by its first two numbers: the last release of each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple


class Argument(NamedTuple):
    """One argument of a class.

    Attributes:
        type: ``int``, ``float``, ``str``, ``bool``, ``Optional[bool]`` or ``list``; "" for others.
        default: ``"required"`` where there is none, ``"True"`` and ``"None"`` if it is that, "" for others.
    """

    type: str
    default: str

    @property
    def is_required(self) -> bool:
        """Whether HfArgumentParser ends a script without it: a ``bool`` without a default is False."""
        return self.default == "required" and self.type != "bool"


@cache
def _table() -> Any:
    return json.loads(Path(__file__).with_suffix(".json").read_text())


@cache
def arguments_of(name: str, version: str) -> Mapping[str, Argument] | None:
    """Return what a class takes, by name; None where that is not known.

    Args:
        name: ``"TrainingArguments"``, ``"Seq2SeqTrainingArguments"``, ``"Trainer"`` or ``"Seq2SeqTrainer"``.
        version: Of transformers, like ``"4.56.2"``.
    """
    number, base = _number(version), _table()["bases"].get(name)
    if number is None or name not in _table()["classes"]:
        return None
    return {
        **((base and arguments_of(base, version)) or {}),
        **{
            argument: Argument(kind, default)
            for argument, kind, default, first, last in _table()["classes"][name]
            if (_number(first) or 0) <= number <= (_number(last) or 0)
        },
    }


@cache
def arguments_of_others(name: str, version: str) -> Mapping[str, str]:
    """Return what is known of the arguments that a class takes in other versions than this one.

    Args:
        name: The class.
        version: Of transformers.
    """
    now, has = arguments_of(name, version) or {}, dict[str, list[str]]()
    for other in _table()["versions"]:
        for argument in (arguments_of(name, other) or {}).keys() - now.keys():
            has.setdefault(argument, []).append(other)
    renamed = _table()["renamed"]
    return {
        argument: f"which versions {found[0]} to {found[-1]} take"
        + (f", and now it is {renamed[argument]}" if argument in renamed else "")
        for argument, found in has.items()
    }


@cache
def last_versions(version: str) -> Mapping[str, str]:
    """Return the names that ``from transformers import`` no longer finds in a version, and the last one that has each.

    Args:
        version: Of transformers.
    """
    number = _number(version)
    return {
        name: last
        for last, names in _table()["last_versions"].items()
        if number is not None and (_number(last) or 0) < number
        for name in names.split()
    }


def takes_hyphens(version: str) -> bool:
    """Whether HfArgumentParser also takes ``--some-name`` for the field ``some_name``.

    Args:
        version: Of transformers.
    """
    return (_number(version) or 0) >= (_number(_table()["hyphens_from"]) or 0)


@cache
def _number(version: str) -> int | None:
    minor, versions = ".".join(version.split(".")[:2]), _table()["versions"]
    return versions.index(minor) if minor in versions else None
