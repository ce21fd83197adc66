"""The states that create a job, wait for its end and run it again, in the Amazon States Language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cdk_sagemaker_training.workflow.alternatives import AlternativeStates, create_name
from cdk_sagemaker_training.workflow.budget import BudgetStates
from cdk_sagemaker_training.workflow.job_metrics import MetricStates
from cdk_sagemaker_training.workflow.polling import Intervals, poll_state
from cdk_sagemaker_training.workflow.preemption import with_preemptions
from cdk_sagemaker_training.workflow.queued_states import Submission, queued_states
from cdk_sagemaker_training.workflow.redirection import redirected
from cdk_sagemaker_training.workflow.retries import retry
from cdk_sagemaker_training.workflow.retry_states import RetryStates

Integration = Literal["sync", "poll"]

# The workflow keeps its own data beside the execution's input, so that props can refer to the input as `$.something`.
OWN = "$.Training"
_BECAUSE = f"{OWN}.Polled.Because"


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


@dataclass(frozen=True)
class Attempts:
    """How jobs are created, waited for and run again.

    Attributes:
        prefix: How the jobs' names begin.
        integration: How an execution waits for a job.
        attempts: Maximum number of runs of a job that fails, whatever the cause.
        again: The states of retries by cause; None for none.
        turns: The states that try one job after the other.
        budget: The states that count what attempts take; None without a budget.
        intervals: Intervals at which jobs are polled.
        poller_arn: ARN of the state machine that polls jobs; None to poll within the execution.
        partition: Partition of ARNs.
        watched: Whether the poller stops jobs by rules.
        submission: The queue in which jobs wait, and which the poller describes; None without one.
        metrics: The states that put metrics of the jobs; None for none.
    """

    prefix: str
    integration: Integration
    attempts: int
    again: RetryStates | None
    turns: AlternativeStates
    budget: BudgetStates | None
    intervals: Intervals
    poller_arn: str | None
    partition: str
    watched: bool = False
    submission: Submission | None = None
    metrics: MetricStates | None = None


def attempt_states(requests: Sequence[Mapping[str, Any]], suffix: str, how: Attempts) -> dict[str, Any]:
    """Return the states that create a job and wait for its end, by `.sync` or by polling.

    If `Create` fails, `Find` describes the job, because the response may have been lost, the job itself may have failed, or the
    state may run again after a redrive. From there on both integrations are the same.

    Args:
        requests: Parameters of the calls that create the job, and its alternatives.
        suffix: The job's name suffix.
        how: How it is created, waited for and run again.
    """
    again, turns, budget, intervals = how.again, how.turns, how.budget, how.intervals
    service = f"arn:{how.partition}:states:::aws-sdk:sagemaker"
    wait = "Wait" if how.poller_arn is None else "Poll"
    counted = [one for one in (again, turns, budget) if one is not None]
    kept = {name: path for one in counted for name, path in one.kept().items()}
    ends = _ends(how)
    after_its_end = None if budget is None else "WhatIsBilled"
    if how.metrics is not None:
        after_its_end = "WasBilled"
    polled = [_wait_longer(intervals)] if how.poller_arn is None else []

    def described(attempts: int, catch: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "Type": "Task",
            "Resource": f"{service}:describeTrainingJob",
            "Parameters": {"TrainingJobName.$": f"{OWN}.JobName"},
            "ResultPath": f"{OWN}.Job",
            "Retry": [retry(attempts)],
            "Catch": [catch],
            "Next": "IsOver",
        }

    states: dict[str, Any] = {
        "FirstAttempt": {
            "Type": "Pass",
            "Parameters": {
                "Attempt": 1,
                "JobName.$": job_name(how.prefix, "1", suffix),
                "Seconds": intervals.first,
                **{name: value for one in counted for name, value in one.first().items()},
            },
            "ResultPath": OWN,
            "Next": turns.create,
        },
        **dict(turns.states()),
        **{
            create_name(number): _create(how, request if budget is None else budget.limited(request), wait)
            for number, request in enumerate(requests)
        },
        "Find": described(
            3,
            {
                "ErrorEquals": ["States.ALL"],
                "ResultPath": f"{OWN}.Missing",
                "Next": "Stop" if again is None else again.after_refusal,
            },
        ),
        **_waiting(how, kept),
        "Describe": described(10, _catch("Stop")),
        "IsOver": {
            "Type": "Choice",
            "Choices": [*(ends if after_its_end is None else [{"Or": _OVER, "Next": after_its_end}]), *polled],
            "Default": wait,
        },
        "Completed": {"Type": "Pass", "InputPath": f"{OWN}.Job", "End": True},
        "Failed": {
            "Type": "Fail",
            "Error": "TrainingJobFailed",
            "CausePath": f"States.Format('{{}}: {{}}', {OWN}.JobName, {OWN}.Job.FailureReason)",
        },
        "Stopped": {
            "Type": "Fail",
            "Error": "TrainingJobStopped",
            "CausePath": f"States.Format('{{}}: {{}}', {OWN}.JobName, {OWN}.Job.SecondaryStatus)",
        },
        "Stop": {
            "Type": "Task",
            "Resource": f"{service}:stopTrainingJob",
            "Parameters": {"TrainingJobName.$": f"{OWN}.JobName"},
            "ResultPath": f"{OWN}.Stopped",
            "Retry": [retry(3)],
            "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": f"{OWN}.Stopped", "Next": "Error"}],
            "Next": "Error",
        },
        "Error": {"Type": "Fail", "ErrorPath": f"{OWN}.Error.Error", "CausePath": f"{OWN}.Error.Cause"},
    }
    if again is not None:
        states |= again.states()
    if how.submission is not None:
        request = requests[0] if budget is None else budget.limited(requests[0])
        states = queued_states(states, request, how.submission, how.prefix, OWN, how.partition)
        states = with_preemptions(states, how.submission, budget, OWN)
    if how.watched:
        states["StoppedByRule"] = {
            "Type": "Fail",
            "Error": "TrainingJobStopped",
            "CausePath": f"States.Format('{{}}: stopped, since {{}}', {OWN}.JobName, {_BECAUSE})",
        }
    if budget is not None:
        states = redirected(states, {"NextAttempt": "IsBudgetLeft"})
        states |= budget.states(redirected(ends, {"NextAttempt": "IsBudgetLeft"}), _status_is("Stopped"))
    elif how.metrics is not None:
        states["HowItEnded"] = {"Type": "Choice", "Choices": ends, "Default": "Stopped"}
    if how.attempts > 1 or again is not None:
        states["NextAttempt"] = {
            "Type": "Pass",
            "Parameters": {
                "Attempt.$": f"States.MathAdd({OWN}.Attempt, 1)",
                "JobName.$": job_name(how.prefix, f"States.MathAdd({OWN}.Attempt, 1)", suffix),
                "Seconds": intervals.first,
                **kept,
            },
            "ResultPath": OWN,
            "Next": turns.create if how.submission is None else "Payload",
        }
        states |= {} if budget is None else budget.before_attempt()
    if how.metrics is not None:
        states |= how.metrics.times("HowItEnded" if budget is None else "WhatIsBilled")
        states = how.metrics.counted(states)
    return states


def _ends(how: Attempts) -> list[dict[str, Any]]:
    """The rules of a Choice that follow on the end of a job."""
    return [
        {**_status_is("Completed"), "Next": "Completed"},
        *_next_attempt_where_left(how.attempts),
        {**_status_is("Failed"), "Next": "Failed" if how.again is None else "WhyFailed"},
        *_after_a_rule(how),
        *([] if how.again is None else how.again.after_stop(_status_is("Stopped"))),
        {**_status_is("Stopped"), "Next": "Stopped"},
    ]


def _after_a_rule(how: Attempts) -> list[dict[str, Any]]:
    """The rules of a Choice that follow on a job that the poller stopped, of which `Find` and `Create` know nothing."""
    if not how.watched:
        return []
    stopped = [
        _status_is("Stopped"),
        {"Variable": _BECAUSE, "IsPresent": True},
        {"Not": {"Variable": _BECAUSE, "StringEquals": ""}},
    ]
    again = [] if how.again is None else how.again.after_silence(stopped, _BECAUSE)
    return [*again, {"And": stopped, "Next": "StoppedByRule"}]


def _waiting(how: Attempts, kept: Mapping[str, Any]) -> dict[str, Any]:
    """The states between two polls."""
    if how.poller_arn is not None:
        return {
            "Poll": poll_state(
                how.partition,
                how.poller_arn,
                f"{OWN}.JobName" if how.submission is None else f"{OWN}.Queued.JobId",
                f"{OWN}.Polled",
                f"{OWN}.Error",
                watched=how.watched,
            )
        }
    return {
        "Wait": {"Type": "Wait", "SecondsPath": f"{OWN}.Seconds", "Next": "Describe"},
        "WaitLonger": {
            "Type": "Pass",
            "Parameters": {
                "Attempt.$": f"{OWN}.Attempt",
                "JobName.$": f"{OWN}.JobName",
                "Seconds.$": f"States.MathAdd({OWN}.Seconds, {how.intervals.step})",
                **kept,
            },
            "ResultPath": OWN,
            "Next": "Wait",
        },
    }


def _wait_longer(intervals: Intervals) -> dict[str, Any]:
    return {"Variable": f"{OWN}.Seconds", "NumericLessThan": intervals.last, "Next": "WaitLonger"}


def _create(how: Attempts, request: Mapping[str, Any], wait: str) -> dict[str, Any]:
    create = {
        "Type": "Task",
        "Resource": f"arn:{how.partition}:states:::aws-sdk:sagemaker:createTrainingJob",
        "Parameters": request,
        "ResultPath": f"{OWN}.Created",
        "Retry": [retry(5)],
        "Catch": [_catch("Find")],
        "Next": wait,
    }
    if how.integration == "poll":
        return create
    return {
        **create,
        "Resource": f"arn:{how.partition}:states:::sagemaker:createTrainingJob.sync",
        "ResultPath": f"{OWN}.Job",
        "Next": "IsOver",
    }


def _catch(next_state: str) -> dict[str, Any]:
    return {"ErrorEquals": ["States.ALL"], "ResultPath": f"{OWN}.Error", "Next": next_state}


def _status_is(status: str) -> dict[str, Any]:
    return {"Variable": f"{OWN}.Job.TrainingJobStatus", "StringEquals": status}


_OVER = [_status_is(status) for status in ("Completed", "Failed", "Stopped")]


def _next_attempt_where_left(attempts: int) -> list[dict[str, Any]]:
    if attempts == 1:
        return []
    attempt_is_left = {"Variable": f"{OWN}.Attempt", "NumericLessThan": attempts}
    return [{"And": [_status_is("Failed"), attempt_is_left], "Next": "NextAttempt"}]
