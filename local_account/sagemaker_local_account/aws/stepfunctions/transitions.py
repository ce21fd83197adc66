"""The targets of a definition's transitions: states that do not exist, that nothing leads to, and programs without an end.

AWS's codes, texts and places, as quoted in localstack/localstack issue 11978, serverless-operations/serverless-step-functions
issue 250 and floci-io/floci pull request 2786, whose places in Choices and Catch the ones in Branches follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

#: A code, a text and a place, None for the whole definition.
Finding = tuple[str, str, str | None]


def findings(program: dict[str, Any], path: str = "") -> Iterator[Finding]:
    """Yields what is wrong with the transitions of a program that moto's parser accepts.

    Args:
        program: the definition, or that of a branch or of an item.
        path: its place.
    """
    states = program["States"]
    targets = {name: dict(_targets(state, f"{path}/States/{name}")) for name, state in states.items()}
    for place, target in (
        (f"{path}/StartAt", program["StartAt"]),
        *(it for of in targets.values() for it in of.items()),
    ):
        if target not in states:
            yield "MISSING_TRANSITION_TARGET", f"Missing 'Next' target: {target}", place
    if not path and not any(state.get("End") or state["Type"] in ("Succeed", "Fail") for state in states.values()):
        yield "MISSING_END_STATE", "Workflow has no terminal state", None
    else:
        reached = _reached(program["StartAt"], targets)
        for name in (name for name in states if name not in reached):
            yield "MISSING_TRANSITION_TARGET", f'State "{name}" is not reachable.', f"{path}/States/{name}"
    for name, state in states.items():
        here = f"{path}/States/{name}"
        for index, branch in enumerate(state.get("Branches", [])):
            yield from findings(branch, f"{here}/Branches[{index}]")
        for member in ("ItemProcessor", "Iterator"):
            if member in state:
                yield from findings(state[member], f"{here}/{member}")


def _targets(state: dict[str, Any], place: str) -> Iterator[tuple[str, str]]:
    """The targets of a state by their places."""
    for member in ("Next", "Default"):
        if member in state:
            yield f"{place}/{member}", state[member]
    for member in ("Choices", "Catch"):
        for index, rule in enumerate(state.get(member, [])):
            if "Next" in rule:
                yield f"{place}/{member}[{index}]/Next", rule["Next"]


def _reached(start: str, targets: dict[str, dict[str, str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name in targets and name not in reached:
            reached.add(name)
            waiting += targets[name].values()
    return reached
