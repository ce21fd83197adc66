"""The state machine of a TrainingWorkflow, in the Amazon States Language."""

from __future__ import annotations

from typing import Any

from cdk_sagemaker_training.lifecycle.attempt import Attempt
from cdk_sagemaker_training.lifecycle.plan import Plan
from cdk_sagemaker_training.lifecycle.states import state_of_job, states_of_job


def training_definition(plan: Plan) -> dict[str, Any]:
    """Return the state machine that runs jobs one after the other; see ``Attempt`` for the states of each.

    The names of the states of a job with a suffix begin with it, like `CompileCreate` for `compile`.
    """
    firsts = [state_of_job(suffix, "FirstAttempt") for suffix in plan.requests]
    states: dict[str, Any] = {}
    for feature in reversed(plan.features):
        states = {**feature.before_the_first_job(next(iter(states), firsts[0])), **states}
    begin = next(iter(states), firsts[0])
    for (suffix, request), following in zip(plan.requests.items(), [*firsts[1:], None], strict=True):
        attempt = Attempt(plan, [request, *plan.alternatives], suffix, is_last=following is None).render()
        states |= states_of_job(suffix, attempt)
        if following is not None:
            states[state_of_job(suffix, "Completed")] = {"Type": "Pass", "Next": following}
    timeout = plan.limits.timeout_seconds
    return {
        "Comment": "Runs a training job",
        "StartAt": begin,
        **({} if timeout is None else {"TimeoutSeconds": timeout}),
        "States": states,
    }
