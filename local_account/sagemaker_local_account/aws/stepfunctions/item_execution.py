"""The executions that a Map Run starts, one for each item: what can be asked about them, and their end.

moto runs items as frames of the Map Run's execution, which nobody can describe. Their ARNs are those of AWS's example of
ResultWriter: the state machine's name, the Map Run's label and an id of their own.
"""

from __future__ import annotations

import datetime
import json
import threading
import uuid
from typing import Any

from moto.stepfunctions.parser.api import (
    ExecutionAbortedEventDetails,
    ExecutionStartedEventDetails,
    ExecutionSucceededEventDetails,
    ExecutionTimedOutEventDetails,
    HistoryEventExecutionDataDetails,
    HistoryEventType,
)
from moto.stepfunctions.parser.asl.eval.environment import Environment
from moto.stepfunctions.parser.asl.eval.event.event_detail import EventDetails
from moto.stepfunctions.parser.asl.eval.event.event_manager import EventHistoryContext, EventManager
from moto.stepfunctions.parser.asl.eval.program_state import (
    ProgramEnded,
    ProgramError,
    ProgramRunning,
    ProgramStopped,
    ProgramTimedOut,
)
from moto.stepfunctions.parser.asl.utils.encoding import to_json_str

from sagemaker_local_account.aws.events import bus
from sagemaker_local_account.core.clock import CLOCK

_STATUSES = {
    ProgramRunning: "RUNNING",
    ProgramEnded: "SUCCEEDED",
    ProgramError: "FAILED",
    ProgramStopped: "ABORTED",
    ProgramTimedOut: "TIMED_OUT",
}
_WHOLE = HistoryEventExecutionDataDetails(truncated=False)


class ItemExecution:
    """The execution of an item.

    Attributes:
        execution_arn: its ARN.
        parent_arn: that of the Map Run's execution.
        ended: set once it has ended.
        stop_date: when it ended.
    """

    def __init__(self, record: Any, env: Environment) -> None:
        self.name = str(uuid.uuid4())
        self.execution_arn = f"{record.map_state_machine_arn.replace(':stateMachine:', ':execution:')}:{self.name}"
        self.parent_arn = str(record.execution_arn)
        self.ended = threading.Event()
        self.start_date = CLOCK.now()
        self.stop_date: datetime.datetime | None = None
        self._record, self._env = record, env
        self._input = "{}"
        self._output: str | None = None

    def begin(self, item: Any, role_arn: str) -> None:
        """Writes the first event of a history of its own."""
        self._input = to_json_str(item, separators=(",", ":"))
        self._env.event_manager = EventManager()
        self._env.event_history_context = EventHistoryContext.of_program_start()
        details = ExecutionStartedEventDetails(input=self._input, inputDetails=_WHOLE, roleArn=role_arn)
        self._add("ExecutionStarted", {"executionStartedEventDetails": details}, first=True)

    def end(self) -> None:
        """Writes the last event of the history."""
        self.stop_date = CLOCK.now()
        state = self._env.program_state()
        details: dict[str, Any]
        if isinstance(state, ProgramEnded):
            self._output = to_json_str(self._env.states.get_input(), separators=(",", ":"))
            done = ExecutionSucceededEventDetails(output=self._output, outputDetails=_WHOLE)
            details = {"executionSucceededEventDetails": done}
        elif isinstance(state, ProgramStopped):
            self._env.event_history_context.source_event_id = 0
            stopped = ExecutionAbortedEventDetails(error=state.error, cause=state.cause)
            details = {"executionAbortedEventDetails": stopped}
        elif isinstance(state, ProgramError):
            details = {"executionFailedEventDetails": state.error or {}}
        else:
            details = {"executionTimedOutEventDetails": ExecutionTimedOutEventDetails()}
        kind = next(iter(details)).removesuffix("EventDetails")
        self._add(f"{kind[0].upper()}{kind[1:]}", details)
        self.ended.set()

    def _add(self, kind: str, details: Any, *, first: bool = False) -> None:
        self._env.event_manager.add_event(
            context=self._env.event_history_context,
            event_type=HistoryEventType(kind),
            event_details=EventDetails(**details),
            update_source_event_id=not first,
        )

    @property
    def status(self) -> str:
        """Its status."""
        return _STATUSES[type(self._env.program_state())]

    def request_stop(self, *, error: str | None, cause: str | None) -> None:
        """Begins to end the execution as ABORTED."""
        self._env.set_stop(stop_date=CLOCK.now(), cause=cause, error=error)

    def described(self) -> dict[str, Any]:
        """Returns DescribeExecution's response."""
        state, status = self._env.program_state(), self.status
        failed = status in ("FAILED", "ABORTED", "TIMED_OUT")
        of = state.error or {} if isinstance(state, ProgramError) else {}
        stopped = isinstance(state, ProgramStopped)
        described = {
            "executionArn": self.execution_arn,
            "stateMachineArn": self._record.map_state_machine_arn,
            "name": self.name,
            "status": status,
            "startDate": self.start_date,
            "stopDate": self.stop_date,
            "input": self._input,
            "inputDetails": {"included": True},
            "output": self._output,
            "outputDetails": None if self._output is None else {"included": True},
            "mapRunArn": self._record.map_run_arn,
            "error": state.error if stopped else of.get("error"),
            "cause": state.cause if stopped else of.get("cause"),
            "redriveCount": 0,
            "redriveStatus": "REDRIVABLE_BY_MAP_RUN" if failed else "NOT_REDRIVABLE",
            "redriveStatusReason": None if failed else f"Execution is {status} and cannot be redriven",
        }
        return {name: value for name, value in described.items() if value is not None}

    @property
    def state(self) -> Any:
        """Its end, of a class of moto's `program_state`."""
        return self._env.program_state()

    @property
    def output(self) -> Any:
        """Its output; None before it has one."""
        return None if self._output is None else json.loads(self._output)

    def result(self) -> dict[str, Any]:
        """Returns what ResultWriter writes of it: the members of DescribeExecution in capitals."""
        described = {name: it for name, it in self.described().items() if name != "mapRunArn"}
        for name in ("startDate", "stopDate"):
            described[name] = bus.iso(described[name])
        for name in ("inputDetails", "outputDetails"):
            if name in described:
                described[name] = {"Included": True}
        return {name[0].upper() + name[1:]: it for name, it in described.items()}

    def to_history_output(self) -> dict[str, Any]:
        """Returns GetExecutionHistory's response."""
        return {"events": self._env.event_manager.get_event_history()}
