"""A state machine as a graph: states in rows by their distance from the first, coloured by what an execution did in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 190, 34, 30, 34, 40
_LONGEST_NAME = 24


@dataclass(frozen=True)
class Node:
    """A state: its box's left upper corner, and its status: "", "running", "succeeded", "retried", "failed" or "stopped"."""

    name: str
    kind: str
    x: int
    y: int
    status: str

    @property
    def label(self) -> str:
        """The name, shortened to the box's width."""
        return self.name if len(self.name) <= _LONGEST_NAME else f"{self.name[: _LONGEST_NAME - 1]}…"


@dataclass(frozen=True)
class Edge:
    """A transition: the path of its line, and whether an error leads along it."""

    path: str
    catches: bool


@dataclass(frozen=True)
class Graph:
    """The drawing; sizes are in pixels."""

    nodes: list[Node]
    edges: list[Edge]
    width: int
    height: int
    box: tuple[int, int] = (_WIDTH, _HEIGHT)


def states_of(events: Iterable[Mapping[str, Any]], status: str) -> dict[str, str]:
    """Returns the status of each state that an execution has entered, in the order of the first entry.

    Args:
        events: of GetExecutionHistory.
        status: the execution's.
    """
    found: dict[str, str] = {}
    current: str | None = None
    for event in events:
        kind = event["type"]
        if kind.endswith("StateEntered"):
            current = str(event["stateEnteredEventDetails"]["name"])
            found[current] = "running"
        elif kind.endswith("StateExited"):
            name = str(event["stateExitedEventDetails"]["name"])
            found[name] = "retried" if found.get(name) == "retried" else "succeeded"
        elif kind.endswith(("Failed", "TimedOut")) and not kind.startswith("Execution") and current is not None:
            found[current] = "retried"  # unless it was the end
    if current is not None and found[current] in ("running", "retried") and status != "RUNNING":
        ended = {"SUCCEEDED": "succeeded", "ABORTED": "stopped"}.get(status, "failed")
        found[current] = ended if not (found[current] == "retried" and status == "SUCCEEDED") else "retried"
    return found


def graph_of(definition: Mapping[str, Any], visited: Mapping[str, str]) -> Graph:
    """Returns the drawing of a definition; the states within a Map or Parallel state are not drawn.

    Args:
        definition: in the Amazon States Language.
        visited: the status of states by name.
    """
    states: Mapping[str, Mapping[str, Any]] = definition["States"]
    rows = _rows(definition["StartAt"], states)
    widest = max(len(row) for row in rows)
    width = widest * (_WIDTH + _GAP_X) - _GAP_X + 2 * _MARGIN
    nodes: dict[str, Node] = {}
    for number, row in enumerate(rows):
        left = (width - (len(row) * (_WIDTH + _GAP_X) - _GAP_X)) // 2
        for place, name in enumerate(row):
            x, y = left + place * (_WIDTH + _GAP_X), _MARGIN // 2 + number * (_HEIGHT + _GAP_Y)
            nodes[name] = Node(name, str(states[name].get("Type", "")), x, y, visited.get(name, ""))
    edges = [
        Edge(_path(nodes[name], nodes[following]), catches)
        for name in nodes
        for following, catches in _followers(states[name])
        if following in nodes
    ]
    return Graph(list(nodes.values()), edges, width, len(rows) * (_HEIGHT + _GAP_Y) - _GAP_Y + _MARGIN)


def entered(definition: Mapping[str, Any], visited: Mapping[str, str]) -> dict[str, Any]:
    """Returns a definition with the states alone that an execution has entered; all where it has entered none.

    Args:
        definition: in the Amazon States Language.
        visited: the status of states by name.
    """
    states = {name: state for name, state in definition["States"].items() if name in visited}
    return {**definition, "States": states} if definition["StartAt"] in states else {**definition}


def _rows(first: str, states: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Breadth first, so that a loop ends."""
    rows, seen = [[first]], {first}
    while rows[-1]:
        row = []
        for name in rows[-1]:
            for following, _ in _followers(states[name]):
                if following in states and following not in seen:
                    seen.add(following)
                    row.append(following)
        rows.append(row)
    return rows[:-1]


def _followers(state: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """The names of the states that may follow, and whether after an error."""
    normal: Sequence[Any] = [
        state.get("Next"),
        *(it.get("Next") for it in state.get("Choices", [])),
        state.get("Default"),
    ]
    for name in dict.fromkeys(it for it in normal if it is not None):
        yield str(name), False
    for name in dict.fromkeys(it["Next"] for it in state.get("Catch", [])):
        yield str(name), True


def _path(one: Node, other: Node) -> str:
    """Downwards from the lower to the upper edge; otherwise around the right sides."""
    if other.y > one.y:
        x1, y1, x2, y2 = one.x + _WIDTH // 2, one.y + _HEIGHT, other.x + _WIDTH // 2, other.y
        middle = (y1 + y2) // 2
        return f"M{x1} {y1} C{x1} {middle} {x2} {middle} {x2} {y2}"
    x1, y1, x2, y2 = one.x + _WIDTH, one.y + _HEIGHT // 2, other.x + _WIDTH, other.y + _HEIGHT // 2
    out = max(x1, x2) + _GAP_X // 2 + _MARGIN // 2
    return f"M{x1} {y1} C{out} {y1} {out} {y2} {x2} {y2}"
