"""The state machine of a TrainingWorkflow, as one literal in the Amazon States Language."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from cdk_sagemaker_training.workflow.alternatives import AlternativeStates, create_name
from cdk_sagemaker_training.workflow.causes import Cause
from cdk_sagemaker_training.workflow.input_fields import InputField, input_states
from cdk_sagemaker_training.workflow.model_artifacts import ModelCheck
from cdk_sagemaker_training.workflow.polling import Intervals, poll_state
from cdk_sagemaker_training.workflow.retries import retry
from cdk_sagemaker_training.workflow.retry_policy import Retry
from cdk_sagemaker_training.workflow.retry_states import RetryStates

Integration = Literal["sync", "poll"]

# The workflow keeps its own data beside the execution's input, so that props can refer to the input as `$.something`.
_OWN = "$.Training"


def job_name(prefix: str, attempt: str, suffix: str = "", execution: str = "$$.Execution.Id") -> str:
    """Return the intrinsic function that computes a job's name from its execution, before the job is created.

    So a call that is repeated because its response was lost refers to the same job. A redrive does not start another job either:
    an execution whose job failed ends in a Fail state, which "fails again" (Step Functions guide, "Restarting state machine
    executions with redrive"), and one whose job was stopped describes the stopped job.

    Args:
        prefix: How the name begins.
        attempt: JSONPath or literal of the attempt's number.
        suffix: ``JobRequest.name_suffix``, of which a name of 63 characters has room for the first letter.
        execution: JSONPath of the execution's ARN.
    """
    return f"States.Format('{prefix}-{{}}-{suffix[:1]}{{}}', {execution_hash(execution)}, {attempt})"


def execution_hash(execution_arn: str) -> str:
    """Return the intrinsic function of the part that is common to the names of an execution's jobs, and unique to it.

    Args:
        execution_arn: JSONPath of the execution's ARN.
    """
    return f"States.Hash({execution_arn}, 'MD5')"


def training_definition(
    *,
    requests: Mapping[str, Mapping[str, Any]],
    prefix: str,
    integration: Integration,
    attempts: int,
    retries: Mapping[Cause, Retry] | None = None,
    alternatives: Sequence[Mapping[str, Any]] = (),
    input_fields: Mapping[str, InputField] | None = None,
    intervals: Intervals,
    poller_arn: str | None,
    timeout_seconds: int | None,
    partition: str,
    models: ModelCheck | None,
) -> dict[str, Any]:
    """Return the state machine that runs jobs one after the other; see ``_states`` for the states of each.

    The names of the states of a job with a suffix begin with it, like `CompileCreate` for `compile`.

    Args:
        requests: Parameters of the jobs' CreateTrainingJob calls, by the jobs' name suffixes.
        prefix: How the jobs' names begin.
        integration: How an execution waits for a job.
        attempts: Maximum number of runs of a job that fails, whatever the cause.
        retries: Retries by cause, in place of ``attempts``; None for none.
        alternatives: Parameters of the calls that create the job on other machines, where there is no capacity.
        input_fields: Fields of an execution's input that are checked first, by name.
        intervals: Intervals at which jobs are polled.
        poller_arn: ARN of the state machine that polls jobs; None to poll within the execution.
        timeout_seconds: Timeout of an execution; None for Step Functions' own, one year ("Quotas related to state machine
            executions").
        partition: Partition of ARNs.
        models: Checks that the last job uploaded a model; None for no check.

    Returns:
        The definition, in the Amazon States Language.
    """
    states: dict[str, Any] = {}
    firsts = [_state_name(suffix, "FirstAttempt") for suffix in requests]
    for (suffix, request), following in zip(requests.items(), [*firsts[1:], None], strict=True):
        turns = AlternativeStates(len(alternatives), _OWN)
        again = None if retries is None and not alternatives else RetryStates(retries or {}, turns, _OWN)
        own = _states(
            [request, *alternatives],
            prefix,
            suffix,
            integration,
            attempts,
            again,
            turns,
            intervals,
            poller_arn,
            partition,
        )
        if models is not None and following is None:
            own["IsOver"]["Choices"][0]["Next"] = "FindModel"
            own |= models.states(partition, _OWN)
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
    return {_state_name(suffix, name): _renamed(suffix, state, states) for name, state in states.items()}


def _state_name(suffix: str, name: str) -> str:
    return f"{suffix.capitalize()}{name}"


def _renamed(suffix: str, state: Any, own: Collection[str]) -> Any:
    """A state whose transitions to states of ``own`` have the suffix."""
    if isinstance(state, list):
        return [_renamed(suffix, item, own) for item in state]
    if not isinstance(state, dict):
        return state
    renamed = {key: value if key == "Parameters" else _renamed(suffix, value, own) for key, value in state.items()}
    return renamed | {
        key: _state_name(suffix, state[key]) for key in ("Next", "Default") if key in state and state[key] in own
    }


def _states(
    requests: Sequence[Mapping[str, Any]],
    prefix: str,
    suffix: str,
    integration: Integration,
    attempts: int,
    again: RetryStates | None,
    turns: AlternativeStates,
    intervals: Intervals,
    poller_arn: str | None,
    partition: str,
) -> dict[str, Any]:
    """The states that create a job and wait for its end, by `.sync` or by polling.

    If `Create` fails, `Find` describes the job, because the response may have been lost, the job itself may have failed, or the
    state may run again after a redrive. From there on both integrations are the same.
    """
    service = f"arn:{partition}:states:::aws-sdk:sagemaker"
    wait = "Wait" if poller_arn is None else "Poll"
    kept = {**({} if again is None else again.kept()), **turns.kept()}
    states: dict[str, Any] = {
        "FirstAttempt": {
            "Type": "Pass",
            "Parameters": {
                "Attempt": 1,
                "JobName.$": job_name(prefix, "1", suffix),
                "Seconds": intervals.first,
                **({} if again is None else again.counters()),
                **turns.first(),
            },
            "ResultPath": _OWN,
            "Next": turns.create,
        },
        **dict(turns.states()),
        **{
            create_name(number): _create(integration, request, partition, wait)
            for number, request in enumerate(requests)
        },
        "Find": {
            "Type": "Task",
            "Resource": f"{service}:describeTrainingJob",
            "Parameters": {"TrainingJobName.$": f"{_OWN}.JobName"},
            "ResultPath": f"{_OWN}.Job",
            "Retry": [retry(3)],
            "Catch": [
                {
                    "ErrorEquals": ["States.ALL"],
                    "ResultPath": f"{_OWN}.Missing",
                    "Next": "Stop" if again is None else again.after_refusal,
                }
            ],
            "Next": "IsOver",
        },
        **_waiting(intervals, poller_arn, partition, kept),
        "Describe": {
            "Type": "Task",
            "Resource": f"{service}:describeTrainingJob",
            "Parameters": {"TrainingJobName.$": f"{_OWN}.JobName"},
            "ResultPath": f"{_OWN}.Job",
            "Retry": [retry(10)],
            "Catch": [_catch("Stop")],
            "Next": "IsOver",
        },
        "IsOver": {
            "Type": "Choice",
            "Choices": [
                {**_status_is("Completed"), "Next": "Completed"},
                *_next_attempt_where_left(attempts),
                {**_status_is("Failed"), "Next": "Failed" if again is None else "WhyFailed"},
                *([] if again is None else again.after_stop(_status_is("Stopped"))),
                {**_status_is("Stopped"), "Next": "Stopped"},
                *([_wait_longer(intervals)] if poller_arn is None else []),
            ],
            "Default": wait,
        },
        "Completed": {"Type": "Pass", "InputPath": f"{_OWN}.Job", "End": True},
        "Failed": {
            "Type": "Fail",
            "Error": "TrainingJobFailed",
            "CausePath": f"States.Format('{{}}: {{}}', {_OWN}.JobName, {_OWN}.Job.FailureReason)",
        },
        "Stopped": {
            "Type": "Fail",
            "Error": "TrainingJobStopped",
            "CausePath": f"States.Format('{{}}: {{}}', {_OWN}.JobName, {_OWN}.Job.SecondaryStatus)",
        },
        "Stop": {
            "Type": "Task",
            "Resource": f"{service}:stopTrainingJob",
            "Parameters": {"TrainingJobName.$": f"{_OWN}.JobName"},
            "ResultPath": f"{_OWN}.Stopped",
            "Retry": [retry(3)],
            "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": f"{_OWN}.Stopped", "Next": "Error"}],
            "Next": "Error",
        },
        "Error": {"Type": "Fail", "ErrorPath": f"{_OWN}.Error.Error", "CausePath": f"{_OWN}.Error.Cause"},
    }
    if again is not None:
        states |= again.states()
    if attempts > 1 or again is not None:
        states["NextAttempt"] = {
            "Type": "Pass",
            "Parameters": {
                "Attempt.$": f"States.MathAdd({_OWN}.Attempt, 1)",
                "JobName.$": job_name(prefix, f"States.MathAdd({_OWN}.Attempt, 1)", suffix),
                "Seconds": intervals.first,
                **kept,
            },
            "ResultPath": _OWN,
            "Next": turns.create,
        }
    return states


def _waiting(intervals: Intervals, poller_arn: str | None, partition: str, kept: Mapping[str, Any]) -> dict[str, Any]:
    """The states between two polls."""
    if poller_arn is not None:
        return {"Poll": poll_state(partition, poller_arn, f"{_OWN}.JobName", f"{_OWN}.Polled", f"{_OWN}.Error")}
    return {
        "Wait": {"Type": "Wait", "SecondsPath": f"{_OWN}.Seconds", "Next": "Describe"},
        "WaitLonger": {
            "Type": "Pass",
            "Parameters": {
                "Attempt.$": f"{_OWN}.Attempt",
                "JobName.$": f"{_OWN}.JobName",
                "Seconds.$": f"States.MathAdd({_OWN}.Seconds, {intervals.step})",
                **kept,
            },
            "ResultPath": _OWN,
            "Next": "Wait",
        },
    }


def _wait_longer(intervals: Intervals) -> dict[str, Any]:
    return {"Variable": f"{_OWN}.Seconds", "NumericLessThan": intervals.last, "Next": "WaitLonger"}


def _create(integration: Integration, request: Mapping[str, Any], partition: str, wait: str) -> dict[str, Any]:
    create = {
        "Type": "Task",
        "Resource": f"arn:{partition}:states:::aws-sdk:sagemaker:createTrainingJob",
        "Parameters": request,
        "ResultPath": f"{_OWN}.Created",
        "Retry": [retry(5)],
        "Catch": [_catch("Find")],
        "Next": wait,
    }
    if integration == "poll":
        return create
    return {
        **create,
        "Resource": f"arn:{partition}:states:::sagemaker:createTrainingJob.sync",
        "ResultPath": f"{_OWN}.Job",
        "Next": "IsOver",
    }


def _catch(next_state: str) -> dict[str, Any]:
    return {"ErrorEquals": ["States.ALL"], "ResultPath": f"{_OWN}.Error", "Next": next_state}


def _status_is(status: str) -> dict[str, Any]:
    return {"Variable": f"{_OWN}.Job.TrainingJobStatus", "StringEquals": status}


def _next_attempt_where_left(attempts: int) -> list[dict[str, Any]]:
    if attempts == 1:
        return []
    attempt_is_left = {"Variable": f"{_OWN}.Attempt", "NumericLessThan": attempts}
    return [{"And": [_status_is("Failed"), attempt_is_left], "Next": "NextAttempt"}]
