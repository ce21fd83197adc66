"""The Distributed Map state: moto's, with the tolerance of failures, the end of a Map Run, and the role's permissions.

moto runs the items as frames of the execution, counts the failures and never compares them with the tolerance. A worker recurses
for each item, until Python's limit; one that fails has no effect on the others. Here an item is still a frame, with an execution
of its own in its context.
"""

from __future__ import annotations

import json
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
from moto.stepfunctions.parser.asl.component.state.exec.state_map.result_writer.resource_eval.resource_eval_s3 import (
    ResourceEvalS3,
)
from moto.stepfunctions.parser.asl.component.state.exec.state_map.result_writer.result_writer_decl import ResultWriter
from moto.stepfunctions.parser.asl.component.state.exec.state_task.credentials import StateCredentials
from moto.stepfunctions.parser.asl.eval.environment import Environment
from moto.stepfunctions.parser.asl.eval.event.event_detail import EventDetails
from moto.stepfunctions.parser.asl.eval.program_state import (
    ProgramEnded,
    ProgramError,
    ProgramStopped,
    ProgramTimedOut,
)
from moto.stepfunctions.parser.asl.eval.states import ItemData, MapData

from sagemaker_local_account.aws.events import bus
from sagemaker_local_account.aws.stepfunctions import asl_patches, map_extensions
from sagemaker_local_account.aws.stepfunctions.item_execution import ItemExecution
from sagemaker_local_account.core.clock import CLOCK
from sagemaker_local_account.core.patches import patch
from sagemaker_local_account.iam.authorizer import AccessDenied, Authorizer
from sagemaker_local_account.iam.policies import Call

# Items at once where MaxConcurrency is 0 or more; on AWS at most 10,000 (Step Functions guide, "MaxConcurrency").
MOST_AT_ONCE = 100

_MAP_RUN = "local_account_map_run"  # the attribute of the environment of a Map state with the run that has ended
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
    patch(ResultWriter, "_eval_body", _write_results, "self, env")


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
    setattr(env, _MAP_RUN, run)
    outputs = [run.outputs[index] for index in sorted(run.outputs)]
    of_output = run.extensions.writer and not run.extensions.exports
    env.stack.append(run.results(ProgramEnded) if of_output else outputs)


class _MapRun:
    """The items of one Map Run, and the frame that ends with it."""

    def __init__(self, component: Any, env: Environment, eval_input: Any, items: list[Any]) -> None:
        self.component, self.env, self.eval_input, self.items = component, env, eval_input, items
        self.frame: Environment = env.open_frame()
        self.frame.event_manager = env.event_manager
        self.extensions = map_extensions.extensions_of(component)
        self.total = len(items)
        self.weights = [1] * len(items)
        self._selected = False
        self.record = eval_input.map_run_record
        self.record.executions = {}
        self.outputs: dict[int, Any] = {}
        self.places: dict[str, int] = {}  # of executions
        self.failures = 0
        self.exceeded = False
        self.error: Exception | None = None  # with which no item could begin, whatever is tolerated
        self._lock = threading.Lock()
        if self.extensions.batcher:
            self._batch()
        self._left: Iterator[tuple[int, Any]] = iter(enumerate(self.items))
        self.record.item_counter.total.count(self.total)
        self.record.execution_counter.total.count(len(self.items))

    def results(self, status: Any) -> list[Any]:
        """What a ResultWriter writes of the items whose executions ended in a way, in their order.

        Args:
            status: moto's class of that end. Of others than those that succeeded the results are as without a transformation.
        """
        made = [it for it in self.record.executions.values() if isinstance(it.state, status)]
        made.sort(key=lambda it: self.places[it.execution_arn])
        if status is not ProgramEnded or self.extensions.writer.get("Transformation", "NONE") == "NONE":
            return [it.result() for it in made]
        return map_extensions.transformed(self.extensions, [it.output for it in made])

    @property
    def cause(self) -> str:
        """The cause of the error of a Map Run with too many failures."""
        return f"The specified tolerated failure threshold was exceeded: {self.failures} of {self.total} items failed"

    def work(self) -> None:
        """Runs items until none is left, or the Map Run has ended."""
        while self.frame.is_running():
            with self._lock:
                following = next(self._left, None)
            if following is None:
                return
            self._run(*following)

    def _batch(self) -> None:
        """Replaces the items by batches of them, each of which has an execution."""
        selected = []
        for index, item in enumerate(self.items):
            env = self.frame.open_inner_frame()
            selected.append(self._selected_of(env, index, item))
            self.frame.delete_frame(env)
        state_input = self.env.states.get_input()
        self.items = map_extensions.batches(self.extensions, selected, self.env, state_input)
        self.weights = [len(batch["Items"]) for batch in self.items]
        self._selected = True

    def _run(self, index: int, item: Any) -> None:
        counters = ((self.record.item_counter, self.weights[index]), (self.record.execution_counter, 1))
        for counter, weight in counters:
            counter.running.offset(weight)
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
        for counter, weight in counters:
            counter.running.offset(-weight)
            if isinstance(state, ProgramEnded):
                counter.succeeded.offset(weight)
                # Also without a ResultWriter (test_sfn_api_map_run.py::test_list_map_runs_and_describe_map_run).
                counter.results_written.offset(weight)
            elif isinstance(state, ProgramStopped):
                counter.aborted.offset(weight)
            else:
                counter.failed.offset(weight)
        with self._lock:
            if isinstance(state, ProgramEnded):
                self.outputs[index] = env.states.get_input()
            elif not isinstance(state, ProgramStopped):
                self.failures += self.weights[index]
                self._end_if_exceeded()

    def _evaluate(self, env: Environment, index: int, item: Any) -> None:
        context = env.states.context_object.context_object_data
        execution = ItemExecution(self.record, env)
        if not self._selected:
            item = self._selected_of(env, index, item)
        env.states.reset(item)
        own = {
            "Id": execution.execution_arn,
            "Name": execution.name,
            "StartTime": bus.iso(execution.start_date),
            "Input": item,
        }
        context["Execution"] = {**context["Execution"], **own}
        if self.extensions.express:
            asl_patches.limit_express(env)
        execution.begin(item, env.aws_execution_details.role_arn)
        self.record.executions[execution.execution_arn] = execution
        self.places[execution.execution_arn] = index
        try:
            self.component._get_iteration_program().eval(env)
        except RuntimeError:  # moto's, where the Map Run has just ended: what was stopped goes to no first state
            if env.is_running():
                raise
        finally:
            execution.end()

    def _selected_of(self, env: Environment, index: int, item: Any) -> Any:
        """An item as ItemSelector makes it."""
        env.states.context_object.context_object_data["Map"] = MapData(Item=ItemData(Index=index, Value=item))
        selector = self.eval_input.item_selector or self.eval_input.parameters
        if not selector:
            return item
        env.states.reset(self.env.states.get_input())
        env.stack.append(env.states.get_input())
        selector.eval(env)
        return env.stack.pop()

    def _end_if_exceeded(self) -> None:
        """Ends the Map Run, and stops its other items, once more items failed than either tolerance allows.

        A tolerance that is not given is 0, but where the other is ("Tolerated failure threshold for Distributed Map").
        """
        count, percentage = self.record.tolerated_failure_count, self.record.tolerated_failure_percentage
        allowed = []
        if count or not percentage:
            allowed.append(count)
        if percentage:
            allowed.append(self.total * percentage / 100)
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


def _credentials(env: Environment) -> Any:
    """Those of the state machine's role."""
    credentials: Any = StateCredentials(role_arn=env.aws_execution_details.role_arn)
    credentials.machine_arn = env.states.context_object.context_object_data["StateMachine"]["Id"]
    return credentials


def _read(self: Any, env: Environment) -> None:
    """Reads items with the state machine's role; moto's fails without States.ItemReaderFailed."""
    self.resource.eval(env=env)
    part = env.stack.pop()
    try:
        self._get_api_action_handler()(env, part, _credentials(env))
    except ClientError as error:
        raise _failure(env, StatesErrorNameType.StatesItemReaderFailed, str(error)) from None


def _write_results(self: ResultWriter, env: Environment) -> None:
    """Writes the results with the state machine's role, and a manifest of them; moto's manifest names none."""
    self.parargs.eval(env=env)
    to = env.stack.pop()
    env.stack.pop()
    run: _MapRun = getattr(env, _MAP_RUN)
    self.resource_eval.resource.eval(env=env)
    part = env.stack.pop()
    prefix = to.get("Prefix", "")
    folder = f"{prefix}{'/' if prefix and not prefix.endswith('/') else ''}{run.record.map_run_arn.rpartition(':')[2]}"
    lines = run.extensions.writer.get("OutputType") == "JSONL"
    try:
        s3 = ResourceEvalS3._get_s3_client(resource_runtime_part=part, state_credentials=_credentials(env))
        files: dict[str, list[dict[str, Any]]] = {"FAILED": [], "PENDING": [], "SUCCEEDED": []}
        for name, status in (("FAILED", (ProgramError, ProgramTimedOut)), ("SUCCEEDED", ProgramEnded)):
            results = run.results(status)
            if not results:
                continue
            body = "\n".join(map(json.dumps, results)) if lines else json.dumps(results)
            key = f"{folder}/{name}_0.{'jsonl' if lines else 'json'}"
            s3.put_object(Bucket=to["Bucket"], Key=key, Body=body.encode())
            files[name].append({"Key": key, "Size": len(body.encode())})
        manifest = {"DestinationBucket": to["Bucket"], "MapRunArn": run.record.map_run_arn, "ResultFiles": files}
        key = f"{folder}/manifest.json"
        s3.put_object(Bucket=to["Bucket"], Key=key, Body=json.dumps(manifest).encode())
    except ClientError as error:
        raise _failure(env, StatesErrorNameType.StatesResultWriterFailed, str(error)) from None
    written = {"Bucket": to["Bucket"], "Key": key}
    env.stack.append({"MapRunArn": run.record.map_run_arn, "ResultWriterDetails": written})


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
