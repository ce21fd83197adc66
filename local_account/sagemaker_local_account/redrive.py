"""Redriven executions, which moto does not have: they go on from the state that was not successful.

As "Restarting state machine executions with redrive" (Step Functions guide) has it: the same execution and definition, the
state's input again, retries and the time-out from the beginning, a history that grows, `$$.Execution.RedriveCount`. A Fail state
fails again.
"""

from __future__ import annotations

import datetime
from typing import Any

from moto.core.exceptions import AWSError
from moto.stepfunctions.parser.api import HistoryEventType
from moto.stepfunctions.parser.asl.component.state.state import CommonStateField
from moto.stepfunctions.parser.asl.eval.environment import Environment
from moto.stepfunctions.parser.backend.execution_worker import ExecutionWorker

from . import events
from .patches import patch

DAYS = 14
MOST_EVENTS = 24_999
# AWS redrives the branches and iterations of these that failed; here nothing remembers them.
_WITH_BRANCHES = ("Map", "Parallel")


class ExecutionNotRedrivable(AWSError):
    TYPE = "ExecutionNotRedrivable"
    STATUS = 400


def install() -> None:
    """Remember the state that each execution entered last."""
    patch(CommonStateField, "_eval_body", _eval_body, "self, env")


def _eval_body(self: CommonStateField, env: Environment) -> None:
    # The context has the count whether or not there was a redrive; moto's has none.
    env.states.context_object.context_object_data["Execution"].setdefault("RedriveCount", 0)
    if not env.is_frame():
        env.local_account_entered = (self, env.states.get_input())
    _moto_eval_body(self, env)


_moto_eval_body = CommonStateField._eval_body


def why_not(execution: Any) -> str | None:
    """Why an execution cannot be redriven; None where it can."""
    status = execution.status
    if status not in ("FAILED", "ABORTED", "TIMED_OUT"):
        return f"Execution is {status} and cannot be redriven"
    worker = execution.exec_worker
    if worker is None or worker.env is None or not hasattr(worker.env, "local_account_entered"):
        return "the local account redrives an execution from a state, and this one entered none"
    state, _ = worker.env.local_account_entered
    if state.state_type.name in _WITH_BRANCHES:
        return f"the local account redrives no state of the type {state.state_type.name}, which {state.name!r} is"
    if datetime.datetime.now(datetime.UTC) - execution.stop_date > datetime.timedelta(days=DAYS):
        return f"Execution has exceeded the redrivable period of {DAYS} days"
    if len(worker.env.event_manager.get_event_history()) >= MOST_EVENTS:
        return f"Execution history size is {MOST_EVENTS} events or more"
    return None


class RedrivenWorker(ExecutionWorker):
    """Runs an execution once more, from the state that ``former`` entered last."""

    def __init__(self, former: ExecutionWorker, count: int, exec_comm: Any) -> None:
        super().__init__(
            evaluation_details=former._evaluation_details,
            exec_comm=exec_comm,
            cloud_watch_logging_session=former._cloud_watch_logging_session,
            activity_store=former._activity_store,
        )
        self._former, self._count = former.env, count

    def _get_evaluation_environment(self) -> Environment:
        env = super()._get_evaluation_environment()
        state, given = self._former.local_account_entered
        env.local_account_start_at = state.name
        env.event_manager = self._former.event_manager
        env.variable_store = self._former.variable_store
        env.states.reset(given)
        execution = env.states.context_object.context_object_data["Execution"]
        execution["RedriveCount"] = self._count
        execution["RedriveTime"] = events.iso(datetime.datetime.now(datetime.UTC))
        return env

    def _execution_logic(self) -> None:
        program = self._get_evaluation_entrypoint()
        self.env = self._get_evaluation_environment()
        self.env.event_manager.add_event(
            context=self.env.event_history_context,
            event_type=HistoryEventType.ExecutionRedriven,
            event_details={"executionRedrivenEventDetails": {"redriveCount": self._count}},
            update_source_event_id=False,
        )
        program.eval(self.env)
        self._execution_communication.terminated()
