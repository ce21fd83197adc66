"""Step Functions as a function: what an execution does next on an event, without threads, clocks or I/O.

``start`` and ``step`` return the next execution, which is plain immutable data; ``wants`` says what it waits for. States that
wait for nothing (Pass, Choice, Succeed, Fail) are run at once. Source: "Amazon States Language" (states-language.net) and AWS's
guide, "Handling errors in Step Functions workflows" and "Transforming data with JSONata in Step Functions". What it does not know
is refused by name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from training_jobs.prove import jsonata
from training_jobs.prove.values import Scope, StateError, UnsupportedError, evaluated, filled, holds, put

_AT_ONCE = 10_000  # states in a row that wait for nothing: more are a loop that never ends
_STATES = ("Pass", "Choice", "Succeed", "Fail", "Wait", "Task", "Parallel", "Map")
_LANGUAGES = ("JSONPath", "JSONata")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_NUMBER = re.compile(r"\d+(\.\d+)?")
# Of a Map state: the paths to numbers, which may be texts, and the largest.
_NUMBERS = {
    "MaxConcurrencyPath": math.inf,
    "ToleratedFailureCountPath": math.inf,
    "ToleratedFailurePercentagePath": 100,
}
Address = tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """An execution waits for the answer to a call.

    Attributes:
        at: Of the position that waits: the index of the branch or item, level by level; empty outside them.
        state: The state's name.
        resource: The state's `Resource`.
        parameters: The request.
        tries: How often the state was retried since it was entered.
    """

    at: Address
    state: str
    resource: str
    parameters: Any
    tries: int


@dataclass(frozen=True)
class Timer:
    """An execution waits for some seconds: a Wait state, or the interval before a retry.

    ``seconds`` is None where the state waits for a time of day.
    """

    at: Address
    state: str
    seconds: float | None
    retries: bool


@dataclass(frozen=True)
class Answered:
    """A call succeeded."""

    at: Address
    result: Any


@dataclass(frozen=True)
class Failed:
    """A call failed; with ``lasting`` it fails for as long as the retriers of its state last."""

    at: Address
    error: str
    cause: str
    lasting: bool = False


@dataclass(frozen=True)
class Elapsed:
    """A timer has elapsed."""

    at: Address


@dataclass(frozen=True)
class Ended:
    """The execution is ended from outside, as "ABORTED" or "TIMED_OUT"."""

    status: str


Event = Answered | Failed | Elapsed | Ended


@dataclass(frozen=True)
class Position:
    """Where a program is: the state that waits, its input, and its branches or items; ``done`` once the program has ended."""

    path: tuple[str | int, ...]
    state: str = ""
    data: Any = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    item: Any = None  # of the Map around it: its index and value
    child: str = ""  # of a Distributed Map's item: what the ARN of its own execution ends with
    given: Any = None  # its input
    tries: tuple[int, ...] = ()
    waits: float | None = None  # seconds until the state is tried again
    children: tuple[Position, ...] = ()
    done: bool = False
    failed: bool = False  # of an item whose failure is tolerated; ``done`` too


@dataclass(frozen=True)
class Execution:
    """An execution as data: a definition, the context, where it is, and how it ended.

    Attributes:
        definition: Of its state machine.
        context: The context object, `$$`.
        top: Where it is; its ``data`` is the output at the end.
        status: As DescribeExecution has it.
    """

    definition: Mapping[str, Any]
    context: Mapping[str, Any]
    top: Position
    status: str = "RUNNING"
    error: str = ""
    cause: str = ""

    @property
    def state(self) -> str:
        """The name of the state that it is in."""
        return self.top.state

    @cached_property
    def key(self) -> str:
        """What distinguishes it from others of its context, as text, in one process."""
        return repr((id(self.definition), self.status, self.error, self.cause, self.top))

    @cached_property
    def waits(self) -> list[Call | Timer]:
        """As ``wants`` returns it."""
        return list(_wants(self, self.top, ())) if self.status == "RUNNING" else []


def start(definition: Mapping[str, Any], given: Any, context: Mapping[str, Any]) -> Execution:
    """An execution that has just been started, up to the first state that waits."""
    check(definition)
    execution = Execution(definition, context, Position(()))
    return _run(execution, lambda: _enter(execution, Position((), definition["StartAt"], given)))


def step(execution: Execution, event: Event) -> Execution:
    """The execution after an event, up to the next state that waits; one that has ended does not change."""
    if execution.status != "RUNNING":
        return execution
    if isinstance(event, Ended):
        return replace(execution, status=event.status)
    return _run(execution, lambda: _at(execution, execution.top, event.at, event))


def wants(execution: Execution) -> list[Call | Timer]:
    """What a running execution waits for, in the order of its branches."""
    return execution.waits


def check(definition: Mapping[str, Any], path: str = "") -> None:
    """Raise ``UnsupportedError`` for what the evaluator does not know or what is not a definition."""
    if definition.get("QueryLanguage", "JSONPath") not in _LANGUAGES:
        raise UnsupportedError(f"QueryLanguage must be one of {_LANGUAGES}, got {definition['QueryLanguage']!r}")
    states = definition.get("States")
    if not isinstance(states, dict) or definition.get("StartAt") not in states:
        raise UnsupportedError(f"StartAt must name one of States, got {definition.get('StartAt')!r}")
    for name, state in states.items():
        here = f"{path}{name}"
        if state.get("Type") not in _STATES:
            raise UnsupportedError(
                f"the Type of the state {here!r} must be one of {', '.join(_STATES)}, got {state.get('Type')!r}"
            )
        if state.get("QueryLanguage", "JSONPath") not in _LANGUAGES:
            raise UnsupportedError(
                f"the QueryLanguage of the state {here!r} must be one of {_LANGUAGES}, got {state['QueryLanguage']!r}"
            )
        for member in ("ItemBatcher", "ResultWriter"):
            if member in state:
                raise UnsupportedError(f"{member} of the state {here!r} is not known")
        if "ItemReader" in state and not is_distributed(state):
            raise UnsupportedError(f"ItemReader of the state {here!r} must be of a Distributed Map")
        targets = [
            state.get("Next"),
            state.get("Default"),
            *(one.get("Next") for one in [*state.get("Choices", []), *state.get("Catch", [])]),
        ]
        for target in targets:
            if target is not None and target not in states:
                raise UnsupportedError(f"Next of the state {here!r} must name a state, got {target!r}")
        for inner in [
            *state.get("Branches", []),
            *(state[one] for one in ("ItemProcessor", "Iterator") if one in state),
        ]:
            check(inner, f"{here}/")


def is_distributed(state: Mapping[str, Any]) -> bool:
    """Whether a state is a Distributed Map, each item of which is an execution of its own."""
    return bool(state.get("ItemProcessor", {}).get("ProcessorConfig", {}).get("Mode") == "DISTRIBUTED")


def _run(execution: Execution, go: Any) -> Execution:
    try:
        top = go()
    except _FailedError as error:
        return replace(execution, status="FAILED", error=error.error, cause=error.cause)
    return replace(execution, top=top, status="SUCCEEDED" if top.done else "RUNNING")


class _FailedError(Exception):
    """A program failed: a Fail state, or an error that nothing caught."""

    def __init__(self, error: str, cause: str) -> None:
        super().__init__(error)
        self.error, self.cause = error, cause


def _program(execution: Execution, path: tuple[str | int, ...]) -> Mapping[str, Any]:
    program: Any = execution.definition
    for name in path:
        program = program[name]
    return dict(program)


def _state(execution: Execution, position: Position) -> Mapping[str, Any]:
    return dict(_program(execution, position.path)["States"][position.state])


def _in_jsonata(execution: Execution, state: Mapping[str, Any]) -> bool:
    language = state.get("QueryLanguage", execution.definition.get("QueryLanguage"))
    return bool(language == "JSONata")


def _jsonata(execution: Execution, position: Position, template: Any, **states: Any) -> Any:
    """A template in JSONata, filled; ``states`` are members of `$states` beside the input and the context object."""
    context = _scope(execution, position, None).context
    bindings = {**position.variables, "states": {"input": position.data, "context": context, **states}}
    return jsonata.filled(template, bindings)


def _scope(execution: Execution, position: Position, data: Any) -> Scope:
    retries = {"RetryCount": sum(position.tries)}
    context = {"State": {"Name": position.state, "EnteredTime": "2026-01-01T00:00:00Z", **retries}, **execution.context}
    if ".waitForTaskToken" in _state(execution, position).get("Resource", ""):
        context["Task"] = {"Token": "token"}
    if position.child:
        of = context["Execution"]
        context["Execution"] = {**of, "Id": f"{of['Id'].rpartition(':')[0]}/{position.child}"}
    if position.item is not None:
        context["Map"] = {"Item": {"Index": position.item[0], "Value": position.item[1]}}
    return Scope(data, context, position.variables)


def _input(execution: Execution, position: Position) -> Any:
    state = _state(execution, position)
    if _in_jsonata(execution, state):
        return position.data
    path = state.get("InputPath", "$")
    return {} if path is None else _scope(execution, position, position.data).found(path)


def _request(execution: Execution, position: Position) -> Any:
    """The state's input with its InputPath and its Parameters, or its Arguments, applied."""
    given, state = _input(execution, position), _state(execution, position)
    if _in_jsonata(execution, state):
        return _jsonata(execution, position, state["Arguments"]) if "Arguments" in state else given
    return filled(state["Parameters"], _scope(execution, position, given)) if "Parameters" in state else given


def _enter(execution: Execution, position: Position) -> Position:
    """The position once a state has been entered that waits, or the program has ended."""
    for _ in range(_AT_ONCE):
        state = _state(execution, position)
        try:
            following = _entered(execution, position, state)
        except StateError as error:
            following = _error(execution, position, error.error, error.cause)
        if following is None:
            return position
        if following.done or following.children or following.waits is not None:
            return following
        position = following
    raise _FailedError("States.Runtime", f"the state {position.state!r} is in a loop that waits for nothing")


def _entered(execution: Execution, position: Position, state: Mapping[str, Any]) -> Position | None:
    """The position after a state that waits for nothing, None for one that does."""
    kind = state["Type"]
    if kind == "Task":
        _request(execution, position)  # an error in it belongs to the state
        return None
    if kind == "Wait":
        _seconds(execution, position)
        return None
    if "ItemReader" in state:
        _reading(execution, position, state)
        return None
    if kind == "Pass":
        return _exit(execution, position, state.get("Result", _request(execution, position)))
    if kind in ("Succeed", "Fail", "Choice") and _in_jsonata(execution, state):
        return _entered_in_jsonata(execution, position, state)
    if kind == "Succeed":
        scope = _scope(execution, position, _input(execution, position))
        return replace(position, data=scope.found(state.get("OutputPath") or "$"), done=True)
    if kind == "Fail":
        scope = _scope(execution, position, position.data)
        error = evaluated(state["ErrorPath"], scope) if "ErrorPath" in state else state.get("Error", "")
        cause = evaluated(state["CausePath"], scope) if "CausePath" in state else state.get("Cause", "")
        raise _FailedError(error, cause)
    if kind == "Choice":
        scope = _scope(execution, position, _input(execution, position))
        rule = next((rule for rule in state["Choices"] if holds(rule, scope)), None)
        if rule is None and "Default" not in state:
            raise StateError("States.NoChoiceMatched", f"no rule of the state {position.state!r} holds")
        target = rule["Next"] if rule is not None else state["Default"]
        assigned = _assigned(rule if rule is not None and "Assign" in rule else state, position, scope)
        return _moved(position, target, scope.data, assigned)
    return _branch(execution, position, state)


def _entered_in_jsonata(execution: Execution, position: Position, state: Mapping[str, Any]) -> Position:
    """The position after a Succeed, Fail or Choice state in JSONata."""
    if state["Type"] == "Succeed":
        return replace(position, data=_jsonata(execution, position, state.get("Output", position.data)), done=True)
    if state["Type"] == "Fail":
        error, cause = (_jsonata(execution, position, state.get(member, "")) for member in ("Error", "Cause"))
        raise _FailedError(error, cause)
    for rule in state["Choices"]:
        holds = _jsonata(execution, position, rule["Condition"])
        if not isinstance(holds, bool):
            raise StateError(
                "States.QueryEvaluationError", f"a Condition of {position.state!r} is no boolean: {holds!r}"
            )
        if holds:
            return _chosen(execution, position, rule, rule["Next"])
    if "Default" not in state:
        raise StateError("States.NoChoiceMatched", f"no rule of the state {position.state!r} holds")
    return _chosen(execution, position, state, state["Default"])


def _chosen(execution: Execution, position: Position, of: Mapping[str, Any], target: str, **states: Any) -> Position:
    """The position that a rule, a Default, a Catch or the end of a state leads to, each with its Output and its Assign."""
    data = states.get("errorOutput", states.get("result", position.data))
    data = _jsonata(execution, position, of["Output"], **states) if "Output" in of else data
    assigned = _jsonata(execution, position, of.get("Assign", {}), **states)
    return _moved(position, target, data, {**position.variables, **assigned})


def _branch(execution: Execution, position: Position, state: Mapping[str, Any]) -> Position:
    """The position inside a Parallel or Map state."""
    inside: tuple[str | int, ...] = (*position.path, "States", position.state)
    entered = {"variables": position.variables, "item": position.item, "child": position.child, "given": position.given}
    if state["Type"] == "Parallel":
        given = _request(execution, position)
        starts = [
            Position((*inside, "Branches", at), one["StartAt"], given, **entered)
            for at, one in enumerate(state["Branches"])
        ]
    else:
        given = _input(execution, position)
        scope = _scope(execution, position, given)
        items = (
            _jsonata(execution, position, state.get("Items", given))
            if _in_jsonata(execution, state)
            else scope.found(state.get("ItemsPath", "$"))
        )
        if not isinstance(items, list):
            raise StateError("States.Runtime", f"the items of the state {position.state!r} are not an array")
        starts = _items(execution, position, state, items)
    return _started(execution, position, starts)


def _items(execution: Execution, position: Position, state: Mapping[str, Any], items: Sequence[Any]) -> list[Position]:
    """The positions of a Map's items before their first states."""
    member = "ItemProcessor" if "ItemProcessor" in state else "Iterator"
    given = _input(execution, position)
    scope = _scope(execution, position, given)
    for path, most in _NUMBERS.items():
        number = scope.found(state[path]) if path in state else 0
        if isinstance(number, bool) or not _NUMBER.fullmatch(str(number)) or float(number) > most:
            raise _wrong(position, path, "a number that is not negative", number)
    starts = []
    for at, item in enumerate(items):
        one = replace(position, item=(at, item))
        selector = state.get("ItemSelector", state.get("Parameters"))
        if _in_jsonata(execution, state):
            data = item if selector is None else _jsonata(execution, one, selector)
        else:
            data = item if selector is None else filled(selector, _scope(execution, one, given))
        own = is_distributed(state)
        starts.append(
            Position(
                (*position.path, "States", position.state, member),
                state[member]["StartAt"],
                data,
                {} if own else position.variables,
                (at, item),
                child=f"{state.get('Label', position.state)}:item-{at}" if own else position.child,
                given=data if own else position.given,
            )
        )
    return starts


def _reading(execution: Execution, position: Position, state: Mapping[str, Any]) -> tuple[str, Any]:
    """The Resource and the request of a Map's ItemReader, whose answer is the items."""
    reader = state["ItemReader"]
    if _in_jsonata(execution, state):
        return reader["Resource"], _jsonata(execution, position, reader.get("Arguments", {}))
    scope = _scope(execution, position, _input(execution, position))
    return reader["Resource"], filled(reader.get("Parameters", {}), scope)


def _started(execution: Execution, position: Position, starts: list[Position]) -> Position:
    """The position inside a state with branches or items, at their first states that wait."""
    if not starts:
        return _exit(execution, position, [])
    state = _state(execution, position)
    children = []
    for one in starts:
        try:
            children.append(_enter(execution, one))
        except _FailedError as error:
            if not is_distributed(state):
                return _error(execution, position, error.error, error.cause)
            children.append(replace(one, done=True, failed=True))
    return _joined(execution, replace(position, children=tuple(children)))


def _joined(execution: Execution, position: Position) -> Position:
    failed = sum(child.failed for child in position.children)
    if failed > _tolerated(execution, position):
        cause = "The specified tolerated failure threshold was exceeded"
        return _error(execution, position, "States.ExceedToleratedFailureThreshold", cause)
    if all(child.done for child in position.children):
        return _exit(execution, position, [child.data for child in position.children if not child.failed])
    return position


def _tolerated(execution: Execution, position: Position) -> float:
    """How many items of a Distributed Map may fail: one that is not given is 0, but where the other is.

    "Setting failure thresholds for Distributed Map states" (Step Functions guide).
    """
    state, found = _state(execution, position), []
    scope = _scope(execution, position, _input(execution, position))
    for member, of_one in (("Count", 1.0), ("Percentage", len(position.children) / 100)):
        name = f"ToleratedFailure{member}"
        given = scope.found(state[f"{name}Path"]) if f"{name}Path" in state else state.get(name)
        if jsonata.is_expression(given):
            given = _jsonata(execution, position, given)
        if given is not None:
            found.append(float(given) * of_one)
    return min(found, default=0.0)


def _at(execution: Execution, position: Position, at: Address, event: Answered | Failed | Elapsed) -> Position:
    """The position after an event at an address, and after all states that then wait for nothing."""
    if at:
        children = list(position.children)
        try:
            children[at[0]] = _at(execution, children[at[0]], at[1:], event)
        except _FailedError as error:
            if not is_distributed(_state(execution, position)):
                return _settled(execution, _error(execution, position, error.error, error.cause))
            children[at[0]] = replace(children[at[0]], children=(), done=True, failed=True)
        return _settled(execution, _joined(execution, replace(position, children=tuple(children))))
    try:
        if isinstance(event, Answered):
            following = _answered(execution, position, event.result)
        elif isinstance(event, Failed):
            following = _error(execution, position, event.error, event.cause, event.lasting)
        elif position.waits is not None:
            following = replace(position, waits=None)
        else:
            following = _exit(execution, position, _input(execution, position))
    except StateError as error:
        following = _error(execution, position, error.error, error.cause)
    return _settled(execution, following)


def _answered(execution: Execution, position: Position, result: Any) -> Position:
    """The position after the answer of a call, which of an ItemReader is the items."""
    state = _state(execution, position)
    if "ItemReader" in state:
        return _started(execution, position, _items(execution, position, state, result))
    return _exit(execution, position, result)


def _settled(execution: Execution, position: Position) -> Position:
    if position.done or position.children or position.waits is not None:
        return position
    return _enter(execution, position)


def _moved(position: Position, target: str, data: Any, variables: Mapping[str, Any]) -> Position:
    return replace(position, state=target, data=data, variables=variables, tries=(), waits=None, children=())


def _exit(execution: Execution, position: Position, result: Any) -> Position:
    """The position after a state that has a result."""
    state = _state(execution, position)
    if _in_jsonata(execution, state):
        states = {} if state["Type"] in ("Pass", "Wait") else {"result": result}
        over = _chosen(execution, position, state, state.get("Next", ""), **states)
        return over if "Next" in state else replace(over, state=position.state, done=True)
    if "ResultSelector" in state:
        result = filled(state["ResultSelector"], _scope(execution, position, result))
    variables = _assigned(state, position, _scope(execution, position, result))
    data = result if state["Type"] == "Wait" else put(position.data, state.get("ResultPath", "$"), result)
    path = state.get("OutputPath", "$")
    data = {} if path is None else _scope(execution, position, data).found(path)
    if "Next" in state:
        return _moved(position, state["Next"], data, variables)
    return replace(position, data=data, tries=(), waits=None, children=(), done=True)


def _assigned(state: Mapping[str, Any], position: Position, scope: Scope) -> Mapping[str, Any]:
    return {**position.variables, **filled(state["Assign"], scope)} if "Assign" in state else position.variables


def _error(execution: Execution, position: Position, error: str, cause: str, lasting: bool = False) -> Position:
    """The position after an error of its state: before a retry, where a Catch leads, or the program's failure."""
    state = _state(execution, position)
    retriers = state.get("Retry", [])
    tries = position.tries or (0,) * len(retriers)
    for at, retrier in enumerate(retriers):
        if _matches(retrier["ErrorEquals"], error):
            if tries[at] < retrier.get("MaxAttempts", 3) and not lasting:
                counted = (*tries[:at], tries[at] + 1, *tries[at + 1 :])
                seconds = retrier.get("IntervalSeconds", 1) * retrier.get("BackoffRate", 2) ** tries[at]
                seconds = min(seconds, retrier.get("MaxDelaySeconds", seconds))
                return replace(position, tries=counted, waits=seconds, children=())
            break
    for catcher in state.get("Catch", []):
        if _matches(catcher["ErrorEquals"], error):
            if _in_jsonata(execution, state):
                output = {"Error": error, "Cause": cause}
                return _chosen(execution, position, catcher, catcher["Next"], errorOutput=output)
            scope = _scope(execution, position, {"Error": error, "Cause": cause})
            data = put(position.data, catcher.get("ResultPath", "$"), scope.data)
            return _moved(position, catcher["Next"], data, _assigned(catcher, position, scope))
    raise _FailedError(error, cause)


def _matches(names: list[str], error: str) -> bool:
    """Whether a Retry or Catch takes an error: nothing takes `States.Runtime`, which always ends the execution."""
    if error == "States.Runtime":
        return False
    task = error not in ("States.Timeout", "States.NoChoiceMatched", "States.DataLimitExceeded")
    return error in names or "States.ALL" in names or ("States.TaskFailed" in names and task)


def _wrong(position: Position, member: str, needed: str, got: Any) -> StateError:
    return StateError("States.Runtime", f"{member} of the state {position.state!r} must lead to {needed}, got {got!r}")


def _seconds(execution: Execution, position: Position) -> float | None:
    state = _state(execution, position)
    if jsonata.is_expression(state.get("Seconds")):
        return float(_jsonata(execution, position, state["Seconds"]))
    if "SecondsPath" in state:
        seconds = _scope(execution, position, _input(execution, position)).found(state["SecondsPath"])
        if not isinstance(seconds, int) or seconds < 0:
            raise _wrong(position, "SecondsPath", "seconds as a whole number", seconds)
        return float(seconds)
    if "TimestampPath" in state:
        time = _scope(execution, position, _input(execution, position)).found(state["TimestampPath"])
        try:
            if not _TIMESTAMP.fullmatch(time):
                raise ValueError
            datetime.fromisoformat(time)
        except (TypeError, ValueError):
            raise _wrong(position, "TimestampPath", "a time like '2026-11-26T23:00:00Z'", time) from None
    return float(state["Seconds"]) if "Seconds" in state else None


def _wants(execution: Execution, position: Position, at: Address) -> list[Call | Timer]:
    if position.done:
        return []
    if position.children:
        return [one for index, child in enumerate(position.children) for one in _wants(execution, child, (*at, index))]
    state = _state(execution, position)
    if position.waits is not None:
        return [Timer(at, position.state, position.waits, retries=True)]
    if state["Type"] == "Wait":
        return [Timer(at, position.state, _seconds(execution, position), retries=False)]
    if "ItemReader" in state:
        return [Call(at, position.state, *_reading(execution, position, state), sum(position.tries))]
    return [Call(at, position.state, state["Resource"], _request(execution, position), sum(position.tries))]
