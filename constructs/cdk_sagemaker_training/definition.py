"""The state machine of a TrainingWorkflow, as one literal in the Amazon States Language."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

from cdk_sagemaker_training.model_artifacts import ModelCheck
from cdk_sagemaker_training.polling import Intervals, poll_state
from cdk_sagemaker_training.retries import retry

Integration = Literal["sync", "poll"]

# What the workflow knows lies beside the execution's input, so that props can refer to that as `$.something`.
_OWN = "$.Training"


def job_name(prefix: str, attempt: str, suffix: str = "", execution: str = "$$.Execution.Id") -> str:
    """A job's name as a function of its execution, computed before the job is created.

    What runs twice, because an answer was lost, thus finds its job instead of starting another. Nor does a redrive start one: the
    execution of a job that failed ends in a Fail state, which "fails again" (Step Functions guide, "Restarting state machine
    executions with redrive"), and one that was stopped finds its job stopped.
    Of ``suffix``, which tells apart the jobs of one execution, a name of 63 characters has room for the first letter.
    """
    return f"States.Format('{prefix}-{{}}-{suffix[:1]}{{}}', {execution_hash(execution)}, {attempt})"


def execution_hash(execution_arn: str) -> str:
    """What the names of an execution's jobs have in common, and no other job's."""
    return f"States.Hash({execution_arn}, 'MD5')"


def training_definition(
    *,
    requests: Mapping[str, Mapping[str, Any]],
    prefix: str,
    integration: Integration,
    attempts: int,
    intervals: Intervals,
    poller_arn: str | None,
    timeout_seconds: int | None,
    partition: str,
    models: ModelCheck | None,
) -> dict[str, Any]:
    """Runs one job after the other, each as ``_states`` says; ``requests`` has their Parameters by their name's suffix.

    Jobs are polled at ``intervals``, or by the state machine ``poller_arn``. Without ``timeout_seconds`` an execution ends when
    Step Functions ends it, after a year ("Quotas related to state machine executions"). ``models`` looks for the last job's.

    The states of a job with a suffix have it before their names: `compile` has `CompileCreate`.
    """
    states: dict[str, Any] = {}
    firsts = [_state_name(suffix, "FirstAttempt") for suffix in requests]
    for (suffix, request), following in zip(requests.items(), [*firsts[1:], None], strict=True):
        own = _states(request, prefix, suffix, integration, attempts, intervals, poller_arn, partition)
        if models is not None and following is None:
            own["IsOver"]["Choices"][0]["Next"] = "FindModel"
            own |= models.states(partition, _OWN)
        own = states_of_job(suffix, own)
        if following is not None:
            own[_state_name(suffix, "Completed")] = {"Type": "Pass", "Next": following}
        states.update(own)
    return {
        "Comment": "Runs a training job",
        "StartAt": firsts[0],
        **({} if timeout_seconds is None else {"TimeoutSeconds": timeout_seconds}),
        "States": states,
    }


def states_of_job(suffix: str, states: Mapping[str, Any]) -> dict[str, Any]:
    """States named for the job with ``suffix``; where they go to a state that is none of them, they still do."""
    return {_state_name(suffix, name): _renamed(suffix, state, states) for name, state in states.items()}


def _state_name(suffix: str, name: str) -> str:
    return f"{suffix.capitalize()}{name}"


def _renamed(suffix: str, state: Any, own: Collection[str]) -> Any:
    """A state whose next states are those of the job with ``suffix``, as far as they are among its ``own``."""
    if isinstance(state, list):
        return [_renamed(suffix, item, own) for item in state]
    if not isinstance(state, dict):
        return state
    renamed = {key: value if key == "Parameters" else _renamed(suffix, value, own) for key, value in state.items()}
    return renamed | {
        key: _state_name(suffix, state[key]) for key in ("Next", "Default") if key in state and state[key] in own
    }


def _states(
    request: Mapping[str, Any],
    prefix: str,
    suffix: str,
    integration: Integration,
    attempts: int,
    intervals: Intervals,
    poller_arn: str | None,
    partition: str,
) -> dict[str, Any]:
    """Creates a job and waits for its end, by `.sync` or by polling it.

    However Create fails, `Find` looks for the job: its answer may have been lost, or it is
    what failed, or the state runs once more after a redrive. From there on both integrations are the same.
    """
    service = f"arn:{partition}:states:::aws-sdk:sagemaker"
    wait = "Wait" if poller_arn is None else "Poll"
    states: dict[str, Any] = {
        "FirstAttempt": {
            "Type": "Pass",
            "Parameters": {"Attempt": 1, "JobName.$": job_name(prefix, "1", suffix), "Seconds": intervals.first},
            "ResultPath": _OWN,
            "Next": "Create",
        },
        "Create": _create(integration, request, partition, wait),
        "Find": {
            "Type": "Task",
            "Resource": f"{service}:describeTrainingJob",
            "Parameters": {"TrainingJobName.$": f"{_OWN}.JobName"},
            "ResultPath": f"{_OWN}.Job",
            "Retry": [retry(3)],
            "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": f"{_OWN}.Missing", "Next": "Stop"}],
            "Next": "IsOver",
        },
        **_waiting(intervals, poller_arn, partition),
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
                {**_status_is("Failed"), "Next": "Failed"},
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
    if attempts > 1:
        states["NextAttempt"] = {
            "Type": "Pass",
            "Parameters": {
                "Attempt.$": f"States.MathAdd({_OWN}.Attempt, 1)",
                "JobName.$": job_name(prefix, f"States.MathAdd({_OWN}.Attempt, 1)", suffix),
                "Seconds": intervals.first,
            },
            "ResultPath": _OWN,
            "Next": "Create",
        }
    return states


def _waiting(intervals: Intervals, poller_arn: str | None, partition: str) -> dict[str, Any]:
    """The states between two looks at a job."""
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
