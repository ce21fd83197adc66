"""RedriveExecution, which moto lacks: an execution restarts from the state that failed.

Source: "Restarting state machine executions with redrive" (Step Functions guide): same execution and definition, the state's
input, retries and timeout from the beginning, a continued history, `$$.Execution.RedriveCount`. A Fail state fails again.
"""

from __future__ import annotations

import datetime
from typing import Any

from moto.core.exceptions import AWSError
from moto.stepfunctions.parser.api import HistoryEventType
from moto.stepfunctions.parser.asl.component.state.state import CommonStateField
from moto.stepfunctions.parser.asl.eval.environment import Environment
from moto.stepfunctions.parser.backend.execution_worker import ExecutionWorker

from sagemaker_local_account.aws.events import bus
from sagemaker_local_account.core.clock import CLOCK
from sagemaker_local_account.core.patches import patch

DAYS = 14
MOST_EVENTS = 24_999
# AWS redrives the failed branches and iterations of these states; here they are not recorded.
_WITH_BRANCHES = ("Map", "Parallel")


class ExecutionNotRedrivable(AWSError):
    """The execution cannot be redriven."""

    TYPE = "ExecutionNotRedrivable"
    STATUS = 400


def install() -> None:
    """Patches moto to record the state that each execution entered last."""
    patch(CommonStateField, "_eval_body", _eval_body, "self, env")


def _eval_body(self: CommonStateField, env: Environment) -> None:
    # On AWS the context object always has RedriveCount; moto's lacks it.
    if not hasattr(env, "local_account_tested"):
        env.states.context_object.context_object_data["Execution"].setdefault("RedriveCount", 0)
    if not env.is_frame():
        env.local_account_entered = (self, env.states.get_input())
    _moto_eval_body(self, env)


_moto_eval_body = CommonStateField._eval_body


def not_redrivable_reason(execution: Any) -> str | None:
    """Returns the reason why an execution cannot be redriven, or None."""
    status = execution.status
    if status not in ("FAILED", "ABORTED", "TIMED_OUT"):
        return f"Execution is {status} and cannot be redriven"
    worker = execution.exec_worker
    if worker is None or worker.env is None or not hasattr(worker.env, "local_account_entered"):
        return "the local account redrives an execution from a state, and this execution has not entered one"
    state, _ = worker.env.local_account_entered
    if state.state_type.name in _WITH_BRANCHES:
        return f"the local account cannot redrive {state.state_type.name} states such as {state.name!r}"
    if CLOCK.now() - execution.stop_date > datetime.timedelta(days=DAYS):
        return f"Execution has exceeded the redrivable period of {DAYS} days"
    if len(worker.env.event_manager.get_event_history()) >= MOST_EVENTS:
        return f"Execution history size is {MOST_EVENTS} events or more"
    return None


class RedrivenWorker(ExecutionWorker):
    """Runs an execution again from the state that it entered last.

    Args:
        former: the worker of the execution's last run.
        count: RedriveCount.
        exec_comm: moto's callback for the end of the execution.
    """

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
        execution["RedriveTime"] = bus.iso(CLOCK.now())
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
