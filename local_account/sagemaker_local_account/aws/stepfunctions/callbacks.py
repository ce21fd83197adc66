"""Activities and task tokens, by which a worker outside of an execution receives tasks and sends their results.

moto has the states that wait, but no GetActivityTask, and accepts the answer to a task that has ended.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

from moto.stepfunctions.exceptions import ActivityDoesNotExist, InvalidToken
from moto.stepfunctions.parser.api import ExecutionStatus, TaskTimedOut
from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name_type import StatesErrorNameType
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service import StateTaskService
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service_callback import (
    StateTaskServiceCallback,
)
from moto.stepfunctions.parser.asl.component.state.exec.state_task.state_task_activitiy import StateTaskActivity
from moto.stepfunctions.parser.asl.eval.callback.callback import (
    ActivityCallbackEndpoint,
    ActivityTaskStartEndpoint,
    ActivityTaskStartOutcome,
    CallbackEndpoint,
    CallbackOutcome,
    CallbackOutcomeFailure,
    CallbackOutcomeSuccess,
    HeartbeatEndpoint,
)
from moto.stepfunctions.parser.asl.eval.environment import Environment
from moto.stepfunctions.parser.backend.activity import Activity, ActivityTask
from moto.stepfunctions.parser.models import StepFunctionsParserBackend
from typing_extensions import override

from sagemaker_local_account.aws.stepfunctions import errors
from sagemaker_local_account.core.clock import CLOCK
from sagemaker_local_account.core.patches import patch

# "The maximum time the service holds on to the request before responding is 60 seconds" (GetActivityTask).
POLL_SECONDS = 60.0
_STEP = 0.1


def install() -> None:
    """Patches the tasks that wait for a worker."""
    patch(CallbackEndpoint, "interrupt_all", _interrupt_all, "self")
    patch(CallbackEndpoint, "wait", _wait, "self, timeout")
    patch(HeartbeatEndpoint, "clear_and_wait", _clear_and_wait, "self")
    patch(ActivityTaskStartEndpoint, "wait", _wait_for_start, "self, timeout_seconds")
    patch(StateTaskActivity, "_eval_execution", _evaluate_activity, "self, env")
    patch(StateTaskServiceCallback, "_eval_execution", _evaluate_callback, "self, env")


class AccountActivity(Activity):
    """An activity whose tasks can be waited for."""

    def __init__(self, arn: str, name: str, encryption_configuration: dict[str, Any] | None) -> None:
        super().__init__(arn, name)
        self.encryption_configuration = encryption_configuration or {"type": "AWS_OWNED_KEY"}
        self._tasks: deque[ActivityTask]
        self.changed = threading.Condition()

    @override
    def add_task(self, task: ActivityTask) -> None:
        with self.changed:
            super().add_task(task)
            self.changed.notify_all()

    @override
    def get_task(self) -> ActivityTask | None:
        return super().get_task() if self._tasks else None


class Callbacks(StepFunctionsParserBackend):
    """The operations of activities and task tokens."""

    @override
    def create_activity(
        self, name: str, tags: Any = None, encryption_configuration: dict[str, Any] | None = None
    ) -> AccountActivity:
        """Creates an activity; the same call again returns it (`test_sfn_api_activities.py`)."""
        arn = f"arn:{self.partition}:states:{self.region_name}:{self.account_id}:activity:{name}"
        if arn not in self.activities:
            super().create_activity(name, tags, encryption_configuration)
            self.activities[arn] = AccountActivity(arn, name, encryption_configuration)
        return self.activities[arn]

    @override
    def describe_activity(self, activity_arn: str) -> AccountActivity:
        self._validate_activity_arn(activity_arn)
        if activity_arn not in self.activities:
            raise ActivityDoesNotExist(f"Activity Does Not Exist: '{activity_arn}'")
        return self.activities[activity_arn]

    def get_activity_task(self, activity_arn: str, worker_name: str | None) -> ActivityTask | None:
        """Returns the next task of an activity that is still waited for; None if none comes in a minute."""
        activity = self.describe_activity(activity_arn)
        until = CLOCK.monotonic() + POLL_SECONDS
        while CLOCK.monotonic() < until:
            with activity.changed:
                task = activity.get_task() or (activity.changed.wait(_STEP) and activity.get_task()) or None
            if task is not None and (endpoint := self._open_endpoint(task.task_token)) is not None:
                endpoint.notify_activity_task_start(worker_name)
                return task
        return None

    def _endpoints(self, token: str) -> Iterator[tuple[CallbackEndpoint, bool]]:
        for execution in self._get_executions():
            env = execution.exec_worker and execution.exec_worker.env
            endpoint = env.callback_pool_manager.get(token) if env else None
            if endpoint is not None:
                running = execution.exec_status == ExecutionStatus.RUNNING
                yield endpoint, running and not getattr(endpoint, "local_account_closed", False)

    def _open_endpoint(self, token: str) -> Any:
        return next((endpoint for endpoint, is_open in self._endpoints(token) if is_open), None)

    def _endpoint(self, token: str) -> CallbackEndpoint:
        """The waiting task of a token.

        Raises:
            InvalidToken: there was none.
            TaskTimedOut: it has ended. The text is that of public logs ("Provided task does not exist anymore").
        """
        for endpoint, is_open in self._endpoints(token):
            if not is_open or endpoint.get_outcome() is not None:
                raise TaskTimedOut("Task Timed Out: 'Provided task does not exist anymore'")
            return endpoint
        raise InvalidToken("'Invalid token'")

    @override
    def send_task_heartbeat(self, task_token: str) -> None:
        self._endpoint(task_token).notify_heartbeat()

    @override
    def send_task_success(self, task_token: str, outcome: str) -> None:
        self._endpoint(task_token).notify(CallbackOutcomeSuccess(task_token, outcome))

    @override
    def send_task_failure(self, task_token: str, error: str | None = None, cause: str | None = None) -> None:
        self._endpoint(task_token).notify(CallbackOutcomeFailure(task_token, error, cause))


def _interrupt_all(self: CallbackEndpoint) -> None:
    """Closes the endpoint, so that a later answer is an error; in moto it is accepted and lost."""
    self.local_account_closed = True
    _moto_interrupt_all(self)


_moto_interrupt_all = CallbackEndpoint.interrupt_all


def _wait(self: CallbackEndpoint, timeout: float | None = None) -> CallbackOutcome | None:
    _wait_on(self._notify_event, timeout)
    return self.get_outcome()


def _clear_and_wait(self: HeartbeatEndpoint) -> bool:
    """Waits for a heartbeat by the account's clock, which can run ahead; moto's waits by the machine's."""
    received = _wait_on(self._next_heartbeat_event, self._heartbeat_seconds)
    self._next_heartbeat_event.clear()
    return received


def _wait_for_start(self: ActivityTaskStartEndpoint, timeout_seconds: float) -> ActivityTaskStartOutcome | None:
    """Waits for a worker; moto's has no outcome where none comes, which is an AttributeError."""
    _wait_on(self._next_activity_task_start_event, timeout_seconds)
    return getattr(self, "_outcome", None)


def _wait_on(event: threading.Event, seconds: float | None) -> bool:
    deadline = None if seconds is None else CLOCK.monotonic() + seconds
    while deadline is None or (left := deadline - CLOCK.monotonic()) > 0:
        if event.wait(_STEP if deadline is None else min(_STEP, left)):
            return True
    return event.is_set()


def _evaluate_activity(self: StateTaskActivity, env: Environment) -> None:
    """Closes the token with its task, in moto it stays open; of an activity that does not exist moto has not the name."""
    if self.resource.resource_arn not in env.activity_store:
        cause = f"The activity {self.resource.resource_arn} does not exist."
        raise errors.failure(env, StatesErrorNameType.StatesRuntime, cause)
    try:
        _moto_evaluate_activity(self, env)
    finally:
        task = env.states.context_object.context_object_data.get("Task", {})
        endpoint = env.callback_pool_manager.get(task.get("Token", ""))
        if isinstance(endpoint, ActivityCallbackEndpoint):
            endpoint.interrupt_all()


_moto_evaluate_activity = StateTaskActivity._eval_execution


def _evaluate_callback(self: StateTaskServiceCallback, env: Environment) -> None:
    """Makes a token for each attempt; moto's second attempt has the first one's, which is closed, and times out at once."""
    task = env.states.context_object.context_object_data.get("Task")
    endpoint = env.callback_pool_manager.get(task["Token"]) if task else None
    if getattr(endpoint, "local_account_closed", False):
        env.callback_pool_manager.add(env.states.context_object.update_task_token())
    StateTaskService._eval_execution(self, env)
