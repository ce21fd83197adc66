"""An execution of a state machine: its start, stop, redrive and description, and the events of its changes."""

from __future__ import annotations

import datetime
import json
import threading
import zlib
from typing import Any

from moto.logs.models import logs_backends
from moto.stepfunctions.parser.api import ExecutionStatus
from moto.stepfunctions.parser.asl.component.program import program
from moto.stepfunctions.parser.asl.component.state import state
from moto.stepfunctions.parser.asl.eval.evaluation_details import ExecutionDetails
from moto.stepfunctions.parser.asl.eval.event.logging import (
    VALIDATION_LOG_STREAM_NAME,
    CloudWatchLoggingConfiguration,
    CloudWatchLoggingSession,
)
from moto.stepfunctions.parser.asl.eval.program_state import ProgramStopped
from moto.stepfunctions.parser.asl.utils.encoding import to_json_str
from moto.stepfunctions.parser.backend import execution_worker
from moto.stepfunctions.parser.backend.execution import BaseExecutionWorkerCommunication, Execution
from typing_extensions import override

from sagemaker_local_account.aws.events import bus
from sagemaker_local_account.aws.stepfunctions import redrive
from sagemaker_local_account.core.clock import CLOCK
from sagemaker_local_account.core.patches import patch


def install() -> None:
    """Patches what writes the data of events."""
    for module in (execution_worker, program, state):
        patch(module, "to_json_str", json_text, "obj, separators")


class _GivenList(list[Any]):
    text = ""


class _GivenDict(dict[str, Any]):
    text = ""


def with_text(value: Any, text: str) -> Any:
    """Keeps the text of an execution's input with the value, until a state changes it.

    AWS writes into events what StartExecution was given, blanks included, and moto what it would write itself
    (`scenarios/test_base_scenarios.py::test_parallel_state_nested`, `test_map_state_legacy_config_inline`).
    """
    if not isinstance(value, list | dict):
        return value
    given = _GivenList(value) if isinstance(value, list) else _GivenDict(value)
    given.text = text
    return given


def json_text(obj: Any, separators: tuple[str, str] | None = None) -> str:
    """Writes a value as JSON, and what an execution was given as its text was."""
    if isinstance(obj, _GivenList | _GivenDict) and json.loads(obj.text) == obj:
        return obj.text
    if isinstance(obj, list) and any(isinstance(it, list | dict) for it in obj):
        comma = (separators or (", ", ": "))[0]
        return f"[{comma.join(json_text(it, separators) for it in obj)}]"
    return to_json_str(obj, separators)


class LogSession(CloudWatchLoggingSession):
    """Writes the events of an execution into the log group of its state machine, by moto's filter of levels.

    moto's has no stream, and puts an event that CloudWatch Logs cannot hold. The lines are those of LocalStack's recordings
    `logs/test_logs.py`; "states/<name>/<date>/<id>" is the name of a stream on AWS ("Logging to CloudWatch Logs").
    """

    def __init__(
        self, execution: AccountExecution, configuration: CloudWatchLoggingConfiguration, machine: Any
    ) -> None:
        self.execution, self.execution_arn, self.configuration = execution, execution.exec_arn, configuration
        # Executions share a stream (logs/test_logs.py::test_log_group_with_multiple_runs).
        date, shard = machine.creation_date.strftime("%Y-%m-%d-%H-%M"), f"{zlib.crc32(machine.arn.encode()):08x}"
        self.stream = f"states/{machine.name}/{date}/{shard}"

    @override
    def publish_history_log(self, history_log: Any) -> None:
        now = datetime.datetime.now(datetime.UTC)
        line = {
            "id": history_log["id"],
            "type": history_log["type"],
            "details": history_log.get("details") or {},
            "previous_event_id": history_log["previous_event_id"],
            "event_timestamp": str(int(now.timestamp() * 1000)),
            "execution_arn": self.execution_arn,
            "redrive_count": str(self.execution.redrive_count),
        }
        to = self.configuration
        logs = logs_backends[to.log_account_id][to.log_region]
        group = logs.groups.get(to.log_group_name)
        if group is None:
            return  # it was deleted (logs/test_logs.py::test_deleted_log_group)
        if self.stream not in group.streams:
            logs.create_log_stream(to.log_group_name, self.stream)
        event = {"timestamp": int(now.timestamp() * 1000), "message": to_json_str(line, separators=(",", ":"))}
        logs.put_log_events(to.log_group_name, self.stream, [event])


def validate_log_group(configuration: dict[str, Any]) -> bool:
    """Whether the log group of a LoggingConfiguration exists; it gets the stream with which AWS validates it."""
    parts = CloudWatchLoggingConfiguration.extract_log_arn_parts_from(configuration)
    if parts is None:
        return False
    account, region, name = parts
    logs = logs_backends[account][region]
    if (group := logs.groups.get(name)) is None:
        return False
    if VALIDATION_LOG_STREAM_NAME not in group.streams:
        logs.create_log_stream(name, VALIDATION_LOG_STREAM_NAME)
    return True


class AccountExecution(Execution):
    """An execution of moto's that sends an event for each change of its status, and that can be redriven.

    ``ended`` is set once it has ended; ``version_arn`` and ``alias_arn`` are those that it was started by.
    """

    def __init__(self, *, version_arn: str | None = None, alias_arn: str | None = None, **details: Any) -> None:
        super().__init__(**details)
        self.input_data = with_text(json.loads(details["input_data"]), details["input_data"])
        self.version_arn, self.alias_arn = version_arn, alias_arn
        self.redrive_count = 0
        machine = self.state_machine
        configuration = CloudWatchLoggingConfiguration.from_logging_configuration(
            machine.arn, machine.loggingConfiguration
        )
        if configuration is not None:
            self._cloud_watch_logging_session = LogSession(self, configuration, machine)
        self.ended = threading.Event()
        self.redrive_date: datetime.datetime | None = None
        self._redriven_by: set[str] = set()
        self._redriving = threading.Lock()

    @override
    def get_start_execution_details(self) -> ExecutionDetails:
        details = super().get_start_execution_details()
        # $$.Execution.StartTime is a string on AWS; moto's is a datetime, which intrinsic functions reject.
        details.start_time = bus.iso(self.start_date)
        return details

    @override
    def start(self) -> None:
        self.exec_worker = self._get_start_execution_worker()
        self.exec_status = ExecutionStatus.RUNNING
        bus.execution_changed(self)  # before the worker can end it
        self.exec_worker.start()

    def redrive(self, client_token: str | None) -> None:
        """Restarts the execution from the state that failed; once for each token."""
        with self._redriving:
            if client_token in self._redriven_by:
                return
            if (reason := redrive.not_redrivable_reason(self)) is not None:
                raise redrive.ExecutionNotRedrivable(reason)
            if client_token is not None:
                self._redriven_by.add(client_token)
            self.redrive_count += 1
            self.redrive_date = CLOCK.now()
            self.ended.clear()
            self.error = self.cause = self.stop_date = None
            former: Any = vars(self)["exec_worker"]
            worker = redrive.RedrivenWorker(former, self.redrive_count, self._get_start_execution_worker_comm())
            self.exec_worker = worker
            self.exec_status = ExecutionStatus.RUNNING
        bus.execution_changed(self)
        worker.start()

    def request_stop(self, *, error: str | None, cause: str | None) -> None:
        """Begins to end the execution as ABORTED; `ended` is set once it has ended."""
        worker = self.exec_worker
        # The worker's thread creates its environment; StopExecution may come before.
        while worker is not None and worker.env is None and not self.ended.wait(0.01):
            pass
        if worker is not None and worker.env is not None:
            worker.env.set_stop(stop_date=CLOCK.now(), cause=cause, error=error)

    def _get_start_execution_worker_comm(self) -> BaseExecutionWorkerCommunication:
        return _Communication(self)

    def described(self) -> dict[str, Any]:
        """Returns DescribeExecution's response."""
        reason = redrive.not_redrivable_reason(self)
        description = {
            "executionArn": self.exec_arn,
            "stateMachineArn": self.state_machine.arn,
            "stateMachineVersionArn": self.version_arn,
            "stateMachineAliasArn": self.alias_arn,
            "name": self.name,
            "status": self.status,
            "startDate": self.start_date,
            "input": self.execution_input,
            "inputDetails": {"included": True},
            "redriveCount": self.redrive_count,
            "redriveDate": self.redrive_date,
            "redriveStatus": "REDRIVABLE" if reason is None else "NOT_REDRIVABLE",
            "redriveStatusReason": reason,
            "stopDate": self.stop_date,
            "error": self.error,
            "cause": self.cause,
        }
        if self.exec_status == ExecutionStatus.SUCCEEDED:
            description["output"] = json_text(self.output, (",", ":"))
            description["outputDetails"] = {"included": True}
        return {name: value for name, value in description.items() if value is not None}


class _Communication(BaseExecutionWorkerCommunication):
    execution: AccountExecution

    @override
    def _reflect_execution_status(self) -> None:
        super()._reflect_execution_status()
        execution: Any = self.execution
        execution.stop_date = CLOCK.now()  # moto's is the machine's

    def terminated(self) -> None:
        super().terminated()
        env = self.execution.exec_worker.env
        for endpoint in [*env.callback_pool_manager._pool.values()]:
            endpoint.interrupt_all()
        state = env.program_state()
        if isinstance(state, ProgramStopped):
            self.execution.error = state.error
            self.execution.cause = state.cause
        try:
            bus.execution_changed(self.execution)
        finally:
            self.execution.ended.set()
