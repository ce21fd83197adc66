"""The state machine of a TrainingWorkflow, as one literal in the Amazon States Language."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Integration = Literal["sync", "poll"]

# Step Functions ends an execution with more than 25,000 events of history. A poll writes 9 (Wait 2, Describe 5, Choice 2), and
# 2 more where the interval grows; the rest of an attempt writes fewer than 40.
_EVENTS = 24_000
_EVENTS_OF_A_POLL = 9
_EVENTS_OF_A_GROWTH = 11
_OTHER_EVENTS_OF_AN_ATTEMPT = 40
_GROWTHS = 20

_FIRST_INTERVAL = 2
_SHORTEST_LAST_INTERVAL = 30

# What the workflow knows lies beside the execution's input, so that props can refer to that as `$.something`.
_OWN = "$.Training"


@dataclass(frozen=True)
class Intervals:
    """Seconds between two looks at a job: ``first``, growing by ``step`` until they are at least ``last``."""

    first: int
    step: int
    last: int

    @staticmethod
    def over(seconds: int, attempts: int) -> Intervals:
        """The intervals with which ``attempts`` jobs, each of at most ``seconds``, fit into one execution's history."""
        events = _EVENTS - attempts * (_GROWTHS * _EVENTS_OF_A_GROWTH + _OTHER_EVENTS_OF_AN_ATTEMPT)
        last = max(_SHORTEST_LAST_INTERVAL, math.ceil(_EVENTS_OF_A_POLL * attempts * seconds / events))
        return Intervals(_FIRST_INTERVAL, max(_FIRST_INTERVAL, math.ceil(last / _GROWTHS)), last)


def job_name(prefix: str, attempt: str, suffix: str = "", execution: str = "$$.Execution.Id") -> str:
    """A job's name as a function of its execution, computed before the job is created.

    What runs twice, because an answer was lost or an execution is redriven, thus finds its job instead of starting another.
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
    timeout_seconds: int,
    partition: str,
) -> dict[str, Any]:
    """Runs one job after the other, each as ``_states`` says; ``requests`` has their Parameters by their name's suffix.

    The states of a job with a suffix have it before their names: `compile` has `CompileCreate`.
    """
    states: dict[str, Any] = {}
    firsts = [_state_name(suffix, "FirstAttempt") for suffix in requests]
    for (suffix, request), following in zip(requests.items(), [*firsts[1:], None], strict=True):
        own = states_of_job(suffix, _states(request, prefix, suffix, integration, attempts, intervals, partition))
        if following is not None:
            own[_state_name(suffix, "Completed")] = {"Type": "Pass", "Next": following}
        states.update(own)
    return {
        "Comment": "Runs a training job",
        "StartAt": firsts[0],
        "TimeoutSeconds": timeout_seconds,
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
    partition: str,
) -> dict[str, Any]:
    """Creates a job and waits for its end, by `.sync` or by looking at it from time to time.

    However Create fails, `Find` looks for the job: its answer may have been lost, or the job exists since before a redrive,
    or is what failed. From there on both integrations are the same.
    """
    service = f"arn:{partition}:states:::aws-sdk:sagemaker"
    states: dict[str, Any] = {
        "FirstAttempt": {
            "Type": "Pass",
            "Parameters": {"Attempt": 1, "JobName.$": job_name(prefix, "1", suffix), "Seconds": intervals.first},
            "ResultPath": _OWN,
            "Next": "Create",
        },
        "Create": _create(integration, request, partition),
        "Find": {
            "Type": "Task",
            "Resource": f"{service}:describeTrainingJob",
            "Parameters": {"TrainingJobName.$": f"{_OWN}.JobName"},
            "ResultPath": f"{_OWN}.Job",
            "Retry": [_retry(3)],
            "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": f"{_OWN}.Missing", "Next": "Stop"}],
            "Next": "IsOver",
        },
        "Wait": {"Type": "Wait", "SecondsPath": f"{_OWN}.Seconds", "Next": "Describe"},
        "Describe": {
            "Type": "Task",
            "Resource": f"{service}:describeTrainingJob",
            "Parameters": {"TrainingJobName.$": f"{_OWN}.JobName"},
            "ResultPath": f"{_OWN}.Job",
            "Retry": [_retry(10)],
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
                {"Variable": f"{_OWN}.Seconds", "NumericLessThan": intervals.last, "Next": "WaitLonger"},
            ],
            "Default": "Wait",
        },
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
            "Retry": [_retry(3)],
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


def _create(integration: Integration, request: Mapping[str, Any], partition: str) -> dict[str, Any]:
    create = {
        "Type": "Task",
        "Resource": f"arn:{partition}:states:::aws-sdk:sagemaker:createTrainingJob",
        "Parameters": request,
        "ResultPath": f"{_OWN}.Created",
        "Retry": [_retry(5)],
        "Catch": [_catch("Find")],
        "Next": "Wait",
    }
    if integration == "poll":
        return create
    return {
        **create,
        "Resource": f"arn:{partition}:states:::sagemaker:createTrainingJob.sync",
        "ResultPath": f"{_OWN}.Job",
        "Next": "IsOver",
    }


def _retry(times: int) -> dict[str, Any]:
    """Throttling, refusals and errors of the service, which Step Functions does not tell apart for SageMaker."""
    return {
        "ErrorEquals": [
            "SageMaker.AmazonSageMakerException",
            "SageMaker.SageMakerException",
            "SageMaker.SdkClientException",
        ],
        "IntervalSeconds": 1,
        "BackoffRate": 2,
        "MaxAttempts": times,
        "MaxDelaySeconds": 60,
        "JitterStrategy": "FULL",
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
