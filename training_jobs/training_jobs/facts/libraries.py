"""What libraries of Hugging Face have, and some of their classes take, by version, from the libraries' wheels.

`release/library_tables.py` writes the tables anew. A version is known by its first two numbers: the last release of each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

LIBRARIES = ("transformers", "trl", "peft", "accelerate", "datasets")
Versions = Mapping[str, str]


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


class Call(NamedTuple):
    """How a library calls a method.

    Attributes:
        caller: The method that does.
        positional: The number of arguments without names; None for any number.
        names: Those of the others.
        more: Whether it may give others too.
    """

    caller: str
    positional: int | None
    names: tuple[str, ...]
    more: bool


@cache
def _table(library: str) -> Any:
    return json.loads(Path(__file__).with_name(f"{library}.json").read_text())


def arguments_of(name: str, versions: Versions) -> Mapping[str, Argument] | None:
    """Return what a class takes, by name; None where that is not known, or it takes any.

    Args:
        name: With its library, like ``"transformers.TrainingArguments"``, ``"trl.SFTConfig"`` or ``"trl.SFTTrainer"``.
        versions: Of the libraries, like ``{"transformers": "4.56.2"}``.
    """
    library, _, own = name.partition(".")
    of_base = _base(name)
    inherited = arguments_of(of_base, versions) if of_base else {}
    rows = _rows(library, own, versions.get(library, ""))
    return None if inherited is None or not rows else {**inherited, **rows}


@cache
def _rows(library: str, name: str, version: str) -> Mapping[str, Argument]:
    """What a version's class has itself; empty where it has no such class, or the version is not known."""
    if library not in LIBRARIES or (number := _number(library, version)) is None:
        return {}
    return {
        argument: Argument(kind, default)
        for argument, kind, default, first, last in _table(library)["classes"].get(name, ())
        if _is_between(library, number, first, last)
    }


def declares(name: str, argument: str, versions: Versions) -> bool:
    """Whether a class declares an argument that a listed base has too, maybe with another default.

    Args:
        name: The class, with its library.
        argument: The argument.
        versions: Of the libraries.
    """
    library, _, own = name.partition(".")
    base = _base(name)
    of_own = bool(base) and argument in _rows(library, own, versions.get(library, ""))
    return of_own or (bool(base) and declares(base, argument, versions))


@cache
def calls_of(name: str, version: str) -> Mapping[str, tuple[Call, ...]]:
    """Return how transformers calls the methods of a class of which scripts make their own, by method.

    Args:
        name: ``"Trainer"`` or ``"TrainerCallback"``.
        version: Of transformers; empty where that is not known.
    """
    library = "transformers"
    if (number := _number(library, version)) is None:
        return {}
    found: dict[str, tuple[Call, ...]] = {}
    for method, caller, positional, names, first, last in _table(library)["calls"][name]:
        if _is_between(library, number, first, last):
            own = tuple(one for one in names.split() if one != "*")
            call = Call(caller, None if positional == "*" else int(positional), own, "*" in names.split())
            found[method] = (*found.get(method, ()), call)
    return found


def values_of(name: str, versions: Versions) -> Mapping[str, tuple[str, ...]]:
    """Return what arguments of a class may be, for those of which ``__post_init__`` makes an Enum; the class ends at others.

    Args:
        name: The class, with its library.
        versions: Of the libraries.
    """
    library, _, own = name.partition(".")
    if (number := _number(library, versions.get(library, "")) if library in LIBRARIES else None) is None:
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for argument, value, first, last in _table(library).get("values", {}).get(own, ()):
        if _is_between(library, number, first, last):
            found[argument] = (*found.get(argument, ()), value)
    return {**(values_of(_base(name), versions) if _base(name) else {}), **found}


def versions_with(name: str, argument: str, value: str) -> str:
    """Return the versions in which an argument may have a value, like ``"4.16 to 4.49"``; "" where there are none.

    Args:
        name: The class, with its library.
        argument: The argument.
        value: The value.
    """
    library, _, own = name.partition(".")
    rows = _table(library).get("values", {}).get(own, ())
    found = next((f"{row[2]} to {row[3]}" for row in rows if row[:2] == [argument, value]), "")
    return found or (versions_with(_base(name), argument, value) if _base(name) else "")


def ends_at(check: str, versions: Versions) -> bool:
    """Whether ``__post_init__`` of transformers' TrainingArguments has one of its checks.

    Args:
        check: ``"best-model"``, ``"bf16-on-cpu"``, ``"half-precision"``, ``"plateau"`` or ``"tf32"``.
        versions: Of the libraries.
    """
    library = "transformers"
    number = _number(library, versions.get(library, ""))
    return number is not None and _is_between(library, number, *_table(library)["checks"][check])


def _base(name: str) -> str:
    library, _, own = name.partition(".")
    base = str(_table(library)["bases"].get(own, "")) if library in LIBRARIES else ""
    return base if "." in base or not base else f"{library}.{base}"


def arguments_of_others(name: str, versions: Versions) -> Mapping[str, str]:
    """Return what is known of the arguments that a class takes in other versions than this one.

    Args:
        name: The class, with its library.
        versions: Of the libraries.
    """
    library, _, own = name.partition(".")
    now, has = arguments_of(name, versions) or {}, dict[str, list[str]]()
    if not now:
        return {}
    table = _table(library)
    for other in table["versions"]:
        for argument in _rows(library, own, other).keys() - now.keys():
            has.setdefault(argument, []).append(other)
    known = {
        argument: f"which versions {found[0]} to {found[-1]} take"
        + (f", and now it is {table['renamed'][argument]}" if argument in table["renamed"] else "")
        for argument, found in has.items()
    }
    return {**(arguments_of_others(_base(name), versions) if _base(name) else {}), **known}


@cache
def names_of_others(library: str, version: str) -> Mapping[str, str]:
    """Return the names that a version does not have, each with the versions that do: the last one, or the first.

    Args:
        library: Such as ``"transformers"``.
        version: Its version.
    """
    if library not in LIBRARIES or (number := _number(library, version)) is None:
        return {}
    table = _table(library)
    later = {
        name: f"which {first} has first"
        for first, names in table["first_versions"].items()
        if (_number(library, first) or 0) > number
        for name in names.split()
    }
    return later | {
        name: f"which {last} had last"
        for last, names in table["last_versions"].items()
        if (_number(library, last) or 0) < number
        for name in names.split()
    }


def takes_hyphens(version: str) -> bool:
    """Whether HfArgumentParser also takes ``--some-name`` for the field ``some_name``.

    Args:
        version: Of transformers.
    """
    library = "transformers"
    return (_number(library, version) or 0) >= (_number(library, _table(library)["hyphens_from"]) or 0)


def refuses_keys(version: str) -> bool:
    """Whether TrlParser ends a script at keys of its file that are no options, rather than to ignore them.

    Args:
        version: Of trl.
    """
    return minor_of(version) in _table("trl")["refuses_keys"]


def minor_of(version: str) -> str:
    """Return the first two numbers of a version."""
    return ".".join(version.split(".")[:2])


@cache
def _number(library: str, version: str) -> int | None:
    minor, versions = minor_of(version), _table(library)["versions"]
    return versions.index(minor) if minor in versions else None


def _is_between(library: str, number: int, first: str, last: str) -> bool:
    """Whether a version, by its number in the table, is one of a row's."""
    return (_number(library, first) or 0) <= number <= (_number(library, last) or 0)
