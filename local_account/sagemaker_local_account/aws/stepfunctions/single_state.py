"""TestState, which moto lacks: one state with an input, a mocked result or error, and what each of its fields makes of it.

The answers and texts are AWS's as LocalStack recorded them (`tests/aws/services/stepfunctions/v2/test_state`).
"""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Callable
from typing import Any

from botocore.exceptions import UnknownServiceError
from botocore.model import ListShape, MapShape, Shape, StructureShape
from moto.stepfunctions.exceptions import ValidationException
from moto.stepfunctions.parser.api import HistoryEventType, InvalidDefinition, StateMachineType, TaskFailedEventDetails
from moto.stepfunctions.parser.asl.component.common.catch.catch_outcome import CatchOutcome
from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import FailureEvent, FailureEventException
from moto.stepfunctions.parser.asl.component.common.parargs import Parameters
from moto.stepfunctions.parser.asl.component.state.exec.state_task.state_task_lambda import StateTaskLambda
from moto.stepfunctions.parser.asl.eval.environment import Environment
from moto.stepfunctions.parser.asl.eval.evaluation_details import AWSExecutionDetails
from moto.stepfunctions.parser.asl.eval.event.event_detail import EventDetails
from moto.stepfunctions.parser.asl.eval.event.event_manager import EventHistoryContext
from moto.stepfunctions.parser.asl.eval.program_state import ProgramRunning, ProgramTimedOut
from moto.stepfunctions.parser.asl.parse import asl_parser
from moto.stepfunctions.parser.asl.utils.json_path import NoSuchJsonPathError
from moto.stepfunctions.parser.utils import camel_to_snake_case

from sagemaker_local_account.aws.events import bus
from sagemaker_local_account.aws.stepfunctions import definitions
from sagemaker_local_account.aws.stepfunctions.errors import PropagatedErrorName
from sagemaker_local_account.core.service_models import service_model

_TYPES = ("Task", "Wait", "Pass", "Succeed", "Fail", "Choice", "Parallel", "Map")
_MOCKED_TYPES = ("Task", "Parallel", "Map")
_NAME = "StateName"
# The members of a context object that can be given.
_CONTEXT = {
    "Execution": ("Id", "Input", "Name", "RoleArn", "StartTime", "RedriveCount", "RedriveTime"),
    "State": ("EnteredTime", "Name", "RetryCount"),
    "StateMachine": ("Id", "Name"),
    "Task": ("Token",),
}
_INTEGRATIONS = {"states": "stepfunctions", "cloudwatchlogs": "logs", "sfn": "stepfunctions", "eventbridge": "events"}


class _Retriable(Exception):
    """A retrier matches: on AWS the state would run again after so many seconds."""


class _GivenContext(dict[str, Any]):
    """A given context object, with the members that moto's interpreter sets and reads beside it."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__(given)
        # A frame's `States` reads the input, which it is given next.
        self._beside = {
            "Execution": {"Input": None, **given.get("Execution", {})},
            "State": {"Name": _NAME, "RetryCount": 0, **given.get("State", {})},
        }

    def __getitem__(self, name: str) -> Any:
        return self._beside[name] if name in self._beside else super().__getitem__(name)

    def __missing__(self, name: str) -> dict[str, Any]:
        return {}


class SingleState:
    """A call of TestState.

    Args:
        request: its members.
        region: of the account.
        account_id: of the account.

    Raises:
        ValidationException, InvalidDefinition: as AWS refuses the call.
    """

    def __init__(self, request: dict[str, Any], region: str, account_id: str) -> None:
        self._request, self._region, self._account_id = request, region, account_id
        self._mock: dict[str, Any] = request.get("mock") or {}
        self._configuration: dict[str, Any] = request.get("stateConfiguration") or {}
        self._inspection: dict[str, Any] = {}
        self._errors: dict[str, int | float] = {}
        self.name, self.state, self._machine = self._located()
        self._check()
        self._result = self._mocked_result()
        self._context = self._mocked_context()

    def _located(self) -> tuple[str, dict[str, Any], dict[str, Any]]:
        """The name and the definition of the state, and a state machine of it alone."""
        text, name = self._request["definition"], self._request.get("stateName")
        try:
            definition = json.loads(text)
        except (ValueError, RecursionError):
            definition = None
        if not isinstance(definition, dict):
            definitions.check(text, "STANDARD")
            raise InvalidDefinition("Definition must be a valid JSON object")
        state, language = definition, definition.get("QueryLanguage")
        if name is not None:
            found = _state_named(definition, name)
            if found is None:
                raise ValidationException("State not found in definition")
            state = found
        else:
            name = _NAME
        where = f"at /States/{name}"
        if state.get("Type") not in _TYPES:
            raise InvalidDefinition(
                "Invalid State Machine Definition: 'SCHEMA_VALIDATION_FAILED: The field 'Type' should have one of these "
                f"values: [{', '.join(_TYPES)}] {where}/Type'"
            )
        if state["Type"] == "Parallel" and state.get("Branches") == []:
            raise InvalidDefinition(
                f"Invalid State Machine Definition: 'SCHEMA_VALIDATION_FAILED: Value cannot be empty {where}/Branches'"
            )
        machine: dict[str, Any] = {"StartAt": name, "States": {name: state}}
        if language is not None and state is not definition:
            machine["QueryLanguage"] = language
        return name, state, machine

    def _check(self) -> None:
        kind, mock = self.state["Type"], self._mock
        if "mapIterationFailureCount" in self._configuration and not mock:
            raise ValidationException(
                "TestState does not support MapIterationFailureCount when a mock is not specified."
            )
        if not mock and kind in ("Map", "Parallel"):
            raise InvalidDefinition(
                "TestState API does not support Map or Parallel states. Supported state types include: [Task, Wait, Pass, "
                "Succeed, Fail, Choice]"
            )
        if "result" in mock and "errorOutput" in mock:
            raise ValidationException(
                "A test mock should have only one of the following fields: [result, errorOutput]."
            )
        if mock and self._request.get("revealSecrets"):
            raise ValidationException("TestState does not support RevealSecrets when a mock is specified.")
        if mock and kind not in _MOCKED_TYPES:
            raise ValidationException(f"State type '{kind}' is not supported when a mock is specified")
        if not mock and kind == "Task" and not self._request.get("roleArn"):
            raise ValidationException("RoleArn must be specified when testing a Task state")
        definitions.check(json.dumps(self._machine), "STANDARD", whole=False)

    def _mocked_result(self) -> Any:
        if "result" not in self._mock:
            return None
        try:
            result = json.loads(self._mock["result"])
        except (ValueError, RecursionError):
            raise ValidationException("Mocked result must be valid JSON") from None
        kind = self.state["Type"]
        if kind == "Map" and "ResultWriter" in self.state:
            if not isinstance(result, dict):
                raise ValidationException("Mocked result must be a JSON object.")
        elif kind in ("Map", "Parallel") and not isinstance(result, list):
            raise ValidationException("Mocked result must be an array.")
        if kind == "Parallel" and len(result) != len(self.state["Branches"]):
            raise ValidationException(
                "Mocked result must contain the same number of items as number of Parallel branches."
            )
        failures = self._configuration.get("mapIterationFailureCount", 0)
        if kind == "Map" and isinstance(result, list) and failures > len(result):
            raise ValidationException(
                "Map iteration failure count must be less than or equal to the number of Map iterations"
            )
        mode = self._mock.get("fieldValidationMode", "STRICT")
        shape = _output_shape(str(self.state.get("Resource"))) if kind == "Task" and mode != "NONE" else None
        why = None if shape is None else _unlike(shape, result, "", strict=mode == "STRICT")
        if why is not None:
            raise ValidationException(f"Mock result schema validation error: {why}")
        return result

    def _mocked_context(self) -> dict[str, Any] | None:
        if self._request.get("context") is None:
            return None
        problem = "Invalid Context object provided: "
        try:
            context = json.loads(self._request["context"])
        except (ValueError, RecursionError):
            raise ValidationException(f"{problem}it is not valid JSON") from None
        if "Map" in context:
            raise ValidationException(f"{problem}'Map' field is not supported when mocking a Context object")
        resource = str(self.state.get("Resource"))
        if "Task" in context and not resource.endswith((".sync", ".sync:2", ".waitForTaskToken")):
            raise ValidationException(
                f"{problem}Context object contains 'Task' when state is not a Task state with a '.sync' or "
                "'.waitForTaskToken' service integration pattern"
            )
        for name, members in context.items():
            if name not in _CONTEXT:
                raise ValidationException(f"{problem}Field '{name}' is not allowed")
            for member, value in members.items():
                if member not in _CONTEXT[name]:
                    raise ValidationException(f"{problem}Field '{member}' is not allowed")
                numeric = member in ("RetryCount", "RedriveCount")
                if member != "Input" and not isinstance(value, int if numeric else str):
                    raise ValidationException(f"{problem}{name}.{member} must be a {'number' if numeric else 'string'}")
        return context

    def run(self) -> dict[str, Any]:
        """Runs the state; returns TestState's response."""
        program, _ = asl_parser.AmazonStateLanguageParser.parse(json.dumps(self._machine))
        state = program.states.states[self.name]
        given = json.loads(self._request.get("input") or "{}")
        env = self._environment(given)
        env.next_state_name = self.name
        self._inspection["input"] = json.dumps(given)
        self._watch(state)
        response: dict[str, Any]
        try:
            state.eval(env)
            response = {"status": "SUCCEEDED", "output": json.dumps(env.states.get_input())}
            if isinstance(env.program_state(), ProgramTimedOut):
                response = {"status": "FAILED", "error": "States.Timeout"}
        except _Retriable:
            response = {"status": "RETRIABLE"}
        except FailureEventException as failure:
            error, cause = failure.extract_error_cause_pair() or (None, None)
            response = {"status": "FAILED", "error": error, "cause": cause}
        except (NoSuchJsonPathError, RuntimeError, ValueError, TypeError) as defect:
            response = {"status": "FAILED", "error": "States.Runtime", "cause": str(defect)}
        if self._failure is not None:
            error, cause = self._failure
            response |= {"error": error, "cause": cause}
            if response["status"] == "SUCCEEDED":
                response["status"] = "CAUGHT_ERROR"
        if isinstance(env.program_state(), ProgramRunning) and env.next_state_name != self.name:
            response["nextState"] = env.next_state_name
        elif response["status"] == "SUCCEEDED" and "Next" in self.state:
            response["nextState"] = self.state["Next"]
        if variables := {**env.variable_store._outer_scope, **env.variable_store._inner_scope}:
            self._inspection["variables"] = json.dumps(variables)
        if self._errors:
            self._inspection["errorDetails"] = self._errors
        if self._request.get("inspectionLevel", "INFO") != "INFO":
            response["inspectionData"] = self._inspection
        return {name: value for name, value in response.items() if value is not None}

    def _environment(self, given: Any) -> Environment:
        name, execution = f"TestState-{uuid.uuid4()}", str(uuid.uuid4())
        prefix = f"arn:aws:states:{self._region}:{self._account_id}"
        context: Any = {
            "Execution": {
                "Id": f"{prefix}:express:{name}:{execution}",
                "Input": given,
                "Name": execution,
                "RoleArn": self._request.get("roleArn"),
                "StartTime": bus.iso(datetime.datetime.now(datetime.UTC)),
            },
            "StateMachine": {"Id": f"{prefix}:stateMachine:{name}", "Name": name},
        }
        env = Environment(
            aws_execution_details=AWSExecutionDetails(
                account=self._account_id, region=self._region, role_arn=self._request.get("roleArn") or ""
            ),
            execution_type=StateMachineType.STANDARD,
            context=context,
            event_history_context=EventHistoryContext.of_program_start(),
            cloud_watch_logging_session=None,
            activity_store={},
        )
        # The context of a tested state has no RedriveCount (`redrive.py`).
        env.local_account_tested = True
        for variable, value in json.loads(self._request.get("variables") or "{}").items():
            env.variable_store._inner_scope[variable] = value
        return env

    _failure: tuple[Any, Any] | None = None

    def _watch(self, state: Any) -> None:
        """Records what the fields of the state make of its input, and puts the mock in the place of its work."""
        kind, json_path = self.state["Type"], state._is_language_query_jsonpath()
        with_result = kind == "Pass" and getattr(state, "result", None) is not None
        if json_path and kind != "Parallel" and not with_result:
            self._record(state.input_path, "afterInputPath")
        if with_result:
            self._record(state.result, "result", "afterResultSelector")
        elif kind == "Pass" and json_path:
            if state.parameters is None:
                self._record(state.input_path, "afterInputPath", "afterParameters", "afterResultSelector")
            else:
                self._record(state.parameters, "afterParameters", "afterResultSelector")
        elif kind == "Task" and json_path and isinstance(state, StateTaskLambda) and state.parargs is None:
            self._record(state.input_path, "afterInputPath", "afterParameters")  # test_base_lambda_task_state
        elif kind == "Task" and state.parargs is not None:
            self._record(
                state.parargs, "afterParameters" if isinstance(state.parargs, Parameters) else "afterArguments"
            )
        if json_path and getattr(state, "result_path", None) is not None:
            self._record(state.result_path, "afterResultPath")
        if json_path and getattr(state, "result_selector", None) is not None:
            self._record(state.result_selector, "afterResultSelector")
        if hasattr(state, "retry"):
            state._handle_retry = lambda env, failure_event: self._retry(state, env, failure_event)
            state._handle_catch = lambda env, failure_event: self._catch(state, env, failure_event)
            evaluate = state._eval_execution
            state._eval_execution = lambda env: self._execute(state, env, evaluate)
            from_error = state._from_error
            state._from_error = lambda env, ex: self._failed(from_error(env=env, ex=ex))
        evaluate_input = state._eval_state_input

        def with_context(env: Environment) -> None:
            evaluate_input(env)
            context = env.states.context_object
            if self._context is not None:
                env.states._states_data["context"] = context.context_object_data = _GivenContext(self._context)
            elif given := context.context_object_data["State"]:  # also of a state with another name, as recorded
                given["Name"] = _NAME

        state._eval_state_input = with_context

    def _record(self, component: Any, *names: str) -> None:
        """Records the value that a component puts on the stack."""
        evaluate = component._eval_body

        def recorded(env: Environment) -> None:
            evaluate(env)
            self._inspection.update(dict.fromkeys(names, json.dumps(env.stack[-1])))

        component._eval_body = recorded

    def _execute(self, state: Any, env: Environment, evaluate: Callable[[Environment], None]) -> None:
        if not self._mock:
            evaluate(env)
        elif self.state["Type"] == "Map":
            self._items(state, env)
        elif self.state["Type"] == "Task":
            state._eval_parameters(env)
        if "errorOutput" in self._mock:
            error = self._mock["errorOutput"]
            raise _failure(env, error.get("error"), error.get("cause"))
        if self._mock:
            env.stack.append(self._result)
        if self.state["Type"] == "Task":
            self._inspection["result"] = json.dumps(env.stack[-1])
        if state._is_language_query_jsonpath() and state.result_selector is None:
            self._inspection["afterResultSelector"] = json.dumps(env.stack[-1])

    def _items(self, state: Any, env: Environment) -> None:
        """Evaluates the fields of a Map state around its iterations."""
        state.max_concurrency_decl.eval(env)
        concurrency = env.stack.pop()
        if "ItemReader" not in self.state:
            if state.items_path:
                state.items_path.eval(env)
            if state.items:
                state.items.eval(env)
            items = env.stack.pop()
            if not isinstance(items, list):
                path = str(self.state.get("ItemsPath", "$")).replace("$$", "$", 1)
                raise _failure(env, "States.Runtime", f'Reference path "{path}" must point to array.')
            if state.items_path and "ItemsPath" in self.state:
                self._inspection["afterItemsPath"] = json.dumps(items)
        self._inspection["maxConcurrency"] = concurrency
        failed = self._configuration.get("mapIterationFailureCount", 0)
        exceeded = False
        if {"ToleratedFailureCount", "ToleratedFailureCountPath"} & self.state.keys():
            exceeded |= failed > self._number(state.tolerated_failure_count_decl, env, "toleratedFailureCount")
        if {"ToleratedFailurePercentage", "ToleratedFailurePercentagePath"} & self.state.keys():
            most = self._number(state.tolerated_failure_percentage_decl, env, "toleratedFailurePercentage")
            exceeded |= failed * 100 > most * max(len(self._result or ()), 1)
        if exceeded and "errorOutput" not in self._mock:
            cause = "The specified tolerated failure threshold was exceeded"
            raise _failure(env, "States.ExceedToleratedFailureThreshold", cause)

    def _number(self, component: Any, env: Environment, name: str) -> Any:
        component.eval(env)
        self._inspection[name] = env.stack.pop()
        return self._inspection[name]

    def _failed(self, failure: FailureEvent) -> FailureEvent:
        self._failure = FailureEventException(failure).extract_error_cause_pair()
        return failure

    def _retry(self, state: Any, env: Environment, failure: FailureEvent) -> Any:
        """Names the retrier that matches, without waiting for it."""
        count = self._configuration.get("retrierRetryCount", 0)
        for index, retrier in enumerate(state.retry.retriers):
            env.stack.append(failure.error_name)
            retrier.error_equals.eval(env)
            if not env.stack.pop():
                continue
            self._errors["retryIndex"] = index
            if count >= retrier.max_attempts.attempts:
                return None
            seconds = retrier.interval_seconds.seconds * retrier.backoff_rate.rate**count
            self._errors["retryBackoffIntervalSeconds"] = int(
                min(seconds, retrier.max_delay_seconds.max_delays_seconds)
            )
            raise _Retriable
        return None

    def _catch(self, state: Any, env: Environment, failure: FailureEvent) -> None:
        for index, catcher in enumerate(state.catch.catchers):
            env.stack.append(failure)
            catcher.eval(env)
            if type(env.stack[-1]).__name__ == "CatcherOutcomeCaught":
                self._errors["catchIndex"] = index
                env.stack[-1] = CatchOutcome.Caught
                return
            env.stack.pop()
        env.stack.append(CatchOutcome.NotCaught)


def _state_named(program: dict[str, Any], name: str) -> dict[str, Any] | None:
    states = program.get("States")
    if not isinstance(states, dict):
        return None
    if isinstance(states.get(name), dict):
        return states[name]
    for state in states.values():
        if isinstance(state, dict):
            inner = [state.get("ItemProcessor"), state.get("Iterator"), *(state.get("Branches") or ())]
            for below in inner:
                if isinstance(below, dict) and (found := _state_named(below, name)) is not None:
                    return found
    return None


def _failure(env: Environment, error: str | None, cause: str | None) -> FailureEventException:
    details = TaskFailedEventDetails(resource="", resourceType="", error=error, cause=cause)
    return FailureEventException(
        FailureEvent(
            env=env,
            error_name=PropagatedErrorName(error),
            event_type=HistoryEventType.TaskFailed,
            event_details=EventDetails(taskFailedEventDetails=details),
        )
    )


def _output_shape(resource: str) -> StructureShape | None:
    """The shape of the response of an integration's operation; None where it is not known."""
    *_, service, action = resource.removesuffix(".sync").removesuffix(".waitForTaskToken").split(":")
    if not resource.startswith("arn:aws:states:::") or resource.endswith((".sync", ".sync:2")):
        return None
    try:
        model = service_model(_INTEGRATIONS.get(service, service))
    except UnknownServiceError:
        return None
    for name in model.operation_names:
        if camel_to_snake_case(name) == camel_to_snake_case(action):
            return model.operation_model(name).output_shape
    return None


def _unlike(shape: Shape, value: Any, name: str, *, strict: bool) -> str | None:
    """Why a value is not one of a shape; its fields are in the case of Step Functions, and further ones are allowed."""
    kind = shape.type_name
    if isinstance(shape, StructureShape):
        if not isinstance(value, dict):
            return f"Field '{name}' must be an object"
        for member, below in shape.members.items():
            field = member[:1].upper() + member[1:]
            # A payload is any JSON to Step Functions.
            payload = below.serialization.get("streaming") or member == shape.serialization.get("payload")
            if field in value:
                why = None if payload else _unlike(below, value[field], field, strict=strict)
                if why is not None:
                    return why
            elif strict and member in shape.required_members:
                return f"Required field '{field}' is missing"
        return None
    if isinstance(shape, ListShape):
        if not isinstance(value, list):
            return f"Field '{name}' must be an array"
        return next((why for it in value if (why := _unlike(shape.member, it, name, strict=strict)) is not None), None)
    if isinstance(shape, MapShape):
        if not isinstance(value, dict):
            return f"Field '{name}' must be an object"
        return next(
            (why for key, it in value.items() if (why := _unlike(shape.value, it, key, strict=strict)) is not None),
            None,
        )
    if kind == "boolean":
        return None if isinstance(value, bool) else f"Field '{name}' must be a boolean"
    if kind in ("integer", "long", "float", "double"):
        if not isinstance(value, int | float) or isinstance(value, bool):
            return f"Field '{name}' must be a number"
        if value < shape.metadata.get("min", value):
            return f"Field '{name}' is less than the minimum value"
        return f"Field '{name}' exceeds the maximum value" if value > shape.metadata.get("max", value) else None
    if not isinstance(value, str):
        return f"Field '{name}' must be a string"
    if shape.metadata.get("enum") and value not in shape.metadata["enum"]:
        return f"Field '{name}' is not an expected value"
    if len(value) < shape.metadata.get("min", 0):
        return f"Field '{name}' is smaller than the minimum length"
    return f"Field '{name}' exceeds the maximum length" if len(value) > shape.metadata.get("max", len(value)) else None
