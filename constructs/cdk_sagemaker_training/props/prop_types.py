"""Checks props against their annotations, with one message for all: the prop, what it must be, an example and the value.

Annotations are the only place that says what a prop may be. A value checks its fields first thing (``check_fields``), a function
or constructor its arguments (``checked``), and what remains to be checked by hand are ranges, patterns and rules between props.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import math
import re
from abc import ABCMeta
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import is_unlisted, unlisted_hint
from cdk_sagemaker_training.props.execution_input import check_known
from cdk_sagemaker_training.props.prop import Prop, declared, options_of, with_article
from cdk_sagemaker_training.props.stand_ins import kind_of, stand_ins

P = ParamSpec("P")
R = TypeVar("R")

_LONGEST_SHOWN = 300  # characters of a value in a message


class _Wrong(NamedTuple):
    """Where a value is that is not what it must be, such as ``environment['A']``, with what it must be and an example."""

    path: str
    rule: str
    example: str
    value: Any


def check_fields(value: Any) -> None:
    """Check the fields of a dataclass against their annotations.

    Args:
        value: An instance, in its ``__post_init__``.
    """
    check_props_of(type(value), {field.name: getattr(value, field.name) for field in fields(value)})


if TYPE_CHECKING:
    _Named = ABCMeta  # of which a type checker knows what a class is called with
else:

    class _Named(ABCMeta):
        """Calls a class with arguments whose names exist, and all that it needs."""

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            _bound(cls, cls.__name__, args, kwargs)
            return super().__call__(*args, **kwargs)

        @property
        def __signature__(cls) -> inspect.Signature:  # which inspect would otherwise take from `__call__`
            signature = _signature(cls.__init__)
            return signature.replace(parameters=list(signature.parameters.values())[1:])


class Value(metaclass=_Named):
    """A dataclass that checks its fields against their annotations."""

    def __post_init__(self) -> None:
        check_fields(self)


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function, or a constructor, to check its arguments against their annotations.

    Returns:
        A function that raises ``ValueError`` for the first argument that is not what its annotation says.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        check_props_of(function, _bound(function, function.__qualname__.removesuffix(".__init__"), args, kwargs))
        return function(*args, **kwargs)

    return call


_signature = cache(inspect.signature)


def _bound(annotated: Any, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments of a call by their names; a ``TypeError`` says what was meant, or what the missing one is like."""
    signature = _signature(annotated)
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        parameters = signature.parameters
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            for given in kwargs:
                if given not in parameters:
                    text = f"{name}() got an unexpected keyword argument {given!r}{did_you_mean(given, parameters)}"
                    raise TypeError(text) from None
        found = signature.bind_partial(*args[: len(parameters)], **kwargs).arguments
        for missing, parameter in parameters.items():
            required = parameter.default is parameter.empty and parameter.kind not in (
                parameter.VAR_KEYWORD,
                parameter.VAR_POSITIONAL,
            )
            if required and missing not in found and missing != "self":
                text = f"{name}() missing required argument {missing!r}{_like(annotated, missing)}"
                raise TypeError(text) from None
        raise TypeError(f"{name}() {error!s}") from None


def _like(annotated: Any, missing: str) -> str:
    hints = annotations_of(annotated)
    if missing not in hints:
        return ""
    hint, record = declared(hints[missing])
    option = declared(options_of(hint)[0])[0]
    known = kind_of(get_origin(option) or option)
    example = record.example or (known.example if known else _PLAIN[option][1] if option in _PLAIN else "")
    return f", like {missing}={example}" if example else ""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return the end of a message about a name that does not exist; empty for one that does, or is like none."""
    near = [] if name in names else difflib.get_close_matches(name, list(names), n=1)
    return f", did you mean {near[0]!r}?" if near else ""


def check_props_of(annotated: Any, given: Mapping[str, Any]) -> None:
    """Check props against their annotations: their types, when they must be known, and their own rules.

    Args:
        annotated: The class or function with the annotations.
        given: Values by the props' names; those without an annotation pass.
    """
    hints = annotations_of(annotated)
    ruled: list[tuple[str, Any, Prop]] = []  # rules come after the types of all props
    for prop, value in given.items():
        hint, record = declared(hints.get(prop, Any))
        wrong = _wrong(prop, value, hint, bool(record.listed))
        if wrong is not None:
            shown = record.example if record.example and wrong.path == prop else wrong.example
            choice = record.listed and isinstance(wrong.value, str) and _is_choice(hint)
            rule = f"be {wrong.rule}"
            raise must(wrong.path, rule, f"{shown}{unlisted_hint(wrong.value) if choice else ''}", _shown(wrong.value))
        _check_encodable({prop: value} if prop != "props" else value)
        check_known(prop, value, record.known, record.example or "2")
        if value is not None and not is_unresolved(value):
            ruled.append((prop, value, record))
    for prop, value, record in ruled:
        if record.rule is not None:
            record.rule(prop, value, record.example or "2")


def _check_encodable(props: Mapping[str, Any]) -> None:
    """Check that a template can have what is in props: no half of a pair of surrogates, no infinity and no NaN."""
    for prop, value in props.items():
        for path, leaf in _leaves(prop, value):
            if isinstance(leaf, str) and re.search("[\ud800-\udfff]", leaf):
                raise must(prop, "be text that UTF-8 can encode", "'\\u00e9'", ascii(leaf))
            if isinstance(leaf, float) and not math.isfinite(leaf):
                raise must(path, "be a finite number, since JSON has no other", "0.001", repr(leaf))


def _leaves(path: str, value: Any, inside: tuple[int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Each text and number in a value, and where; ``inside`` are the ids of what contains it, since a list may contain itself."""
    if isinstance(value, str | float):
        yield path, value
    elif isinstance(value, Mapping | list | tuple) and id(value) not in inside:
        if isinstance(value, Mapping):
            yield from ((path, key) for key in value if isinstance(key, str))
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _leaves(f"{path}[{key!r}]", item, (*inside, id(value)))


class _PublicNames(dict[str, Any]):
    """Names that annotations may have: stand-ins, and the library's public names, which are imported on first use."""

    def __missing__(self, name: str) -> Any:
        package = importlib.import_module("cdk_sagemaker_training")
        if name in package.__all__:
            return getattr(package, name)
        raise KeyError(name)


@cache
def annotations_of(annotated: Any) -> Mapping[str, Any]:
    """The annotations of a class or a function, resolved, with the records of ``Annotated`` in them.

    Args:
        annotated: A class, a TypedDict or a function, whose annotations may name what is imported for type checkers only.

    Returns:
        Annotations by name; of a function's ``**`` there is none.
    """
    hints = get_type_hints(annotated, localns=_PublicNames(stand_ins()), include_extras=True)
    if is_dataclass(annotated):
        return {field.name: hints[field.name] for field in fields(annotated)}
    if not inspect.isfunction(annotated):
        return {name: hint for name, hint in hints.items() if get_origin(hint) is not ClassVar}
    # What `**` gathers is annotated one by one, or as all at once.
    parameters = inspect.signature(annotated).parameters.values()
    return {
        parameter.name: hints[parameter.name]
        for parameter in parameters
        if parameter.name in hints and parameter.kind is not parameter.VAR_KEYWORD
    }


@cache
def table_of(annotated: Any) -> Mapping[str, Prop]:
    """The records that the annotations of a class or a function declare, by the props' names."""
    return {name: declared(hint)[1] for name, hint in annotations_of(annotated).items()}


def _is_choice(hint: Any) -> bool:
    return any(get_origin(option) is Literal for option in options_of(hint))


def _wrong(path: str, value: Any, hint: Any, listed: bool = False) -> _Wrong | None:
    """What is wrong with a value, None where nothing is; ``listed`` choices may be others, or known later."""
    options = [declared(option)[0] for option in options_of(declared(hint)[0])]
    if value is None and NoneType in options:
        return None
    found = [_wrong_of(path, value, option, listed) for option in options if option is not NoneType]
    if None in found:
        return None
    wrongs = [wrong for wrong in found if wrong is not None]
    inside = next((wrong for wrong in wrongs if wrong.path != path), None)
    if inside is not None:
        return inside
    return _Wrong(path, " or ".join(dict.fromkeys(wrong.rule for wrong in wrongs)), wrongs[0].example, value)


def _wrong_of(path: str, value: Any, hint: Any, listed: bool) -> _Wrong | None:
    """The same, of a hint that is no union."""
    origin = get_origin(hint) or hint
    if hint is Any or isinstance(hint, TypeVar):
        return None
    if origin is Literal:
        choices = get_args(hint)
        later = listed and (is_unresolved(value) or is_unlisted(value))
        right = isinstance(value, str) and (value in choices or later)
        return None if right else _Wrong(path, f"one of {', '.join(map(repr, choices))}", repr(choices[0]), value)
    if origin in _PLAIN:
        rule, example, is_right = _PLAIN[origin]
        return None if is_right(value) else _Wrong(path, rule, example, value)
    if origin is Mapping:
        return _wrong_in_dict(path, value, *get_args(hint))
    if origin in (Sequence, tuple):
        return _wrong_in_list(path, value, get_args(hint)[0])
    kind = kind_of(origin)
    if kind is not None and kind.has:
        right = _is(value, kind.has)
    elif getattr(origin, "_is_protocol", False):
        right = _conforms(value, origin)
    else:
        right = isinstance(value, origin)
    rule, example = (with_article(origin.__name__), f"{origin.__name__}(...)") if kind is None else kind[:2]
    return None if right else _Wrong(path, rule, example, value)


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


def _is(value: Any, has: Sequence[str]) -> bool:
    """Whether a value has attributes. A class has them too, and CDK's L1 constructs have some of them."""
    if isinstance(value, type) or hasattr(type(value), "cfn_options"):
        return False
    # The class first, since to read a property of an instance of CDK's is a call into Node.
    return all(hasattr(type(value), name) or hasattr(value, name) for name in has)


def _conforms(value: Any, protocol: Any) -> bool:
    """Whether a value has a protocol's members, and its methods take the protocol's arguments."""
    members = {name: member for name, member in vars(protocol).items() if not name.startswith("_")}
    return _is(value, [*members]) and all(
        _takes(getattr(value, name), len(inspect.signature(member).parameters) - 1)
        for name, member in members.items()
        if inspect.isfunction(member)
    )


def _takes(method: Any, count: int) -> bool:
    """Whether a method can be called with so many arguments."""
    if not callable(method):
        return False
    try:
        inspect.signature(method).bind(*[None] * count)
    except TypeError:
        return False
    return True


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


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
