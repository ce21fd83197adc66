"""Checks props against their annotations, with one message for all: the prop, what it must be, an example and the value.

Annotations are the only place that says what a prop may be. A value checks its fields first thing (``check_fields``), a function
or constructor its arguments (``checked``), and what remains to be checked by hand are ranges, patterns and rules between props.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from cdk_sagemaker_training.execution_input import check_known
from cdk_sagemaker_training.prop_kinds import EXAMPLES, KINDS, LISTED, Kind, kind_names
from cdk_sagemaker_training.tokens import is_unresolved
from cdk_sagemaker_training.unlisted import is_unlisted, way_out

P = ParamSpec("P")
R = TypeVar("R")

_LONGEST_SHOWN = 300  # characters of a value in a message


class _Wrong(NamedTuple):
    """Where a value is that is not what it must be, such as ``environment['A']``, with what it must be and an example."""

    path: str
    must: str
    example: str
    value: Any


def check_fields(value: Any) -> None:
    """Raise ``ValueError`` for the first field of a dataclass whose value is not what its annotation says."""
    check_props_of(
        type(value).__name__, type(value), {field.name: getattr(value, field.name) for field in fields(value)}
    )


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """A function that raises ``ValueError`` for the first argument that is not what its annotation says."""
    signature = inspect.signature(function)
    owner = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError:
            arguments = {}  # which the call below raises in Python's own words
        check_props_of(owner, function, arguments)
        return function(*args, **kwargs)

    return call


def check_props_of(owner: str, annotated: Any, given: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for the first of ``given`` that is not what ``annotated`` says; what it does not annotate passes."""
    hints = _hints(annotated)
    for prop, value in given.items():
        wrong = _wrong(prop, value, hints.get(prop, Any))
        example = EXAMPLES.get(f"{owner}.{prop}", EXAMPLES.get(prop))
        if wrong is None:
            check_known(owner, prop, value, example or "2")
        else:
            example = example if wrong.path == prop else None
            instead = way_out(wrong.value) if prop in LISTED and isinstance(wrong.value, str) else ""
            raise ValueError(
                f"{wrong.path} must be {wrong.must}, like {example or wrong.example}{instead}, got {_shown(wrong.value)}"
            )


@cache
def _hints(annotated: Any) -> dict[str, Any]:
    package = vars(importlib.import_module("cdk_sagemaker_training"))
    hints = get_type_hints(annotated, localns={**package, **kind_names()})
    if not inspect.isfunction(annotated):
        return hints
    # What `**` gathers is annotated one by one, or as all at once.
    parameters = inspect.signature(annotated).parameters.values()
    return {one.name: hints[one.name] for one in parameters if one.name in hints and one.kind is not one.VAR_KEYWORD}


def _wrong(path: str, value: Any, hint: Any) -> _Wrong | None:
    """What is wrong with a value, None where nothing is."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if value is None and NoneType in options:
        return None
    found = [_wrong_of(path, value, option) for option in options if option is not NoneType]
    if None in found:
        return None
    wrongs = [wrong for wrong in found if wrong is not None]
    inside = next((wrong for wrong in wrongs if wrong.path != path), None)
    if inside is not None:
        return inside
    return _Wrong(path, " or ".join(dict.fromkeys(wrong.must for wrong in wrongs)), wrongs[0].example, value)


def _wrong_of(path: str, value: Any, hint: Any) -> _Wrong | None:
    """The same, of a hint that is no union."""
    origin = get_origin(hint) or hint
    if hint is Any or isinstance(hint, TypeVar):
        return None
    if origin is Literal:
        choices = get_args(hint)
        later = path in LISTED and (is_unresolved(value) or is_unlisted(value))
        right = isinstance(value, str) and (value in choices or later)
        return None if right else _Wrong(path, f"one of {', '.join(map(repr, choices))}", repr(choices[0]), value)
    if origin in _PLAIN:
        must, example, is_right = _PLAIN[origin]
        return None if is_right(value) else _Wrong(path, must, example, value)
    if origin is Mapping:
        return _wrong_in_dict(path, value, *get_args(hint))
    if origin in (Sequence, tuple):
        return _wrong_in_list(path, value, get_args(hint)[0])
    kind = KINDS.get(getattr(origin, "kind", origin.__name__))
    if kind is None:
        return (
            None if isinstance(value, origin) else _Wrong(path, _with_article(origin.__name__), origin.__name__, value)
        )
    right = _is(value, kind) if hasattr(origin, "kind") else isinstance(value, origin)
    return None if right else _Wrong(path, kind.must, kind.example, value)


def _wrong_in_dict(path: str, value: Any, key_hint: Any, item_hint: Any) -> _Wrong | None:
    if not isinstance(value, Mapping):
        return _Wrong(path, "a dict", "{'name': ...}", value)
    for key, item in value.items():
        if _wrong(path, key, key_hint) is not None or is_unresolved(key):
            return _Wrong(path, "a dict by names known at synth", "{'name': ...}", key)
        wrong = _wrong(f"{path}[{key!r}]", item, item_hint)
        if wrong is not None:
            return wrong
    return None


def _wrong_in_list(path: str, value: Any, item_hint: Any) -> _Wrong | None:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray | memoryview | range):
        return _Wrong(path, "a list", "[...]", value)
    found = (_wrong(f"{path}[{index}]", item, item_hint) for index, item in enumerate(value))
    return next((wrong for wrong in found if wrong is not None), None)


def _is(value: Any, kind: Kind) -> bool:
    """Whether a value has what its kind is known by. A class has it too, and CDK's L1 constructs have some of it."""
    if isinstance(value, type) or hasattr(type(value), "cfn_options"):
        return False
    return all(_has(value, name) for name in kind.has) and not any(_has(value, name) for name in kind.lacks)


def _has(value: Any, name: str) -> bool:
    # The class first, since to read a property of an instance of CDK's is a call into Node.
    return hasattr(type(value), name) or hasattr(value, name)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _with_article(name: str) -> str:
    return f"{'an' if name.startswith(tuple('AEIOU')) or name.startswith(('Ml', 'S3')) else 'a'} {name}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_PLAIN: Mapping[Any, tuple[str, str, Callable[[Any], bool]]] = {
    str: ("text", "'text'", lambda value: isinstance(value, str)),
    bool: ("True or False", "True", lambda value: isinstance(value, bool)),
    # CDK encodes a number that is known later as a float.
    int: (
        "a whole number",
        "2",
        lambda value: _is_number(value) and (isinstance(value, int) or is_unresolved(value)),
    ),
    float: ("a number", "0.5", _is_number),
}
