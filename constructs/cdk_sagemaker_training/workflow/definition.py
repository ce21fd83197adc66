"""The state machine of a TrainingWorkflow, as one literal in the Amazon States Language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cdk_sagemaker_training.workflow.alternatives import AlternativeStates
from cdk_sagemaker_training.workflow.attempt_states import OWN, Attempts, Integration, attempt_states
from cdk_sagemaker_training.workflow.budget import BudgetStates
from cdk_sagemaker_training.workflow.causes import Cause
from cdk_sagemaker_training.workflow.input_fields import InputField, input_states
from cdk_sagemaker_training.workflow.job_metrics import MetricStates
from cdk_sagemaker_training.workflow.model_artifacts import ModelCheck
from cdk_sagemaker_training.workflow.polling import Intervals
from cdk_sagemaker_training.workflow.queued_states import Submission
from cdk_sagemaker_training.workflow.redirection import redirected
from cdk_sagemaker_training.workflow.retry_policy import Retry
from cdk_sagemaker_training.workflow.retry_states import RetryStates


def training_definition(
    *,
    requests: Mapping[str, Mapping[str, Any]],
    prefix: str,
    integration: Integration,
    attempts: int,
    retries: Mapping[Cause, Retry] | None = None,
    alternatives: Sequence[Mapping[str, Any]] = (),
    budget: BudgetStates | None = None,
    input_fields: Mapping[str, InputField] | None = None,
    intervals: Intervals,
    poller_arn: str | None,
    timeout_seconds: int | None,
    partition: str,
    models: ModelCheck | None,
    watched: bool = False,
    notifies: bool = False,
    metrics: MetricStates | None = None,
    submission: Submission | None = None,
) -> dict[str, Any]:
    """Return the state machine that runs jobs one after the other; see ``attempt_states`` for the states of each.

    The names of the states of a job with a suffix begin with it, like `CompileCreate` for `compile`.

    Args:
        requests: Parameters of the jobs' CreateTrainingJob calls, by the jobs' name suffixes.
        prefix: How the jobs' names begin.
        integration: How an execution waits for a job.
        attempts: Maximum number of runs of a job that fails, whatever the cause.
        retries: Retries by cause, in place of ``attempts``; None for none.
        alternatives: Parameters of the calls that create the job on other machines, where there is no capacity.
        budget: What all attempts may take together; None for no limit.
        input_fields: Fields of an execution's input that are checked first, by name.
        intervals: Intervals at which jobs are polled.
        poller_arn: ARN of the state machine that polls jobs; None to poll within the execution.
        timeout_seconds: Timeout of an execution; None for Step Functions' own, one year ("Quotas related to state machine
            executions").
        partition: Partition of ARNs.
        models: Checks that the last job uploaded a model; None for no check.
        watched: Whether the state machine of ``poller_arn`` stops jobs by rules.
        notifies: Whether an event is put for each retry.
        metrics: The states that put metrics of the jobs; None for none.
        submission: The queue in which jobs wait; None without one.

    Returns:
        The definition, in the Amazon States Language.
    """
    states: dict[str, Any] = {}
    firsts = [_state_name(suffix, "FirstAttempt") for suffix in requests]
    turns = AlternativeStates(len(alternatives), OWN)
    how = Attempts(
        prefix=prefix,
        integration=integration,
        attempts=attempts,
        again=None
        if retries is None and not alternatives and metrics is None
        else RetryStates(
            retries or {},
            turns,
            OWN,
            partition if notifies else None,
            service="SageMaker" if submission is None else "Batch",
        ),
        turns=turns,
        budget=budget,
        intervals=intervals,
        poller_arn=poller_arn,
        partition=partition,
        watched=watched,
        submission=submission,
        metrics=metrics,
    )
    for (suffix, request), following in zip(requests.items(), [*firsts[1:], None], strict=True):
        own = attempt_states([request, *alternatives], suffix, how)
        if models is not None and following is None:
            end = own["HowItEnded" if "HowItEnded" in own else "IsOver"]
            [completed] = [rule for rule in end["Choices"] if rule["Next"] == "Completed"]
            completed["Next"] = "FindModel"
            own |= models.states(partition, OWN)
        own = states_of_job(suffix, own)
        if following is not None:
            own[_state_name(suffix, "Completed")] = {"Type": "Pass", "Next": following}
        states.update(own)
    if input_fields:
        states = {**input_states(input_fields, firsts[0]), **states}
    return {
        "Comment": "Runs a training job",
        "StartAt": next(iter(states)),
        **({} if timeout_seconds is None else {"TimeoutSeconds": timeout_seconds}),
        "States": states,
    }


def states_of_job(suffix: str, states: Mapping[str, Any]) -> dict[str, Any]:
    """Return states with the suffix of a job before their names; transitions to other states are unchanged.

    Args:
        suffix: The job's name suffix; may be empty.
        states: The states by their names.
    """
    names = {name: _state_name(suffix, name) for name in states}
    return {names[name]: redirected(state, names) for name, state in states.items()}


def _state_name(suffix: str, name: str) -> str:
    return f"{suffix.capitalize()}{name}"
