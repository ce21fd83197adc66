"""Walks through state machines as Step Functions does, with a clock of its own, and counts the events of their histories."""

from __future__ import annotations

import json
import marshal
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

OF_AN_EXECUTION = 2  # ExecutionStarted and its end
# Of a state that is entered and exited; a Task has three in between, or four where it waits for what it started.
ENTERED_AND_EXITED = 2
OF_A_CALL = 3
_OF_A_RUN = 4


@dataclass
class Walk:
    """Executions of ``workflow`` and its ``poller``, whose jobs each run for ``seconds`` and then end as ``status``.

    Failed ones have ``reason``, and the time for which they ran where it is ``billed``; ``watched`` ones train all the while;
    ``look`` answers the poller's function, of its payload, None where it fails; ``limits`` are their MaxRuntimeInSeconds, where
    an execution computes it. The first ``refused`` calls that create a job fail with ``refusal``, a pair of error and message;
    each stands for all calls that are repeated at once, unless it ``repeats``.
    """

    workflow: Mapping[str, Any]
    poller: Mapping[str, Any]
    seconds: float
    status: str
    reason: str = ""
    refusal: tuple[str, str] = ("", "")
    refused: int = 0
    repeats: bool = False
    billed: bool = False
    watched: bool = False
    look: Callable[[Any], dict[str, Any] | None] = lambda given: {"Because": "", "State": given["State"]}
    visited: list[str] = field(default_factory=list)
    now: float = 0.0
    ends: list[float] = field(default_factory=list)
    histories: dict[str, list[int]] = field(default_factory=lambda: {"workflow": [], "poller": []})
    noticed: list[float] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)
    transitions: int = 0
    largest: int = 0  # characters of a state's input
    _request: Mapping[str, Any] = field(default_factory=dict)

    def run(self) -> Walk:
        self._execute("workflow", self.workflow, {})
        return self

    def _execute(self, machine: str, definition: Mapping[str, Any], data: dict[str, Any]) -> None:
        name, events = definition["StartAt"], OF_AN_EXECUTION
        while name:
            state = definition["States"][name]
            events += ENTERED_AND_EXITED
            self.transitions += 1
            if machine == "workflow":
                self.visited.append(name)
            entered, name = name, state.get("Next")
            match state["Type"]:
                case "Pass":
                    result = state["Result"] if "Result" in state else _filled(state.get("Parameters", {}), data)
                    if "InputPath" in state:
                        result = _copy(_found(data, state["InputPath"]))
                    _put(data, state.get("ResultPath", "$"), result)
                case "Wait":
                    self.now += _found(data, state["SecondsPath"]) if "SecondsPath" in state else state["Seconds"]
                case "Choice":
                    rules = [rule["Next"] for rule in state["Choices"] if _holds(rule, data)]
                    name = [*rules, state["Default"]][0]
                    if (machine, entered) == ("workflow", "IsOver") and self._status() != "InProgress":
                        self.noticed.append(self.now - self.ends[-1])
                case "Task":
                    events += self._call(state, data)
                    if machine == "workflow":
                        self.largest = max(self.largest, len(json.dumps(data)))
                    if self._fails(state, data):
                        name = state["Catch"][0]["Next"]
        self.histories[machine].append(events)

    def _fails(self, state: Mapping[str, Any], data: dict[str, Any]) -> bool:
        """Whether a call fails: what creates a job, or describes one that was not created."""
        if "createTrainingJob" in state["Resource"] and self.refused > 0:
            self.refused -= 1
            self.ends.pop()
            _put(data, state["Catch"][0]["ResultPath"], dict(zip(("Error", "Cause"), self.refusal, strict=True)))
            if not self.repeats and "Repeated" in data["Training"]:
                data["Training"]["Repeated"] = {"Wait": 512, "Seconds": 0, "Calls": 60}
            self._missing = True
            return True
        if "createTrainingJob" in state["Resource"]:
            self._missing = False
        if "lambda" in state["Resource"]:
            return self._look_failed
        if self._missing and "describeTrainingJob" in state["Resource"]:
            error = {"Error": "SageMaker.SageMakerException", "Cause": "Requested resource not found."}
            _put(data, state["Catch"][0]["ResultPath"], error)
            return True
        return False

    _missing = _look_failed = _stopped = False

    def _call(self, state: Mapping[str, Any], data: dict[str, Any]) -> int:
        if "startExecution" in state["Resource"]:
            polled = _filled(state["Parameters"]["Input"], data)
            self._execute("poller", self.poller, polled)
            _put(data, state["ResultPath"], _filled(state["ResultSelector"], {"ExecutionArn": "", "Output": polled}))
            return _OF_A_RUN
        if "listObjects" in state["Resource"]:
            _put(data, state["ResultPath"], {"Objects": 1})
        elif "create" in state["Resource"]:
            condition = state["Parameters"].get("StoppingCondition", {})
            self.limits += [_found(data, path) for name, path in condition.items() if name == "MaxRuntimeInSeconds.$"]
            self._request = state["Parameters"]
            self.ends.append(self.now + self.seconds)
            self._stopped = False
            if state["Resource"].endswith(".sync") and not self.refused:
                self.now = self.ends[-1]
                _put(data, state["ResultPath"], self._job())
        elif "lambda" in state["Resource"]:
            answer = self.look(_filled(state["Parameters"]["Payload"], data))
            self._look_failed = answer is None
            if answer is not None:
                _put(data, state["ResultPath"], _filled(state["ResultSelector"], {"Payload": answer}))
        elif "stopTrainingJob" in state["Resource"] and self.watched:
            self.ends[-1], self._stopped = self.now, True
        elif "ResultSelector" in state:
            secondary = {"Secondary": "Training"} if self.watched else {}
            _put(data, state["ResultPath"], {"Status": self._status(), **secondary})
        else:
            _put(data, state["ResultPath"], self._job())
        return OF_A_CALL

    def _job(self) -> dict[str, Any]:
        """A job's description, which repeats its request (API, DescribeTrainingJob)."""
        times = ("BillableTimeInSeconds", "TrainingTimeInSeconds")
        billed = {name: int(self.seconds) for name in times if self.billed}
        status = self._status()
        return {
            **self._request,
            "TrainingJobStatus": status,
            "SecondaryStatus": status,
            "FailureReason": self.reason,
            **billed,
        }

    def _status(self) -> str:
        ended = "Stopped" if self._stopped else self.status
        return ended if self.ends and self.now >= self.ends[-1] else "InProgress"


@cache
def _names(path: str) -> tuple[str, ...]:
    """The names in a path like ``$.Training.Job``."""
    return tuple(path.replace("[", ".").replace("]", "").split(".")[1:])


@cache
def _sum(formula: str) -> tuple[str, int] | None:
    """The path and the number that a formula adds, None of any other formula."""
    added = re.fullmatch(r"States\.MathAdd\((\S+), (\d+)\)", formula)
    return (added[1], int(added[2])) if added else None


def _copy(value: Any) -> Any:
    """As copy.deepcopy does for what JSON holds, which takes most of a walk's time."""
    return marshal.loads(marshal.dumps(value))


def _found(data: Any, path: str) -> Any:
    for name in _names(path):
        data = _part(data, name)
    return data


def _part(data: Any, name: str) -> Any:
    if isinstance(data, list):
        return data[int(name[:-1]) :] if name.endswith(":") else data[int(name)]
    return data[name]


def _put(data: dict[str, Any], path: str, value: dict[str, Any]) -> None:
    if path == "$":
        data.clear()
        data.update(value)
        return
    *parents, last = _names(path)
    for name in parents:
        data = data[name]
    data[last] = value


def _filled(parameters: Mapping[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    filled = {
        name.removesuffix(".$"): _evaluated(value, data) if name.endswith(".$") else value
        for name, value in parameters.items()
    }
    return _copy(filled)


def _evaluated(formula: str, data: dict[str, Any]) -> Any:
    if formula.startswith("$."):
        return _found(data, formula)
    if formula.startswith("States.ArrayGetItem("):
        array, index = formula.removeprefix("States.ArrayGetItem(").removesuffix(")").split(", ")
        return _found(data, array)[_found(data, index)]
    taken = re.fullmatch(r"States\.MathAdd\((\S+), States\.StringToJson\(States\.Format\('-\{\}', (\S+)\)\)\)", formula)
    if taken:
        return _found(data, taken[1]) - _found(data, taken[2])
    random = re.fullmatch(r"States\.MathRandom\(1, (.+)\)", formula)
    if random:
        return _evaluated(random[1], data)
    both = re.fullmatch(r"States\.MathAdd\((\$\S+), (\$\S+)\)", formula)
    if both:
        return _found(data, both[1]) + _found(data, both[2])
    added = _sum(formula)
    return _found(data, added[0]) + added[1] if added else formula


def _holds(rule: Mapping[str, Any], data: dict[str, Any]) -> bool:
    if "And" in rule:
        return all(_holds(each, data) for each in rule["And"])
    if "Or" in rule:
        return any(_holds(each, data) for each in rule["Or"])
    if "Not" in rule:
        return not _holds(rule["Not"], data)
    if "IsPresent" in rule:
        try:
            _found(data, rule["Variable"])
        except (KeyError, IndexError):
            return not rule["IsPresent"]
        return bool(rule["IsPresent"])
    value = _found(data, rule["Variable"])
    if "IsBoolean" in rule:
        return isinstance(value, bool) is rule["IsBoolean"]
    if "StringMatches" in rule:
        return bool(re.fullmatch(".*".join(map(re.escape, rule["StringMatches"].split("*"))), value, re.DOTALL))
    if "StringEquals" in rule:
        return bool(value == rule["StringEquals"])
    if "NumericLessThan" in rule:
        return bool(value < rule["NumericLessThan"])
    if "NumericEquals" in rule:
        return bool(value == rule["NumericEquals"])
    if "NumericGreaterThan" in rule:
        return bool(value > rule["NumericGreaterThan"])
    return bool(value >= rule["NumericGreaterThanEquals"])
