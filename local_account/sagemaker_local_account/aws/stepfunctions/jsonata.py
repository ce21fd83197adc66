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

from moto.stepfunctions.parser.asl.component.common.assign.assign_decl import AssignDecl
from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import FailureEvent
from moto.stepfunctions.parser.asl.component.common.outputdecl import Output
from moto.stepfunctions.parser.asl.component.common.path.items_path import ItemsPath
from moto.stepfunctions.parser.asl.component.common.query_language import QueryLanguageMode
from moto.stepfunctions.parser.asl.component.common.string.string_expression import StringJSONata, StringVariableSample
from moto.stepfunctions.parser.asl.component.eval_component import EvalComponent
from moto.stepfunctions.parser.asl.component.state.choice.comparison.comparison import ConditionStringJSONata
from moto.stepfunctions.parser.asl.component.state.exec.state_map.items.items import ItemsJSONata
from moto.stepfunctions.parser.asl.component.state.exec.state_map.state_map import StateMap
from moto.stepfunctions.parser.asl.component.state.wait.wait_function.timestamp import Timestamp
from moto.stepfunctions.parser.asl.eval.environment import Environment
from moto.stepfunctions.parser.asl.eval.states import States
from moto.stepfunctions.parser.asl.eval.variable_store import VariableStore
from moto.stepfunctions.parser.asl.utils.encoding import to_json_str
from moto.stepfunctions.parser.asl.utils.json_path import extract_json

from sagemaker_local_account.aws.stepfunctions.errors import evaluation_failed, nearest
from sagemaker_local_account.core.patches import patch

_WORKER = Path(__file__).with_name("jsonata_worker.py")
# Idle processes that are kept for the next expression.
_KEPT = 2
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
    patch(StateMap, "_eval_execution", _evaluate_map, "self, env")
    patch(ItemsPath, "_eval_body", _evaluate_items_path, "self, env")
    patch(ItemsJSONata, "_eval_body", _evaluate_items, "self, env")
    patch(AssignDecl, "_eval_body", _assign, "self, env")
    patch(Output, "_eval_body", _evaluate_output, "self, env")
    patch(ConditionStringJSONata, "_eval_body", _evaluate_condition, "self, env")
    patch(States, "reset", _reset, "self, input_value")
    patch(States, "set_result", _set_result, "self, result")
    patch(VariableStore, "get_assigned_variables", _assigned_variables, "self")
    patch(EvalComponent, "eval", _with_location(EvalComponent.eval), "self, env")
    patch(Timestamp, "_create_failure_event", _bad_timestamp, "self, env, timestamp_str")


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
    self.string_sampler.eval(env=env)
    _check_items(env)


def _evaluate_map(self: StateMap, env: Environment) -> None:
    if not (self.item_reader or self.items_path or self.items):
        _check_items(env)
    _moto_evaluate_map(self, env)


_moto_evaluate_map = StateMap._eval_execution


def _check_items(env: Environment) -> None:
    """Refuses what is no list with its value; moto has its Python type, and another event before EvaluationFailed.

    TestState says it in other words (`test_state/test_state_context_object.py::test_state_map_context_object`).
    """
    if nearest(env, "local_account_tested") is None and not isinstance(env.stack[-1], list):
        raise evaluation_failed(env, f"Map state input must be an array but was: {_json(env.stack[-1])}")


_TYPES = {
    bool: "boolean",
    list: "array",
    int: "number",
    float: "number",
    str: "string",
    dict: "object",
    type(None): "null",
}


def _evaluate_items(self: ItemsJSONata, env: Environment) -> None:
    _evaluate_typed(self, env, list, "array", "Items")


def _evaluate_condition(self: ConditionStringJSONata, env: Environment) -> None:
    """Refuses what is no boolean, which in moto ends the execution by States.Runtime ("States.QueryEvaluationError", Errors)."""
    _evaluate_typed(self, env, bool, "boolean", "Condition")


def _evaluate_typed(self: Any, env: Environment, kind: type, expected: str, field: str) -> None:
    self.string_jsonata.eval(env=env)
    if not isinstance(value := env.stack[-1], kind):
        cause = (
            f"The JSONata expression '{self.string_jsonata.literal_value}' specified for the field '{field}' returned an "
            f"unexpected result type. Expected '{expected}', but was '{_TYPES[type(value)]}' for value: {_json(value)}"
        )
        raise evaluation_failed(env, cause, field)


def _json(value: Any) -> str:
    return to_json_str(value, separators=(",", ":"))


def _bad_timestamp(self: Timestamp, env: Environment, timestamp_str: str) -> FailureEvent:
    """In JSONata it is an error of the evaluation (`scenarios/test_base_scenarios.py::test_wait_timestamp_jsonata`)."""
    if not isinstance(self.string, StringJSONata):
        return _moto_bad_timestamp(self, env, timestamp_str)
    cause = (
        f"The Timestamp field cannot be parsed as an ISO-8601 extended offset date-time format string: {timestamp_str}"
    )
    return evaluation_failed(env, cause, "Timestamp", waits=True).failure_event


_moto_bad_timestamp = Timestamp._create_failure_event


def _evaluate_variable(self: StringVariableSample, env: Environment) -> None:
    """Reads a variable in JSONPath (`$name.path`), or an expression in JSONata that is one."""
    if self.query_language_mode == QueryLanguageMode.JSONata:
        _evaluate_jsonata(self, env)
        return
    # As a path in an object of all variables: $.name.path
    env.stack.append(copy.deepcopy(extract_json("$." + self.expression[1:], _variables(env))))


def _assign(self: AssignDecl, env: Environment) -> None:
    env.local_account_at_entry = _variables(env)
    _moto_assign(self, env)


def _evaluate_output(self: Output, env: Environment) -> None:
    """Evaluates Output with the variables that the state began with, where moto has those of its Assign.

    "All variable references in Step Functions states use the values as they were on state entry" ("Passing data between states
    with variables").
    """
    env.local_account_seen = vars(env).get("local_account_at_entry")
    try:
        _moto_output(self, env)
    finally:
        env.local_account_seen = None


_moto_assign = AssignDecl._eval_body
_moto_output = Output._eval_body


def _variables(env: Environment) -> dict[str, Any]:
    if (seen := vars(env).get("local_account_seen")) is not None:
        return dict(seen)
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
