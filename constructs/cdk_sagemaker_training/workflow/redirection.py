"""Transitions of states that lead elsewhere than they were written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def redirected(value: Any, to: Mapping[str, str]) -> Any:
    """Return states, or rules of a Choice, whose transitions lead to other states.

    Args:
        value: The states or rules.
        to: The names of states, by the names that they replace.
    """
    if isinstance(value, list):
        return [redirected(item, to) for item in value]
    if not isinstance(value, dict):
        return value
    moved = {key: item if key == "Parameters" else redirected(item, to) for key, item in value.items()}
    return moved | {key: to[moved[key]] for key in ("Next", "Default") if moved.get(key) in to}
