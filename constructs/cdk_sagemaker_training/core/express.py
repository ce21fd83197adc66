"""States that wait for a job, an execution or an answer, in state machines that a user has made."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from aws_cdk import Stack
from aws_cdk import aws_stepfunctions as sfn

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.lazy import check_at_synthesis


def check_not_express(state: sfn.State) -> None:
    """Have CDK check, when the app is complete, that no express state machine of a stack has such a state.

    Step Functions refuses ``.sync`` and ``.waitForTaskToken`` there ("Choosing workflow type in Step Functions").
    """
    stack = Stack.of(state)
    if stack not in _STATES:
        _STATES[stack] = {}
        check_at_synthesis(stack, functools.partial(_in_express_machines, stack))
    _STATES[stack][state.state_id] = state.node.path


_WAITS = re.compile(r"\.(sync|waitForTaskToken)\b")
_STATES: WeakKeyDictionary[Stack, dict[str, str]] = WeakKeyDictionary()


def _in_express_machines(stack: Stack) -> list[ValueError]:
    """Name the states of a stack that are in its express state machines."""
    machines = [
        child
        for child in stack.node.find_all()
        if isinstance(child, sfn.CfnStateMachine) and child.state_machine_type == "EXPRESS"
    ]
    return [
        must(
            "state_machine_type",
            "be STANDARD for a state that waits for a job, an execution or an answer",
            "sfn.StateMachineType.STANDARD",
            f"EXPRESS of {machine.node.path} with {_STATES[stack][name]}",
        )
        for machine in machines
        for name, state in _states(_definition(stack.resolve(machine.definition_string)))
        if name in _STATES[stack] and _WAITS.search(str(state.get("Resource")))
    ]


def _definition(rendered: Any) -> Any:
    """A definition with 0 for each token, of text or of a number; nothing of one that is elsewhere or not known yet."""
    parts = rendered.get("Fn::Join", ["", []])[1] if isinstance(rendered, Mapping) else [rendered]
    try:
        return json.loads("".join(part if isinstance(part, str) else "0" for part in parts))
    except ValueError:
        return {}


def _states(value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield all states of a definition, with their names."""
    if isinstance(value, Mapping):
        for name, state in value.get("States", {}).items():
            yield name, state
            for inner in (*state.get("Branches", ()), state.get("ItemProcessor"), state.get("Iterator")):
                yield from _states(inner)
