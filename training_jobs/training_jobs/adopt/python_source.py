"""Python expressions as values, and their source text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

WIDTH = 100  # columns
_INDENT = "    "


@dataclass(frozen=True)
class Name:
    """A variable.

    Attributes:
        text: Its name.
    """

    text: str


@dataclass(frozen=True)
class Call:
    """A call, such as ``S3Prefix(bucket, "models/")``.

    Attributes:
        function: What is called, as the source writes it: ``s3.Bucket.from_bucket_name`` needs ``aws_cdk.aws_s3``, ``cdk.Stack``
            ``aws_cdk``, and a name without a dot this library.
        arguments: Positional arguments.
        keywords: Arguments by keyword; those that are None are left out.
    """

    function: str
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict, hash=False)


def source(value: Any, indent: int = 0, reserved: int = 0) -> str:
    """Return the source of an expression, on several lines where one is too long.

    Args:
        value: A ``Name``, a ``Call``, a dict, a list, or a value of JSON.
        indent: Levels of indentation of the line on which it begins.
        reserved: Columns of that line that are taken.
    """
    short = _one_line(value)
    if len(short) + len(_INDENT) * indent + reserved <= WIDTH or not isinstance(value, Call | dict | list):
        return short
    opening, closing = _brackets(value)
    inner = _INDENT * (indent + 1)
    lines = [f"{inner}{before}{source(item, indent + 1, len(before) + 1)}," for before, item in _items(value)]
    return "\n".join([opening, *lines, f"{_INDENT * indent}{closing}"])


def functions(value: Any) -> Iterator[str]:
    """Yield what the calls of an expression call.

    Args:
        value: The expression.
    """
    if isinstance(value, Call):
        yield value.function
    if isinstance(value, Call | dict | list):
        for _, item in _items(value):
            yield from functions(item)
    if isinstance(value, dict):
        for name in value:
            yield from functions(name)


def _one_line(value: Any) -> str:
    if isinstance(value, Name):
        return value.text
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if not isinstance(value, Call | dict | list):
        return repr(value)
    opening, closing = _brackets(value)
    return opening + ", ".join(before + _one_line(item) for before, item in _items(value)) + closing


def _brackets(value: Call | dict[str, Any] | list[Any]) -> tuple[str, str]:
    if isinstance(value, Call):
        return f"{value.function}(", ")"
    return ("{", "}") if isinstance(value, dict) else ("[", "]")


def _items(value: Call | dict[str, Any] | list[Any]) -> Iterator[tuple[str, Any]]:
    """What is between the brackets: each value with what precedes it."""
    if isinstance(value, Call):
        yield from (("", item) for item in value.arguments)
        yield from ((f"{name}=", item) for name, item in value.keywords.items() if item is not None)
    elif isinstance(value, dict):
        yield from ((f"{_one_line(name)}: ", item) for name, item in value.items())
    else:
        yield from (("", item) for item in value)


def _text(text: str) -> str:
    if re.fullmatch(r'[^"\n\r\0]*\\[^"\n\r\0]*[^"\\\n\r\0]', text) and text.isprintable():
        return f'r"{text}"'  # regular expressions
    return json.dumps(text)
