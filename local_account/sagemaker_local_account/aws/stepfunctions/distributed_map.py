"""The Distributed Map state: moto's, with the tolerance of failures, the end of a Map Run, and the role's permissions.

moto runs the items as frames of the execution, counts the failures and never compares them with the tolerance. A worker recurses
for each item, until Python's limit; one that fails has no effect on the others. Here an item is still a frame, with an execution
of its own in its context.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from botocore.exceptions import ClientError
from moto.stepfunctions.parser.api import ExecutionFailedEventDetails, HistoryEventType
from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import FailureEvent, FailureEventException
from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name import StatesErrorName
from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name_type import StatesErrorNameType
from moto.stepfunctions.parser.asl.component.state.exec.state_map.item_reader.eval import resource_eval_s3 as reading
from moto.stepfunctions.parser.asl.component.state.exec.state_map.iteration.distributed_iteration_component import (
    DistributedIterationComponent,
)
from moto.stepfunctions.parser.asl.component.state.exec.state_map.result_writer.result_writer_decl import ResultWriter
from moto.stepfunctions.parser.asl.component.state.exec.state_task.credentials import StateCredentials
from moto.stepfunctions.parser.asl.eval.environment import Environment
from moto.stepfunctions.parser.asl.eval.event.event_detail import EventDetails
from moto.stepfunctions.parser.asl.eval.program_state import ProgramEnded, ProgramStopped
from moto.stepfunctions.parser.asl.eval.states import ItemData, MapData

from sagemaker_local_account.aws.events import bus
from sagemaker_local_account.aws.stepfunctions.item_execution import ItemExecution
from sagemaker_local_account.core.clock import CLOCK
from sagemaker_local_account.core.patches import patch
from sagemaker_local_account.iam.authorizer import AccessDenied, Authorizer
from sagemaker_local_account.iam.policies import Call

# Items at once where MaxConcurrency is 0 or more; on AWS at most 10,000 (Step Functions guide, "MaxConcurrency").
MOST_AT_ONCE = 100

_authorizer: Authorizer


def install(authorizer: Authorizer) -> None:
    """Patches moto's Distributed Map.

    Args:
        authorizer: evaluates the permissions of roles.
    """
    global _authorizer
    _authorizer = authorizer
    patch(DistributedIterationComponent, "_map_run", _map_run, "self, env, eval_input")
    patch(reading.ResourceEvalS3, "eval_resource", _read, "self, env")
    patch(ResultWriter, "_eval_body", _refuse_result_writer, "self, env")


def _map_run(self: DistributedIterationComponent, env: Environment, eval_input: Any) -> None:
    """Runs each item, and leaves their outputs on the stack in the order of the items."""
    items = env.stack.pop()
    _check_permission(env)
    run = _MapRun(self, env, eval_input, items)
    workers = min(len(items), eval_input.map_run_record.max_concurrency or MOST_AT_ONCE, MOST_AT_ONCE)
    threads = [threading.Thread(target=run.work, daemon=True) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    env.delete_frame(run.frame)
    if run.error is not None:
        raise run.error
    if run.exceeded:
        raise _failure(env, StatesErrorNameType.StatesExceedToleratedFailureThreshold, run.cause)
    env.stack.append([run.outputs[index] for index in sorted(run.outputs)])


class _MapRun:
    """The items of one Map Run, and the frame that ends with it."""

    def __init__(self, component: Any, env: Environment, eval_input: Any, items: list[Any]) -> None:
        self.component, self.env, self.eval_input, self.items = component, env, eval_input, items
        self.frame: Environment = env.open_frame()
        self.frame.event_manager = env.event_manager
        self.record = eval_input.map_run_record
        self.record.executions = {}
        self.outputs: dict[int, Any] = {}
        self.failures = 0
        self.exceeded = False
        self.error: Exception | None = None  # with which no item could begin, whatever is tolerated
        self._left: Iterator[tuple[int, Any]] = iter(enumerate(items))
        self._lock = threading.Lock()
        for counter in (self.record.item_counter, self.record.execution_counter):
            counter.total.count(len(items))

    @property
    def cause(self) -> str:
        """The cause of the error of a Map Run with too many failures."""
        return (
            f"The specified tolerated failure threshold was exceeded: {self.failures} of {len(self.items)} items failed"
        )

    def work(self) -> None:
        """Runs items until none is left, or the Map Run has ended."""
        while self.frame.is_running():
            with self._lock:
                following = next(self._left, None)
            if following is None:
                return
            self._run(*following)

    def _run(self, index: int, item: Any) -> None:
        counters = (self.record.item_counter, self.record.execution_counter)
        for counter in counters:
            counter.running.count()
        env = self.frame.open_inner_frame()
        try:
            if env.is_running():  # not where the Map Run ended meanwhile
                self._evaluate(env, index, item)
        except Exception as error:  # of an ItemSelector; a program's own are its state
            self.error = error
            self.frame.set_stop(stop_date=CLOCK.now(), cause=None, error=None)
        finally:
            state = env.program_state()
            self.frame.delete_frame(env)
        for counter in counters:
            counter.running.offset(-1)
            if isinstance(state, ProgramEnded):
                counter.succeeded.count()
                # Also without a ResultWriter (test_sfn_api_map_run.py::test_list_map_runs_and_describe_map_run).
                counter.results_written.count()
            elif isinstance(state, ProgramStopped):
                counter.aborted.count()
            else:
                counter.failed.count()
        with self._lock:
            if isinstance(state, ProgramEnded):
                self.outputs[index] = env.states.get_input()
            elif not isinstance(state, ProgramStopped):
                self.failures += 1
                self._end_if_exceeded()

    def _evaluate(self, env: Environment, index: int, item: Any) -> None:
        context = env.states.context_object.context_object_data
        execution = ItemExecution(self.record, env)
        context["Map"] = MapData(Item=ItemData(Index=index, Value=item))
        selector = self.eval_input.item_selector or self.eval_input.parameters
        if selector:
            env.states.reset(self.env.states.get_input())
            env.stack.append(env.states.get_input())
            selector.eval(env)
            item = env.stack.pop()
        env.states.reset(item)
        own = {
            "Id": execution.execution_arn,
            "Name": execution.name,
            "StartTime": bus.iso(execution.start_date),
            "Input": item,
        }
        context["Execution"] = {**context["Execution"], **own}
        execution.begin(item, env.aws_execution_details.role_arn)
        self.record.executions[execution.execution_arn] = execution
        try:
            self.component._get_iteration_program().eval(env)
        except RuntimeError:  # moto's, where the Map Run has just ended: what was stopped goes to no first state
            if env.is_running():
                raise
        finally:
            execution.end()

    def _end_if_exceeded(self) -> None:
        """Ends the Map Run, and stops its other items, once more items failed than either tolerance allows.

        A tolerance that is not given is 0, but where the other is ("Tolerated failure threshold for Distributed Map").
        """
        count, percentage = self.record.tolerated_failure_count, self.record.tolerated_failure_percentage
        allowed = []
        if count or not percentage:
            allowed.append(count)
        if percentage:
            allowed.append(len(self.items) * percentage / 100)
        if self.failures > min(allowed) and not self.exceeded:
            self.exceeded = True
            self.frame.set_stop(stop_date=CLOCK.now(), cause=None, error=None)


def _check_permission(env: Environment) -> None:
    """Checks the permission to start executions of the state machine itself ("IAM policies for using Distributed Map states")."""
    if not _authorizer.enforced:
        return
    machine = env.states.context_object.context_object_data["StateMachine"]["Id"]
    role = _authorizer.role(env.aws_execution_details.role_arn, "states")
    try:
        _authorizer.check(role, Call("states:StartExecution", machine))
    except AccessDenied as denied:
        raise _failure(env, StatesErrorNameType.StatesPermissions, str(denied)) from None


def _read(self: Any, env: Environment) -> None:
    """Reads items with the state machine's role; moto's fails without States.ItemReaderFailed."""
    self.resource.eval(env=env)
    part = env.stack.pop()
    credentials: Any = StateCredentials(role_arn=env.aws_execution_details.role_arn)
    credentials.machine_arn = env.states.context_object.context_object_data["StateMachine"]["Id"]
    try:
        self._get_api_action_handler()(env, part, credentials)
    except ClientError as error:
        raise _failure(env, StatesErrorNameType.StatesItemReaderFailed, str(error)) from None


def _refuse_result_writer(self: ResultWriter, env: Environment) -> None:
    """Fails the execution, since moto's writes a manifest that names no results."""
    raise _failure(
        env,
        StatesErrorNameType.StatesRuntime,
        "the local account does not support ResultWriter of a Map state; let each item write its result, by s3:putObject",
    )


def _failure(env: Environment, kind: StatesErrorNameType, cause: str) -> FailureEventException:
    name = StatesErrorName(typ=kind)
    details = ExecutionFailedEventDetails(error=name.error_name, cause=cause)
    return FailureEventException(
        failure_event=FailureEvent(
            env=env,
            error_name=name,
            event_type=HistoryEventType.ExecutionFailed,
            event_details=EventDetails(executionFailedEventDetails=details),
        )
    )
