"""JSONata for moto's interpreter, which leaves the pointer to its engine empty, and the variables of both query languages.

moto writes the variables in front of each expression as a text; here they are bound as values. An expression runs in a process
of its own (`jsonata_worker.py`), so that one that loops for ever or builds a gigabyte ends alone.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from moto.stepfunctions.parser.api import ExecutionFailedEventDetails, HistoryEventType
from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import FailureEvent, FailureEventException
from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name import StatesErrorName
from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name_type import StatesErrorNameType
from moto.stepfunctions.parser.asl.component.common.path.items_path import ItemsPath
from moto.stepfunctions.parser.asl.component.common.query_language import QueryLanguageMode
from moto.stepfunctions.parser.asl.component.common.string.string_expression import StringJSONata, StringVariableSample
from moto.stepfunctions.parser.asl.component.eval_component import EvalComponent
from moto.stepfunctions.parser.asl.component.state.exec.state_map.items.items import ItemsJSONata
from moto.stepfunctions.parser.asl.component.state.state import CommonStateField
from moto.stepfunctions.parser.asl.eval.environment import Environment
from moto.stepfunctions.parser.asl.eval.event.event_detail import EventDetails
from moto.stepfunctions.parser.asl.eval.event.event_manager import EventHistoryContext, EventManager
from moto.stepfunctions.parser.asl.eval.states import States
from moto.stepfunctions.parser.asl.eval.variable_store import VariableStore
from moto.stepfunctions.parser.asl.utils.encoding import to_json_str
from moto.stepfunctions.parser.asl.utils.json_path import extract_json

from sagemaker_local_account.core.patches import patch
from sagemaker_local_account.stepfunctions.asl_patches import parent_of

_WORKER = Path(__file__).with_name("jsonata_worker.py")
# Idle processes that are kept for the next expression.
_KEPT = 2
_PREFIX = "An error occurred while executing the state"
_TIMEOUT = "D1012: Expression evaluation timeout: Check for infinite loop"

# The fields of the states by the components of moto's that evaluate them.
_FIELDS = {
    "Output": "Output",
    "AssignDecl": "Assign",
    "ArgumentsJSONataTemplateValueObject": "Arguments",
    "ArgumentsStringJSONata": "Arguments",
    "ItemsJSONata": "Items",
    "ItemSelector": "ItemSelector",
    "TimeoutSecondsJSONata": "TimeoutSeconds",
    "HeartbeatSecondsJSONata": "HeartbeatSeconds",
    "MaxConcurrencyJSONata": "MaxConcurrency",
    "MaxItemsStringJSONata": "MaxItems",
    "ToleratedFailureCountStringJSONata": "ToleratedFailureCount",
    "ToleratedFailurePercentageStringJSONata": "ToleratedFailurePercentage",
    "ConditionJSONataLit": "Condition",
    "ConditionStringJSONata": "Condition",
    "SecondsJSONata": "Seconds",
    "Timestamp": "Timestamp",
    "Error": "Error",
    "Cause": "Cause",
}


def install() -> None:
    """Patches moto's expressions."""
    patch(StringJSONata, "_eval_body", _evaluate_jsonata, "self, env")
    patch(StringVariableSample, "_eval_body", _evaluate_variable, "self, env")
    patch(ItemsPath, "_eval_body", _evaluate_items_path, "self, env")
    patch(ItemsJSONata, "_eval_body", _evaluate_items, "self, env")
    patch(States, "reset", _reset, "self, input_value")
    patch(States, "set_result", _set_result, "self, result")
    patch(VariableStore, "get_assigned_variables", _assigned_variables, "self")
    patch(EvalComponent, "eval", _with_location(EvalComponent.eval), "self, env")
    patch(CommonStateField, "_eval_state_input", _evaluate_input, "self, env")
    patch(
        EventManager,
        "add_event",
        _add_event,
        "self, context, event_type, event_details, timestamp, update_source_event_id",
    )
    patch(FailureEventException, "get_execution_failed_event_details", _execution_failed, "self")
    patch(FailureEventException, "get_evaluation_failed_event_details", _recorded_failure, "self")


def close() -> None:
    """Ends the processes."""
    while _idle:
        _end(_idle.pop())


class EvaluationError(Exception):
    """What went wrong with an expression, as the end of AWS's sentence about it."""


_idle: list[subprocess.Popen[str]] = []
_lock = threading.Lock()


def evaluate(expression: str, bindings: dict[str, Any]) -> Any:
    """Returns the value of an expression.

    Args:
        expression: without the signs of percent.
        bindings: the values of the variables, by names without the dollar sign.

    Raises:
        EvaluationError: it fails, has no value, or its value is a function.
    """
    with _lock:
        worker = _idle.pop() if _idle else None
    if worker is None:
        worker = subprocess.Popen(
            [sys.executable, "-P", str(_WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        # to_json_str also takes moto's data; a response is a line.
        worker.stdin.write(to_json_str({"expression": expression, "bindings": bindings}) + "\n")
        worker.stdin.flush()
        line = worker.stdout.readline()
    except OSError:
        line = ""
    if not line:
        _end(worker)
        raise EvaluationError(f"threw an error during evaluation. {_TIMEOUT}")
    with _lock:
        kept = len(_idle) < _KEPT
        if kept:
            _idle.append(worker)
    if not kept:
        _end(worker)
    response = json.loads(line)
    if "value" in response:
        return response["value"]
    if "undefined" in response:
        raise EvaluationError("returned nothing (undefined).")
    if "unsupported" in response:
        raise EvaluationError("returned an unsupported result type.")
    raise EvaluationError(f"threw an error during evaluation. {response['error']}")


def _end(worker: subprocess.Popen[str]) -> None:
    worker.kill()
    worker.communicate()


def _evaluate_jsonata(self: StringJSONata, env: Environment) -> None:
    try:
        value = evaluate(self.expression, _variables(env) | {"states": env.states._states_data})
    except EvaluationError as error:
        location = _location(env)
        field = f" specified for the field '{location}'" if location else ""
        raise evaluation_failed(env, f"The JSONata expression '{self.expression}'{field} {error}", location) from None
    env.stack.append(value)


def _evaluate_items_path(self: ItemsPath, env: Environment) -> None:
    """Refuses what is no list with its value; moto has its Python type, and another event before EvaluationFailed."""
    self.string_sampler.eval(env=env)
    if not isinstance(env.stack[-1], list):
        raise evaluation_failed(env, f"Map state input must be an array but was: {_json(env.stack[-1])}")


_TYPES = {bool: "boolean", int: "number", float: "number", str: "string", dict: "object", type(None): "null"}


def _evaluate_items(self: ItemsJSONata, env: Environment) -> None:
    self.string_jsonata.eval(env=env)
    if not isinstance(items := env.stack[-1], list):
        cause = (
            f"The JSONata expression '{self.string_jsonata.literal_value}' specified for the field 'Items' returned an "
            f"unexpected result type. Expected 'array', but was '{_TYPES[type(items)]}' for value: {_json(items)}"
        )
        raise evaluation_failed(env, cause, "Items")


def _json(value: Any) -> str:
    return to_json_str(value, separators=(",", ":"))


def evaluation_failed(env: Environment, cause: str, location: str = "") -> FailureEventException:
    """Puts the event EvaluationFailed, and returns the exception States.QueryEvaluationError.

    The text, the members and the event before it are those of LocalStack's recording
    `test_assign_reference_variables.py::test_undefined_reference[BASE_UNDEFINED_OUTPUT_FIELD]`.
    """
    name = StatesErrorName(typ=StatesErrorNameType.StatesQueryEvaluationError)
    state = env.states.context_object.context_object_data["State"]["Name"]
    entered = _entered_event(env)
    details = _Recorded(
        cause=f"{_PREFIX} '{state}' (entered at the event id #{entered}). {cause}", error=name.error_name, state=state
    )
    if location:
        details["location"] = location
    context = env.event_history_context
    if context.source_event_id == entered:
        context.source_event_id = env.event_manager._history_event_list[entered - 1]["previousEventId"]
    env.event_manager.add_event(
        context=context,
        event_type=HistoryEventType.EvaluationFailed,
        event_details=EventDetails(evaluationFailedEventDetails=dict(details)),
    )
    return FailureEventException(
        FailureEvent(
            env=env,
            error_name=name,
            event_type=HistoryEventType.EvaluationFailed,
            event_details=EventDetails(evaluationFailedEventDetails=details),
        )
    )


class _Recorded(dict[str, Any]):
    """The details of an event that is in the history already: moto adds it again for a Task, and not for other states."""


def _add_event(
    self: EventManager,
    context: EventHistoryContext,
    event_type: HistoryEventType,
    event_details: Any = None,
    *args: Any,
    **kwargs: Any,
) -> int:
    if event_details and isinstance(event_details.get("evaluationFailedEventDetails"), _Recorded):
        return context.source_event_id
    event_id: int = _moto_add_event(self, context, event_type, event_details, *args, **kwargs)
    return event_id


_moto_add_event = EventManager.add_event


def _execution_failed(self: FailureEventException) -> Any:
    """The details of ExecutionFailed: those of EvaluationFailed, whose cause moto would begin twice with the state."""
    details = self.failure_event.event_details or {}
    recorded = details.get("evaluationFailedEventDetails")
    if isinstance(recorded, _Recorded):
        return ExecutionFailedEventDetails(error=recorded["error"], cause=recorded["cause"])
    return _moto_execution_failed(self)


_moto_execution_failed = FailureEventException.get_execution_failed_event_details


def _recorded_failure(self: FailureEventException) -> Any:
    recorded = (self.failure_event.event_details or {}).get("evaluationFailedEventDetails")
    return recorded if isinstance(recorded, _Recorded) else _moto_evaluation_failed(self)


_moto_evaluation_failed = FailureEventException.get_evaluation_failed_event_details


def _evaluate_input(self: CommonStateField, env: Environment) -> None:
    """Keeps the number of the event StateEntered, which was added just before."""
    env.local_account_entered_event = env.event_history_context.source_event_id
    _moto_evaluate_input(self, env)


_moto_evaluate_input = CommonStateField._eval_state_input


def _entered_event(env: Environment) -> int:
    place: Environment | None = env
    while place is not None and not hasattr(place, "local_account_entered_event"):
        place = parent_of(place)
    return 0 if place is None else place.local_account_entered_event


def _evaluate_variable(self: StringVariableSample, env: Environment) -> None:
    """Reads a variable in JSONPath (`$name.path`), or an expression in JSONata that is one."""
    if self.query_language_mode == QueryLanguageMode.JSONata:
        _evaluate_jsonata(self, env)
        return
    # As a path in an object of all variables: $.name.path
    env.stack.append(copy.deepcopy(extract_json("$." + self.expression[1:], _variables(env))))


def _variables(env: Environment) -> dict[str, Any]:
    store = env.variable_store
    return {**store._outer_scope, **store._inner_scope}


def _reset(self: States, input_value: Any) -> None:
    """Sets a state's input; it has no result and no error yet, which in moto are null instead of nothing."""
    self._states_data["input"] = copy.deepcopy(input_value)
    self._states_data.pop("result", None)
    self._states_data.pop("errorOutput", None)


def _set_result(self: States, result: Any) -> None:
    """Sets a state's result; a state that failed has an error and no result, in moto the error twice.

    `test_state/test_test_state_scenarios.py::test_state_task_catch_error`: `$states` of a Catch has no `result`.
    """
    if "errorOutput" in self._states_data and self._states_data["errorOutput"] == result:
        self._states_data.pop("result", None)
        return
    self._states_data["result"] = copy.deepcopy(result)
    self._states_data.pop("errorOutput", None)


def _assigned_variables(self: VariableStore) -> dict[str, str]:
    """The variables that a state set, as JSON; moto's strings are not escaped."""
    return {name: _json(self.get(name)) for name in self._declaration_tracing}


def _with_location(evaluate_component: Any) -> Any:
    """Records which components are being evaluated, for the field that an error names."""

    def evaluate_at(self: EvalComponent, env: Environment) -> None:
        path = vars(env).setdefault("local_account_components", [])
        path.append(self)
        try:
            evaluate_component(self, env)
        finally:
            path.pop()

    return evaluate_at


def _location(env: Environment) -> str:
    """The field of the expression that is being evaluated, such as "Output/result"."""
    parts: list[str] = []
    for component in vars(env)["local_account_components"]:
        name = type(component).__name__
        if name in _FIELDS:
            parts = [_FIELDS[name]]
        elif parts and hasattr(component, "identifier"):
            parts.append(component.identifier)
    return "/".join(parts)
