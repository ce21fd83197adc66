"""Where moto's interpreter of state machines does otherwise than AWS, and how it is put right.

Each function here replaces one method of moto's and says what moto's does. Nothing else of the interpreter is touched.
"""

from __future__ import annotations

import datetime
import threading
import time
from typing import Any

from botocore.loaders import Loader
from botocore.model import ListShape, MapShape, ServiceModel, Shape, StructureShape
from moto.stepfunctions.parser.asl.component.common.error_name.error_equals_decl import ErrorEqualsDecl
from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name import StatesErrorName
from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name_type import StatesErrorNameType
from moto.stepfunctions.parser.asl.component.common.retry import retrier_decl
from moto.stepfunctions.parser.asl.component.eval_component import EvalComponent
from moto.stepfunctions.parser.asl.component.program.program import Program
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service import StateTaskService
from moto.stepfunctions.parser.asl.component.state.wait.wait_function.timestamp import Timestamp
from moto.stepfunctions.parser.asl.component.state.wait.wait_function.wait_function import WaitFunction
from moto.stepfunctions.parser.asl.eval.environment import Environment
from moto.stepfunctions.parser.asl.eval.program_state import ProgramRunning
from moto.stepfunctions.parser.utils import camel_to_snake_case

from .patches import patch

# How often a wait looks whether its execution was ended meanwhile.
LOOK_SECONDS = 0.2

# How long an execution that was stopped or timed out waits for its current state to notice. A state that calls a slow
# service does not keep the execution from ending.
UNWIND_SECONDS = 2.0

_botocore = Loader()
_environment = threading.local()


def install() -> None:
    patch(Program, "eval", _evaluate_program, "self, env")
    patch(Environment, "set_error", _only_while_running(Environment.set_error), "self, error")
    patch(Environment, "set_timed_out", _only_while_running(Environment.set_timed_out), "self")
    make_frame = Environment.as_inner_frame_of.__func__
    patch(
        Environment,
        "as_inner_frame_of",
        _with_parent(make_frame),
        "cls, env, variable_store, event_history_frame_cache",
    )
    patch(WaitFunction, "_wait_interval", _wait_interval, "self, env, wait_seconds")
    patch(Timestamp, "_get_wait_seconds", _in_utc(Timestamp._get_wait_seconds), "self, env")
    patch(retrier_decl, "time", _StoppableSleep)
    evaluate_retrier = retrier_decl.RetrierDecl._eval_body
    patch(retrier_decl.RetrierDecl, "_eval_body", _knowing_environment(evaluate_retrier), "self, env")
    patch(ErrorEqualsDecl, "_eval_body", _error_equals, "self, env")
    patch(
        StateTaskService,
        "_normalise_parameters",
        _normalise_parameters,
        "self, parameters, boto_service_name, service_action_name",
    )
    patch(
        StateTaskService,
        "_normalise_response",
        _normalise_response,
        "self, response, boto_service_name, service_action_name",
    )


def parent_of(env: Environment) -> Environment | None:
    """The environment that a state's or an iteration's frame was opened in."""
    return getattr(env, "local_account_parent", None)


def _evaluate_program(self: Program, env: Environment) -> None:
    """moto joins the thread of the states, which may sit in a callback or a retry for hours after StopExecution; and an
    execution that timed out it ends without waiting for the last event of its history."""
    deadline = time.monotonic() + self.timeout_seconds.timeout_seconds if self.timeout_seconds else None
    env.next_state_name = getattr(env, "local_account_start_at", self.start_at.start_at_name)
    worker = threading.Thread(target=EvalComponent.eval, args=(self, env), daemon=True)
    worker.start()
    while worker.is_alive() and env.is_running():
        left = LOOK_SECONDS if deadline is None else min(LOOK_SECONDS, deadline - time.monotonic())
        if left <= 0:
            env.set_timed_out()
        else:
            worker.join(left)
    # Frames (a branch of a Parallel state, an iteration of a Map) end with the state they belong to.
    worker.join(None if env.is_frame() else UNWIND_SECONDS)


def _only_while_running(method: Any) -> Any:
    """In moto, a state that fails while its stopped or timed out execution unwinds turns ABORTED into FAILED."""

    def set_state(self: Environment, *args: Any, **kwargs: Any) -> None:
        with self._state_mutex:
            if isinstance(self._program_state, ProgramRunning):
                method(self, *args, **kwargs)

    return set_state


def _with_parent(make_frame: Any) -> Any:
    """moto's frames do not know their parents; whether a state timed out or its execution did shows only there."""

    def as_inner_frame_of(cls: Any, env: Environment, *args: Any, **kwargs: Any) -> Environment:
        frame: Environment = make_frame(cls, env, *args, **kwargs)
        frame.local_account_parent = env
        return frame

    return as_inner_frame_of


def _wait_interval(self: WaitFunction, env: Environment, wait_seconds: float) -> None:
    """moto waits on a pulse that is lost if it comes before the wait, and a whole second more when interrupted early."""
    _sleep(env, wait_seconds)


def _sleep(env: Environment, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while env.is_running() and (left := deadline - time.monotonic()) > 0:
        env.program_state_event.wait(min(left, LOOK_SECONDS))


def _in_utc(get_wait_seconds: Any) -> Any:
    """moto subtracts this machine's local time from a time in UTC."""

    def in_utc(self: Timestamp, env: Environment) -> int:
        offset = datetime.datetime.now().astimezone().utcoffset() or datetime.timedelta()
        seconds: int = get_wait_seconds(self, env)
        return seconds + int(offset.total_seconds())

    return in_utc


class _StoppableSleep:
    """Stands in for the module `time` where moto's Retry sleeps: in moto StopExecution waits until it has slept."""

    @staticmethod
    def sleep(seconds: float) -> None:
        _sleep(_environment.current, seconds)


def _knowing_environment(method: Any) -> Any:
    def evaluate(self: Any, env: Environment) -> None:
        _environment.current = env
        method(self, env)

    return evaluate


def _error_equals(self: ErrorEqualsDecl, env: Environment) -> None:
    """In moto States.ALL matches every error. On AWS neither it nor States.TaskFailed matches States.Runtime or
    States.DataLimitExceeded, and States.TaskFailed matches all others but States.Timeout."""
    error_name = env.stack.pop()
    named = error_name in self.error_names
    terminal = error_name in (
        StatesErrorName(typ=StatesErrorNameType.StatesRuntime),
        StatesErrorName(typ=StatesErrorNameType.StatesStatesDataLimitExceeded),
    )
    timeout = error_name == StatesErrorName(typ=StatesErrorNameType.StatesTimeout)
    wildcard = ErrorEqualsDecl._STATE_ALL_ERROR in self.error_names or (
        ErrorEqualsDecl._STATE_TASK_ERROR in self.error_names and not timeout
    )
    env.stack.append(named or (wildcard and not terminal))


def _operation_shapes(self: StateTaskService, service: str | None, action: str | None) -> tuple[Any, Any]:
    service_name = self._get_boto_service_name(service)
    model = ServiceModel(_botocore.load_service_model(service_name, "service-2"), service_name)
    snake_cased = self._get_boto_service_action(action)
    for name in model.operation_names:
        if camel_to_snake_case(name) == snake_cased:
            operation = model.operation_model(name)
            return operation.input_shape, operation.output_shape
    return None, None


def _normalise_parameters(
    self: StateTaskService,
    parameters: dict[str, Any],
    boto_service_name: str | None = None,
    service_action_name: str | None = None,
) -> None:
    """moto passes parameters on as they are written; but Step Functions' fields are PascalCase whatever the service's
    own are (StateMachineArn for stateMachineArn)."""
    shape, _ = _operation_shapes(self, boto_service_name, service_action_name)
    if isinstance(shape, StructureShape):
        self._to_boto_request(parameters, shape)


def _normalise_response(
    self: StateTaskService,
    response: Any,
    boto_service_name: str | None = None,
    service_action_name: str | None = None,
) -> None:
    """moto hands a response on as boto3 returns it: with the service's own casing, and datetimes that no later state
    can write as JSON. On AWS fields are PascalCase and times are strings."""
    _, shape = _operation_shapes(self, boto_service_name, service_action_name)
    if isinstance(response, dict):
        plain = as_state_data(response, shape)
        response.clear()
        response.update(plain)


def as_state_data(value: Any, shape: Shape | None = None) -> Any:
    """A boto3 response as a state's data: fields in PascalCase, times as ISO 8601 strings in UTC, streams as text."""
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, list):
        member = shape.member if isinstance(shape, ListShape) else None
        return [as_state_data(item, member) for item in value]
    if isinstance(value, dict) and isinstance(shape, StructureShape):
        members = shape.members
        return {name[:1].upper() + name[1:]: as_state_data(item, members.get(name)) for name, item in value.items()}
    if isinstance(value, dict):
        member = shape.value if isinstance(shape, MapShape) else None
        return {name: as_state_data(item, member) for name, item in value.items()}
    if hasattr(value, "read"):
        return value.read().decode()
    return value
