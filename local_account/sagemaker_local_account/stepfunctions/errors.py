"""The names under which errors of branches, choices and services are matched by Retry and Catch."""

from __future__ import annotations

from moto.stepfunctions.parser.api import HistoryEventType
from moto.stepfunctions.parser.asl.component.common.error_name.custom_error_name import CustomErrorName
from moto.stepfunctions.parser.asl.component.common.error_name.error_name import ErrorName
from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import FailureEvent, FailureEventException
from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name import StatesErrorName
from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name_type import StatesErrorNameType
from moto.stepfunctions.parser.asl.component.state.choice.state_choice import StateChoice
from moto.stepfunctions.parser.asl.component.state.exec.state_map.iteration import iteration_worker
from moto.stepfunctions.parser.asl.component.state.exec.state_parallel import branches_decl
from moto.stepfunctions.parser.asl.eval.environment import Environment
from moto.stepfunctions.parser.asl.eval.event.event_detail import EventDetails

from sagemaker_local_account.core.patches import patch


def install() -> None:
    """Patches moto's states."""
    patch(branches_decl, "CustomErrorName", PropagatedErrorName)
    patch(iteration_worker, "CustomErrorName", PropagatedErrorName)
    patch(StateChoice, "_eval_state", _evaluate_choice, "self, env")


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
