"""An execution of a state machine: its start, stop, redrive and description, and the events of its changes."""

from __future__ import annotations

import datetime
import threading
from typing import Any

from moto.stepfunctions.parser.api import ExecutionStatus
from moto.stepfunctions.parser.asl.eval.evaluation_details import ExecutionDetails
from moto.stepfunctions.parser.asl.eval.program_state import ProgramStopped
from moto.stepfunctions.parser.asl.utils.encoding import to_json_str
from moto.stepfunctions.parser.backend.execution import BaseExecutionWorkerCommunication, Execution
from typing_extensions import override

from sagemaker_local_account.events import bus
from sagemaker_local_account.stepfunctions import redrive


class AccountExecution(Execution):
    """An execution of moto's that sends an event for each change of its status, and that can be redriven.

    ``ended`` is set once it has ended; ``version_arn`` and ``alias_arn`` are those that it was started by.
    """

    def __init__(self, *, version_arn: str | None = None, alias_arn: str | None = None, **details: Any) -> None:
        super().__init__(**details)
        self.version_arn, self.alias_arn = version_arn, alias_arn
        self.ended = threading.Event()
        self.redrive_count = 0
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
            self.redrive_date = datetime.datetime.now(datetime.UTC)
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
            worker.env.set_stop(stop_date=datetime.datetime.now(datetime.UTC), cause=cause, error=error)

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
            description["output"] = to_json_str(self.output, separators=(",", ":"))
            description["outputDetails"] = {"included": True}
        return {name: value for name, value in description.items() if value is not None}


class _Communication(BaseExecutionWorkerCommunication):
    execution: AccountExecution

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
