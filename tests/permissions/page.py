"""The tables of docs/permissions.md, which is where each permission has its row and its source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "permissions.md"
EXERCISED = ("role", "action", "what for", "without it", "source")
GRANTED = ("role", "action", "why", "source")
LEFT_OUT = ("source", "action", "why not")
SOURCES = ("source", "what it is")


@dataclass(frozen=True)
class Row:
    """That a role has an action, and who says that it needs it: names of the page's table of sources."""

    role: str
    action: str
    sources: tuple[str, ...]
    outcome: str = ""


def exercised(text: str) -> list[Row]:
    """What the local account demands; ``outcome`` is what happens without."""
    return [
        Row(role, action, _names(source), outcome)
        for role, actions, _, outcome, source in _table(text, EXERCISED)
        for action in _names(actions)
    ]


def granted(text: str) -> list[Row]:
    """What is granted besides."""
    return [
        Row(role, action, _names(source))
        for roles, actions, _, source in _table(text, GRANTED)
        for role in roles.split(", ")
        for action in _names(actions)
    ]


def left_out(text: str) -> set[tuple[str, str]]:
    """Source and action of what a source lists and is not granted, each of which has a reason."""
    found = set()
    for source, actions, why in _table(text, LEFT_OUT):
        assert why, f"{PAGE.name} gives no reason for leaving out {actions} of {source}"
        found |= {(name, action) for name in _names(source) for action in _names(actions)}
    return found


def sources(text: str) -> dict[str, str]:
    return {name: what for source, what in _table(text, SOURCES) for name in _names(source)}


def _table(text: str, columns: tuple[str, ...]) -> Iterator[list[str]]:
    """The rows of the table with those columns. Raises ValueError for a row with fewer or more cells."""
    inside = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if tuple(cells) == columns:
            inside = True
        elif not cells:
            inside = False
        elif inside and not set(line) <= set("|- "):
            if len(cells) != len(columns):
                raise ValueError(f"a row of {PAGE.name} must have the cells {' | '.join(columns)}, got {line}")
            yield cells


def _names(cell: str) -> tuple[str, ...]:
    """What stands in a cell between backticks."""
    return tuple(re.findall(r"`([^`]+)`", cell))
