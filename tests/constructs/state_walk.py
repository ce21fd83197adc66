"""Walks through state machines as Step Functions does, with a clock of its own, and counts the events of their histories."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Of a state that is entered and exited; a Task has three in between, or four where it waits for what it started.
_ENTERED_AND_EXITED = 2
_OF_A_CALL = 3
_OF_A_RUN = 4


@dataclass
class Walk:
    """Executions of ``workflow`` and its ``poller``, whose jobs each run for ``seconds`` and then end as ``status``."""

    workflow: Mapping[str, Any]
    poller: Mapping[str, Any]
    seconds: float
    status: str
    now: float = 0.0
    ends: list[float] = field(default_factory=list)
    histories: dict[str, list[int]] = field(default_factory=lambda: {"workflow": [], "poller": []})
    noticed: list[float] = field(default_factory=list)

    def run(self) -> Walk:
        self._execute("workflow", self.workflow, {})
        return self

    def _execute(self, machine: str, definition: Mapping[str, Any], data: dict[str, Any]) -> None:
        name, events = definition["StartAt"], 2  # ExecutionStarted and its end
        while name:
            state = definition["States"][name]
            events += _ENTERED_AND_EXITED
            entered, name = name, state.get("Next")
            match state["Type"]:
                case "Pass":
                    _put(data, state.get("ResultPath", "$"), _filled(state.get("Parameters", {}), data))
                case "Wait":
                    self.now += _found(data, state["SecondsPath"])
                case "Choice":
                    rules = [rule["Next"] for rule in state["Choices"] if _holds(rule, data)]
                    name = [*rules, state["Default"]][0]
                    if (machine, entered) == ("workflow", "IsOver") and self._status() != "InProgress":
                        self.noticed.append(self.now - self.ends[-1])
                case "Task":
                    events += self._call(state, data)
        self.histories[machine].append(events)

    def _call(self, state: Mapping[str, Any], data: dict[str, Any]) -> int:
        if "startExecution" in state["Resource"]:
            self._execute("poller", self.poller, _filled(state["Parameters"]["Input"], data))
            return _OF_A_RUN
        if "listObjects" in state["Resource"]:
            _put(data, state["ResultPath"], {"Objects": 1})
        elif "create" in state["Resource"]:
            self.ends.append(self.now + self.seconds)
        elif "ResultSelector" in state:
            _put(data, state["ResultPath"], {"Status": self._status()})
        else:
            _put(data, state["ResultPath"], {"TrainingJobStatus": self._status()})
        return _OF_A_CALL

    def _status(self) -> str:
        return self.status if self.now >= self.ends[-1] else "InProgress"


def _found(data: Any, path: str) -> Any:
    for name in path.split(".")[1:]:
        data = data[name]
    return data


def _put(data: dict[str, Any], path: str, value: dict[str, Any]) -> None:
    if path == "$":
        data.clear()
        data.update(value)
        return
    *parents, last = path.split(".")
    _found(data, ".".join(parents))[last] = value


def _filled(parameters: Mapping[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    return {
        name.removesuffix(".$"): _evaluated(value, data) if name.endswith(".$") else value
        for name, value in parameters.items()
    }


def _evaluated(formula: str, data: dict[str, Any]) -> Any:
    if formula.startswith("$."):
        return _found(data, formula)
    added = re.fullmatch(r"States\.MathAdd\((\S+), (\d+)\)", formula)
    return _found(data, added[1]) + int(added[2]) if added else formula


def _holds(rule: Mapping[str, Any], data: dict[str, Any]) -> bool:
    if "And" in rule:
        return all(_holds(each, data) for each in rule["And"])
    value = _found(data, rule["Variable"])
    if "StringEquals" in rule:
        return bool(value == rule["StringEquals"])
    if "NumericLessThan" in rule:
        return bool(value < rule["NumericLessThan"])
    if "NumericEquals" in rule:
        return bool(value == rule["NumericEquals"])
    return bool(value >= rule["NumericGreaterThanEquals"])
