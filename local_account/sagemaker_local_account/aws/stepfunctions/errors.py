"""Errors of states: the names under which Retry and Catch match them, their causes, and the events that they add."""

from __future__ import annotations

import re
from typing import Any

from moto.stepfunctions.parser.api import ExecutionFailedEventDetails, HistoryEventType
from moto.stepfunctions.parser.asl.component.common.error_name.custom_error_name import CustomErrorName
from moto.stepfunctions.parser.asl.component.common.error_name.error_name import ErrorName
from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import FailureEvent, FailureEventException
from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name import StatesErrorName
from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name_type import StatesErrorNameType
from moto.stepfunctions.parser.asl.component.state.choice.state_choice import StateChoice
from moto.stepfunctions.parser.asl.component.state.exec.execute_state import ExecutionState
from moto.stepfunctions.parser.asl.component.state.exec.state_map.iteration import iteration_worker
from moto.stepfunctions.parser.asl.component.state.exec.state_parallel import branches_decl
from moto.stepfunctions.parser.asl.component.state.exec.state_parallel.branches_decl import BranchesDecl
from moto.stepfunctions.parser.asl.component.state.exec.state_task.state_task import StateTask
from moto.stepfunctions.parser.asl.component.state.state import CommonStateField
from moto.stepfunctions.parser.asl.eval.environment import Environment
from moto.stepfunctions.parser.asl.eval.event.event_detail import EventDetails
from moto.stepfunctions.parser.asl.eval.event.event_manager import EventHistoryContext, EventManager
from moto.stepfunctions.parser.asl.utils.encoding import to_json_str

from sagemaker_local_account.core.patches import patch

_PREFIX = "An error occurred while executing the state"


def install() -> None:
    """Patches moto's states."""
    patch(branches_decl, "CustomErrorName", PropagatedErrorName)
    patch(iteration_worker, "CustomErrorName", PropagatedErrorName)
    patch(StateChoice, "_eval_state", _evaluate_choice, "self, env")
    patch(CommonStateField, "_eval_state_input", _evaluate_input, "self, env")
    patch(
        EventManager,
        "add_event",
        _add_event,
        "self, context, event_type, event_details, timestamp, update_source_event_id",
    )
    patch(FailureEvent, "__init__", _new_failure, "self, env, error_name, event_type, event_details")
    patch(ExecutionState, "_from_error", _error_of_state, "self, env, ex")
    patch(ExecutionState, "_handle_uncaught", _handle_uncaught, "self, env, failure_event")
    patch(FailureEventException, "get_execution_failed_event_details", _execution_failed, "self")
    patch(FailureEventException, "get_evaluation_failed_event_details", _recorded_failure, "self")


def parent_of(env: Environment) -> Environment | None:
    """Returns the environment in which the frame of a branch or iteration was opened; None for an execution's own."""
    return getattr(env, "local_account_parent", None)


def nearest(env: Environment, name: str) -> Any:
    """The environment, or the nearest around it, that has an attribute; None where none has."""
    place: Environment | None = env
    while place is not None and not hasattr(place, name):
        place = parent_of(place)
    return place


class PropagatedErrorName(CustomErrorName):
    """The error with which a branch or an iteration ended: in moto those of States, such as States.Timeout, are illegal."""

    def __init__(self, error_name: str | None) -> None:
        ErrorName.__init__(self, error_name)


def _evaluate_choice(self: StateChoice, env: Environment) -> None:
    """Chooses the next state; without a match the state fails as States.NoChoiceMatched, in moto as States.Runtime."""
    for rule in self.choices_decl.rules:
        rule.eval(env)
        if env.stack.pop() is True:
            env.stack.append(rule.next_stmt.name)
            return
    if self.default_state is not None:
        env.stack.append(self.default_state.state_name)
        return
    # "A Choice state failed to match the conditions defined in the Choice Rule and a Default transition is not specified"
    # (Handling errors in Step Functions workflows); AWS's own sentence in the history is not recorded.
    cause = f"No rule of the state '{self.name}' matches its input, and it has no Default"
    raise failure(env, StatesErrorNameType.StatesNoChoiceMatched, cause)


def failure(env: Environment, error: StatesErrorNameType, cause: str) -> FailureEventException:
    """Returns what a state raises to fail its execution."""
    name = StatesErrorName(typ=error)
    details = EventDetails(executionFailedEventDetails={"error": name.error_name, "cause": cause})
    return FailureEventException(
        FailureEvent(env=env, error_name=name, event_type=HistoryEventType.ExecutionFailed, event_details=details)
    )


def evaluation_failed(
    env: Environment, cause: str, location: str = "", *, waits: bool = False
) -> FailureEventException:
    """Puts the event EvaluationFailed, and returns the exception States.QueryEvaluationError.

    The event before it is the one before the state was entered, and of a Wait (``waits``) that with which it was entered.

    The text, the members and the event before it are those of LocalStack's recording
    `test_assign_reference_variables.py::test_undefined_reference[BASE_UNDEFINED_OUTPUT_FIELD]`.
    """
    name = StatesErrorName(typ=StatesErrorNameType.StatesQueryEvaluationError)
    state = env.states.context_object.context_object_data["State"]["Name"]
    entered = _entered_event(env)
    details = _Recorded(
        cause=f"{_PREFIX} '{state}' (entered at the event id #{entered}). {cause}", error=name.error_name, state=state
    )
    if location:
        details["location"] = location
    context = env.event_history_context
    if context.source_event_id == entered and not waits:
        context.source_event_id = env.event_manager._history_event_list[entered - 1]["previousEventId"]
    env.event_manager.add_event(
        context=context,
        event_type=HistoryEventType.EvaluationFailed,
        event_details=EventDetails(evaluationFailedEventDetails=dict(details)),
    )
    return FailureEventException(
        FailureEvent(
            env=env,
            error_name=name,
            event_type=HistoryEventType.EvaluationFailed,
            event_details=EventDetails(evaluationFailedEventDetails=details),
        )
    )


class _Recorded(dict[str, Any]):
    """The details of an event that is in the history already: moto adds it again for a Task, and not for other states."""


def _add_event(
    self: EventManager,
    context: EventHistoryContext,
    event_type: HistoryEventType,
    event_details: Any = None,
    *args: Any,
    **kwargs: Any,
) -> int:
    if event_details and any(isinstance(details, _Recorded) for details in event_details.values()):
        return context.source_event_id
    if event_type == HistoryEventType.ExecutionFailed and event_details:
        event_details = {
            kind: {name: it for name, it in details.items() if it is not None}
            for kind, details in event_details.items()
        }
    event_id: int = _moto_add_event(self, context, event_type, event_details, *args, **kwargs)
    return event_id


_moto_add_event = EventManager.add_event


def _new_failure(
    self: FailureEvent, env: Environment, error_name: Any, event_type: HistoryEventType, event_details: Any = None
) -> None:
    """Names the event with which the state was entered; moto names the last event, and the last name of a path alone.

    `scenarios/test_base_scenarios.py::test_catch_states_runtime`: a path of which the first name is missing.
    """
    _moto_new_failure(self, env, error_name, event_type, event_details)
    self.source_event_id = _entered_event(env) or self.source_event_id
    for details in (event_details or {}).values():
        if isinstance(details.get("cause"), dict):
            # JSON, not Python's text of it (services/test_events_task_service.py::test_put_events_malformed_detail).
            details["cause"] = to_json_str(details["cause"], separators=(",", ":"))
        if found := re.match(r"Invalid path '(\$\.[\w.]+)' : No results for path: ", details.get("cause") or ""):
            details["cause"] = f"Invalid path '{found[1]}' : {_missing(found[1], env.states.get_input())}"


_moto_new_failure = FailureEvent.__init__


def _missing(path: str, data: Any) -> str:
    names = path.split(".")[1:]
    for index, name in enumerate(names[:-1]):
        if not isinstance(data, dict) or name not in data:
            return f"Missing property in path {_indexed(names[: index + 1])}"
        data = data[name]
    return f"No results for path: {_indexed(names)}"


def _indexed(names: list[str]) -> str:
    return "$" + "".join(f"['{name}']" for name in names)


def _error_of_state(self: ExecutionState, env: Environment, ex: Exception) -> FailureEvent:
    """The error of a state; one that ends the execution is no event of the state, which in moto comes first.

    `scenarios/test_base_scenarios.py::test_invalid_jsonpath[ST.INVALID_JSONPATH_IN_TIMEOUTSECONDSPATH]`.
    """
    failure = _moto_error_of_state(self, env, ex)
    if failure.event_type == HistoryEventType.ExecutionFailed and failure.event_details:
        details: Any = failure.event_details
        details["executionFailedEventDetails"] = _Recorded(details["executionFailedEventDetails"])
    return failure


_moto_error_of_state = ExecutionState._from_error


def _handle_uncaught(self: ExecutionState, env: Environment, failure_event: FailureEvent) -> None:
    """A Task that fails a branch of a Parallel is aborted after it (`callback/test_callback.py`, SQS_PARALLEL_...)."""
    parent = parent_of(env)
    around = vars(parent).get("local_account_components", ()) if parent else ()
    if isinstance(self, StateTask) and any(isinstance(it, BranchesDecl) for it in around):
        env.event_manager.add_event(
            context=env.event_history_context,
            event_type=HistoryEventType.TaskStateAborted,
            update_source_event_id=False,
        )
    _moto_handle_uncaught(self, env, failure_event)


_moto_handle_uncaught = ExecutionState._handle_uncaught


def _execution_failed(self: FailureEventException) -> Any:
    """The details of ExecutionFailed: those of EvaluationFailed, whose cause moto would begin twice with the state."""
    details = self.failure_event.event_details or {}
    recorded = details.get("evaluationFailedEventDetails")
    if isinstance(recorded, _Recorded):
        return ExecutionFailedEventDetails(error=recorded["error"], cause=recorded["cause"])
    failed = _moto_execution_failed(self)
    pair = self.extract_error_cause_pair()
    if failed is not None and pair and str(pair[1]).startswith(_PREFIX):
        failed["cause"] = pair[1]  # of a state in a branch or iteration, which moto begins again with the outer state
    if failed is not None and pair == (None, None) and any("error" in it for it in details.values()):
        # SendTaskFailure had neither: a Catch around the branch has nulls (callback/test_callback.py, SQS_PARALLEL_...).
        failed.update(error=None, cause=None)
    return failed


_moto_execution_failed = FailureEventException.get_execution_failed_event_details


def _recorded_failure(self: FailureEventException) -> Any:
    recorded = (self.failure_event.event_details or {}).get("evaluationFailedEventDetails")
    return recorded if isinstance(recorded, _Recorded) else _moto_evaluation_failed(self)


_moto_evaluation_failed = FailureEventException.get_evaluation_failed_event_details


def _evaluate_input(self: CommonStateField, env: Environment) -> None:
    """Keeps the number of the event StateEntered, which was added just before."""
    env.local_account_at_entry = None  # the variables before the state's Assign
    env.local_account_entered_event = env.event_history_context.source_event_id
    _moto_evaluate_input(self, env)


_moto_evaluate_input = CommonStateField._eval_state_input


def _entered_event(env: Environment) -> int:
    place = nearest(env, "local_account_entered_event")
    return 0 if place is None else place.local_account_entered_event
