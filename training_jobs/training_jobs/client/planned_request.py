"""The request that an execution would send, with what is known of its input."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_FORMAT = re.compile(r"States\.Format\('(?P<template>(?:[^'\\]|\\.)*)'(?P<arguments>.*)\)$")


def planned_request(request: Any, input: Mapping[str, Any], name: str) -> Any:
    """Return a state's Parameters with their JSONPaths replaced by their values.

    Args:
        request: The Parameters.
        input: The execution's input, with what is known of the workflow's own data as ``Training``.
        name: The execution's name.

    Returns:
        The request; what only the execution itself knows, such as the hash in the job's name, is in angle brackets.
    """
    if isinstance(request, list):
        return [planned_request(item, input, name) for item in request]
    if not isinstance(request, dict):
        return request
    return {
        key.removesuffix(".$"): _value(str(value), input, name)
        if key.endswith(".$")
        else planned_request(value, input, name)
        for key, value in request.items()
    }


def _value(expression: str, input: Mapping[str, Any], name: str) -> Any:
    expression = expression.strip()
    if expression == "$$.Execution.Name":
        return name
    if expression.startswith("'"):
        return expression.strip("'")
    if expression.startswith("$."):
        found = value_at(input, expression[2:])
        return f"<{expression.removeprefix('$.Training.')}>" if found is None else found
    formatted = _FORMAT.match(expression)
    if formatted is not None:
        values = [str(_value(it, input, name)) for it in formatted["arguments"].split(",") if it.strip()]
        parts = formatted["template"].split("{}")
        if len(parts) == len(values) + 1:
            return "".join(part + value for part, value in zip(parts, [*values, ""], strict=True))
    return f"<{expression.removeprefix('$.Training.').removeprefix('$$.')}>"


def value_at(input: Mapping[str, Any], path: str) -> Any:
    """Return a member of an input, or None.

    Args:
        input: The input.
        path: Names with dots between them.
    """
    value: Any = input
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
