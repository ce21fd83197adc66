"""Event patterns: which EventBridge accepts, and which events they match.

The operators are those of "Comparison operators for use in event patterns" (EventBridge user guide); what is refused, in which
words and at which position is AWS's as LocalStack recorded it (`tests/aws/services/events/test_events_patterns.py`). Where a text
is not recorded, it is that of AWS's open source matcher (aws/event-ruler, JsonRuleCompiler).
"""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from moto.events.exceptions import InvalidEventPatternException

# The most wildcards of one filter; AWS refuses six and documents no number.
MOST_WILDCARDS = 5

_NOT_A_LIST = "Value of anything-but must be an array or single string/number value."
_TOKENS = "(JSON String, Number, Array, Object or token 'null', 'true' or 'false')"
_TOKEN = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])|(?:true|false|null)\b')
_SPACE = re.compile(r"[ \t\r\n]*")
_CONSTANTS = {"true": True, "false": False, "null": None}

# The value of a field that an event does not have.
_Values = list[tuple[Any, tuple[tuple[str, int], ...]]]
_Filter = Callable[[Any], bool]


@dataclasses.dataclass(frozen=True)
class _Node:
    """A value of JSON: a scalar, a list of nodes, or a dict of nodes.

    ``end`` is the position behind its first token, for a string behind its quote; ``read`` that behind its text.
    """

    value: Any
    end: int
    read: int
    closed: int

    @property
    def is_number(self) -> bool:
        return isinstance(self.value, int | float) and not isinstance(self.value, bool)


class _Refused(Exception):
    """A reason why a pattern is not valid, and the position of it."""

    def __init__(self, reason: str, at: int | None = None, *, twice: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.at, self.twice = reason, at, twice


@dataclasses.dataclass(frozen=True)
class _Exists:
    exists: bool


@dataclasses.dataclass(frozen=True)
class Pattern:
    """A valid pattern: alternatives (of `$or`), each of fields with their filters."""

    alternatives: tuple[dict[str, list[_Filter | _Exists]], ...]

    def matches(self, event: Any) -> bool:
        """Returns whether an event, as JSON, has for each field of an alternative a value that one of its filters matches.

        Values in arrays of objects match together where they are of the same object (aws/event-ruler, "JSON array matching").
        """
        values: dict[str, _Values] = {}
        _collect(event, "", (), values)
        return any(_all_match([*one.items()], values, {}) for one in self.alternatives)


def compiled(text: str) -> Pattern:
    """Returns the pattern of a text.

    Raises:
        InvalidEventPatternException: EventBridge refuses it.
    """
    try:
        root = _Reader(text).root()
        if not isinstance(root.value, dict):
            raise _Refused("Filter is not an object", root.end)
        return Pattern(tuple(_alternatives(root, "")))
    except _Refused as refused:
        reason = refused.reason
        if refused.at is not None:
            line = text.count("\n", 0, refused.at) + 1
            column = refused.at - (text.rfind("\n", 0, refused.at) + 1) + 1
            where = f'\n at [Source: (String)"{text}"; line: {line}, column: {column}]'
            reason += where * (2 if refused.twice else 1)
        raise InvalidEventPatternException(reason) from None
    except RecursionError:
        raise InvalidEventPatternException("Document nesting depth exceeds the maximum allowed") from None


class _Reader:
    """A reader of JSON that knows the position of each value."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def root(self) -> _Node:
        node = self._node()
        self._space()
        if self._at < len(self._text):
            raise _Refused(f"Unexpected character ({self._quoted()})", self._at)
        return node

    def _space(self) -> None:
        match = _SPACE.match(self._text, self._at)
        assert match is not None
        self._at = match.end()

    def _quoted(self) -> str:
        if self._at >= len(self._text):
            return "end-of-input"
        character = self._text[self._at]
        return f"'{character}' (code {ord(character)})"

    def _take(self, character: str, expected: str) -> None:
        self._space()
        if not self._text.startswith(character, self._at):
            raise _Refused(f"Unexpected character ({self._quoted()}): was expecting {expected}", self._at)
        self._at += 1

    def _node(self) -> _Node:
        self._space()
        start = self._at
        first = self._text[start : start + 1]
        if first == "{":
            self._at += 1
            members: dict[str, _Node] = {}
            while not self._closes("}", bool(members)):
                self._space()
                if not self._text.startswith('"', self._at):
                    raise _Refused(
                        f"Unexpected character ({self._quoted()}): was expecting double-quote to start field name",
                        self._at,
                    )
                name = self._scalar()
                self._take(":", "a colon to separate field name and value")
                members[name] = self._node()
            return _Node(members, start + 1, start + 1, self._at)
        if first == "[":
            self._at += 1
            items: list[_Node] = []
            while not self._closes("]", bool(items)):
                items.append(self._node())
            return _Node(items, start + 1, start + 1, self._at)
        value = self._scalar()
        return _Node(value, start + 1 if first == '"' else self._at, self._at, self._at)

    def _closes(self, character: str, began: bool) -> bool:
        self._space()
        if self._text.startswith(character, self._at):
            self._at += 1
            return True
        if began:
            self._take(",", "comma to separate entries")
        return False

    def _scalar(self) -> Any:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            if word := re.compile(r"\w+").match(self._text, self._at):
                raise _Refused(f"Unrecognized token '{word.group()}': was expecting {_TOKENS}", word.end())
            raise _Refused(f"Unexpected character ({self._quoted()}): expected a valid value {_TOKENS}", self._at)
        self._at = match.end()
        token = match.group()
        if token in _CONSTANTS:
            return _CONSTANTS[token]
        try:
            return json.loads(token)
        except ValueError as error:
            raise _Refused(str(error), self._at) from None


def _alternatives(node: _Node, path: str) -> Iterator[dict[str, list[_Filter | _Exists]]]:
    """The alternatives of an object of fields: more than one where it has `$or`."""
    found: list[dict[str, list[_Filter | _Exists]]] = [{}]
    if not node.value:
        raise _Refused("Empty objects are not allowed", node.closed)
    for name, member in node.value.items():
        below = f"{path}.{name}" if path else name
        if name == "$or" and _is_alternatives(member):
            branches = [one for item in member.value for one in _alternatives(item, path)]
        elif isinstance(member.value, dict):
            branches = [*_alternatives(member, below)]
        elif isinstance(member.value, list):
            if not member.value:
                raise _Refused("Empty arrays are not allowed", member.closed)
            branches = [{below: [_filter(item) for item in member.value]}]
        else:
            raise _Refused(f'"{name}" must be an object or an array', member.end)
        found = [{**left, **right} for left in found for right in branches]
    yield from found


def _is_alternatives(node: _Node) -> bool:
    return (
        isinstance(node.value, list)
        and len(node.value) > 1
        and all(isinstance(item.value, dict) and item.value for item in node.value)
    )


def _filter(node: _Node) -> _Filter | _Exists:
    if isinstance(node.value, list):
        raise _Refused("Match value must be String, number, true, false, or null", node.end)
    if not isinstance(node.value, dict):
        return _equal(node.value)
    if len(node.value) != 1:
        raise _Refused("Only one key allowed in match expression", node.closed)
    (name, operand), *_ = node.value.items()
    if name == "exists":
        if not isinstance(operand.value, bool):
            raise _Refused("exists match pattern must be either true or false.", operand.end)
        return _Exists(operand.value)
    if name not in _OPERATORS:
        raise _Refused(f"Unrecognized match type {name}", operand.end)
    return _OPERATORS[name](operand)


def _equal(expected: Any) -> _Filter:
    if isinstance(expected, int | float) and not isinstance(expected, bool):
        return lambda value: isinstance(value, int | float) and not isinstance(value, bool) and value == expected
    return lambda value: type(value) is type(expected) and value == expected


def _of_text(test: Callable[[str], bool]) -> _Filter:
    return lambda value: isinstance(value, str) and test(value)


def _starts(text: str) -> _Filter:
    return _of_text(lambda value: value.startswith(text))


def _ends(text: str) -> _Filter:
    return _of_text(lambda value: value.endswith(text))


def _folded(text: str) -> _Filter:
    return _of_text(lambda value: value.casefold() == text.casefold())


def _affix(name: str, make: Callable[[str], _Filter]) -> Callable[[_Node], _Filter]:
    def of(node: _Node) -> _Filter:
        if isinstance(node.value, dict) and [*node.value] == ["equals-ignore-case"]:
            text = _text(
                node.value["equals-ignore-case"], "equals-ignore-case match pattern must be a string"
            ).casefold()
            return _of_text(lambda value: make(text)(value.casefold()))
        return make(_text(node, f"{name} match pattern must be a string"))

    return of


def _text(node: _Node, reason: str) -> str:
    if not isinstance(node.value, str):
        raise _Refused(reason, node.end)
    return node.value


def _wildcard(node: _Node) -> _Filter:
    r"""A text with `*` for any characters; `\*` and `\\` are the characters themselves."""
    text = _text(node, "wildcard match pattern must be a string")
    parts, at = [""], 0
    while at < len(text):
        character = text[at]
        if character == "*":
            if at and len(parts) > 1 and not parts[-1]:
                raise _Refused(f"Consecutive wildcard characters at pos {at}", node.read)
            parts.append("")
        elif character == "\\":
            at += 1
            if text[at : at + 1] not in ("*", "\\"):
                raise _Refused(f"Invalid escape character at pos {at - 1}", node.read)
            parts[-1] += text[at]
        else:
            parts[-1] += character
        at += 1
    if len(parts) > MOST_WILDCARDS + 1:
        raise _Refused(
            "Rule is too complex - try using fewer wildcard characters or fewer repeating character sequences after a "
            "wildcard character"
        )
    return _of_text(lambda value: _has_parts(value, parts))


def _has_parts(value: str, parts: list[str]) -> bool:
    """Whether a text is the parts in their order, with anything between them."""
    first, *middle = parts
    if not middle:
        return value == first
    last = middle.pop()
    at, end = len(first), len(value) - len(last)
    if at > end or not value.startswith(first) or not value.endswith(last):
        return False
    for part in middle:
        found = value.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _cidr(node: _Node) -> _Filter:
    text = _text(node, "prefix match pattern must be a string")
    address, slash, bits = text.partition("/")
    if not slash or "/" in bits:
        raise _Refused("Malformed CIDR, one '/' required")
    if not bits.isdecimal():
        raise _Refused("Malformed CIDR, mask bits must be an integer")
    try:
        ipaddress.ip_address(address)
    except ValueError:
        raise _Refused(f"Nonstandard IP address: {address}") from None
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise _Refused("Malformed CIDR, mask bits must not exceed the address") from None

    def within(value: str) -> bool:
        try:
            return ipaddress.ip_address(value) in network
        except ValueError:
            return False

    return _of_text(within)


_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "=": lambda value, limit: value == limit,
    "<": lambda value, limit: value < limit,
    "<=": lambda value, limit: value <= limit,
    ">": lambda value, limit: value > limit,
    ">=": lambda value, limit: value >= limit,
}


def _numeric(node: _Node) -> _Filter:
    """Comparisons: one, or a lower limit and then an upper one."""
    if not isinstance(node.value, list):
        raise _Refused("Value of numeric must be an array.", node.end)
    terms = node.value
    comparisons: list[tuple[Callable[[float, float], bool], float]] = []
    for index in range(0, max(len(terms), 1), 2):
        operator = terms[index] if index < len(terms) else None
        if operator is None or not isinstance(operator.value, str):
            reason = "Invalid member in numeric match: " if index == 0 else "Bad value in numeric range: "
            raise _Refused(reason + _shown(operator), operator.end if operator else node.closed)
        if operator.value not in _COMPARISONS:
            raise _Refused(f"Unrecognized numeric range operator: {operator.value}", operator.read)
        if index == 2 and not operator.value.startswith("<"):
            raise _Refused(f"Bad numeric range operator: {operator.value}", operator.read)
        if index == 4 or (index == 2 and not terms[0].value.startswith(">")):
            raise _Refused("Too many terms in numeric range expression", operator.end)
        limit = terms[index + 1] if index + 1 < len(terms) else None
        if limit is None or not limit.is_number:
            raise _Refused(f"Value of {operator.value} must be numeric", limit.end if limit else node.closed)
        comparisons.append((_COMPARISONS[operator.value], limit.value))
    return lambda value: (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and all(compare(value, limit) for compare, limit in comparisons)
    )


def _shown(node: _Node | None) -> str:
    return "]" if node is None else json.dumps(node.value, default=lambda it: it.value)


def _anything_but(node: _Node) -> _Filter:
    if isinstance(node.value, dict):
        if len(node.value) != 1:
            raise _Refused("Only one key allowed in match expression", node.closed)
        (name, operand), *_ = node.value.items()
        excluded = _excluded(name, operand)
    elif isinstance(node.value, list):
        for item in node.value:
            if not item.is_number and not isinstance(item.value, str):
                raise _Refused("Inside anything but list, start|null|boolean is not supported.", item.end, twice=True)
        if len({item.is_number for item in node.value}) != 1:
            raise _Refused(
                "Inside anything but list, either all values are number or string, mixed type is not supported",
                node.closed,
            )
        excluded = [_equal(item.value) for item in node.value]
    elif node.is_number or isinstance(node.value, str):
        excluded = [_equal(node.value)]
    else:
        raise _Refused(_NOT_A_LIST, node.end)
    return lambda value: not any(one(value) for one in excluded)


def _excluded(name: str, operand: _Node) -> list[_Filter]:
    if name == "equals-ignore-case":
        reason = "Inside anything-but/equals-ignore-case list, number|start|null|boolean is not supported."
    elif name in ("prefix", "suffix"):
        reason = "prefix/suffix match pattern must be a string"
    elif name == "wildcard":
        reason = "wildcard match pattern must be a string"
    else:
        raise _Refused(f"Unsupported anything-but pattern: {name}", operand.end)
    many = isinstance(operand.value, list)
    if isinstance(operand.value, dict):
        raise _Refused(_NOT_A_LIST, operand.end)
    if many and not operand.value:
        raise _Refused("Empty arrays are not allowed", operand.closed)
    found: list[_Filter] = []
    for item in operand.value if many else [operand]:
        if not isinstance(item.value, str):
            raise _Refused(reason, item.end, twice=many)
        if name in ("prefix", "suffix") and not item.value:
            raise _Refused("Null prefix/suffix not allowed", item.read, twice=many)
        found.append(_wildcard(item) if name == "wildcard" else _EXCLUDED[name](item.value))
    return found


_EXCLUDED: dict[str, Callable[[str], _Filter]] = {"equals-ignore-case": _folded, "prefix": _starts, "suffix": _ends}
_OPERATORS: dict[str, Callable[[_Node], _Filter]] = {
    "prefix": _affix("prefix", _starts),
    "suffix": _affix("suffix", _ends),
    "equals-ignore-case": lambda node: _folded(_text(node, "equals-ignore-case match pattern must be a string")),
    "wildcard": _wildcard,
    "cidr": _cidr,
    "numeric": _numeric,
    "anything-but": _anything_but,
}


def _collect(value: Any, path: str, arrays: tuple[tuple[str, int], ...], values: dict[str, _Values]) -> None:
    """Collects the values of an event by their paths, each with the elements of arrays that it is in."""
    if isinstance(value, dict):
        for name, item in value.items():
            _collect(item, f"{path}.{name}" if path else name, arrays, values)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            of_object = isinstance(item, dict | list)
            _collect(item, path, (*arrays, (path, index)) if of_object else arrays, values)
    else:
        values.setdefault(path, []).append((value, arrays))


def _all_match(fields: list[tuple[str, Any]], values: dict[str, _Values], places: dict[str, int]) -> bool:
    """Whether each field has a value that matches, all of them in the same elements of arrays."""
    if not fields:
        return True
    (path, filters), *others = fields
    found = values.get(path, [])
    for one in filters:
        if isinstance(one, _Exists) and not one.exists:
            if not found and _all_match(others, values, places):
                return True
            continue
        for value, arrays in found:
            if any(places.get(array, index) != index for array, index in arrays):
                continue
            if (isinstance(one, _Exists) or one(value)) and _all_match(others, values, {**places, **dict(arrays)}):
                return True
    return False
