"""The states that stop the jobs of an execution which ended before them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdk_sagemaker_training.lifecycle.states import catch, execution_hash, retry, sdk_task

# Long enough for a CreateTrainingJob call that was in flight when its execution ended to have created the job.
_SECONDS_BETWEEN_LOOKS = 60
_RETRIED_SECONDS = 3_600
_LONGEST_INTERVAL = 64
# Some 30 seconds each: ListTrainingJobs has 2 calls a second in an account (aws-solutions/deepracer-on-aws 87), for which the
# executions that end together wait.
_FOR_AN_HOUR = retry(_RETRIED_SECONDS // (_LONGEST_INTERVAL // 2), "States.ALL")

# The errors with which the workflow itself fails executions after the end of their last job.
_OWN_ERRORS = ("TrainingJobFailed", "TrainingJobStopped")
_HASH = execution_hash("$.executionArn")


def stopping_definition(queued: Mapping[str, tuple[str, str]], partition: str) -> dict[str, Any]:
    """Return the state machine that stops an execution's jobs, and looks for more a minute later.

    Its input is the detail of the execution's event. Jobs are found by the hash of the execution's ARN in their names, whatever
    else the names have, so that one is found whose workflow was changed or removed meanwhile. The second look skips an
    execution that was redriven meanwhile: it runs, and its end will be another event.

    Args:
        queued: The queues in which the jobs of some workflows wait, and how the jobs' names begin, by the names of the workflows'
            state machines.
        partition: Partition of ARNs.
    """
    own_error = {"Or": [{"Variable": "$.error", "StringEquals": error} for error in _OWN_ERRORS]}
    is_over = {
        "Type": "Choice",
        "Choices": [{"And": [{"Variable": "$.error", "IsPresent": True}, own_error], "Next": "Done"}],
        "Default": "First",
    }
    states = {"IsOver": is_over, **_stopping(partition), **_second_look(partition)}
    return {
        "Comment": "Stops the training jobs of executions that ended before them",
        "StartAt": "IsOver",
        "States": states if not queued else {**states, **_of_queues(queued, partition)},
    }


def _stopping(partition: str) -> dict[str, Any]:
    """The states that stop an execution's jobs that run, until a list has none of them that could not be stopped."""
    sagemaker = f"arn:{partition}:states:::aws-sdk:sagemaker"
    asked = {
        "NameContains.$": _HASH,
        "StatusEquals": "InProgress",
        "SortBy": "CreationTime",
        "SortOrder": "Descending",
    }

    def listed(more: Mapping[str, Any]) -> dict[str, Any]:
        operation = "sagemaker:listTrainingJobs"
        return sdk_task(partition, operation, {**asked, **more}, "$.Listed", _FOR_AN_HOUR, "IsAny")

    return {
        "First": _walk("List", Most=1, Seconds=0, Waited=0),
        "List": listed({}),
        "IsAny": {
            "Type": "Choice",
            "Choices": [
                {"Variable": "$.Listed.TrainingJobSummaries[0]", "IsPresent": True, "Next": "StopEach"},
                # A page of a filtered list may be empty.
                {"Variable": "$.Listed.NextToken", "IsPresent": True, "Next": "ListMore"},
            ],
            "Default": "HasLookedTwice",
        },
        "ListMore": listed({"NextToken.$": "$.Listed.NextToken"}),
        "StopEach": {
            "Type": "Map",
            "ItemsPath": "$.Listed.TrainingJobSummaries",
            "MaxConcurrency": 1,
            "ItemProcessor": {"StartAt": "Stop", "States": _stopping_one(sagemaker)},
            "ResultPath": "$.Answers",
            "Next": "Refusals",
        },
        "Refusals": {
            "Type": "Pass",
            "Parameters": {"Of.$": "$.Answers[?(@.Refused != '')].Refused"},
            "ResultPath": "$.Refusals",
            "Next": "AreStopped",
        },
        "AreStopped": {
            "Type": "Choice",
            "Choices": [
                {"Variable": "$.Refusals.Of[0]", "IsPresent": False, "Next": "HasLookedTwice"},
                {"Variable": "$.Walk.Waited", "NumericGreaterThanEquals": _RETRIED_SECONDS, "Next": "MayStillRun"},
                {"Variable": "$.Walk.Most", "NumericLessThan": _LONGEST_INTERVAL, "Next": "WaitLonger"},
            ],
            "Default": "WaitAsLong",
        },
        "WaitLonger": _wait("States.MathAdd($.Walk.Most, $.Walk.Most)"),
        "WaitAsLong": _wait("$.Walk.Most"),
        # A job that has ended meanwhile is in no further list.
        "Wait": {"Type": "Wait", "SecondsPath": "$.Walk.Seconds", "Next": "List"},
        "MayStillRun": {"Type": "Fail", "Error": "TrainingJobMayStillRun", "CausePath": "$.Refusals.Of[0]"},
    }


def _stopping_one(sagemaker: str) -> dict[str, Any]:
    return {
        "Stop": {
            "Type": "Task",
            "Resource": f"{sagemaker}:stopTrainingJob",
            "Parameters": {"TrainingJobName.$": "$.TrainingJobName"},
            "Catch": [catch("Refused", "$.Error")],
            "Next": "Stopped",
        },
        "Stopped": {"Type": "Pass", "Result": {"Refused": ""}, "End": True},
        "Refused": {
            "Type": "Pass",
            "Parameters": {"Refused.$": "States.Format('{}: {}: {}', $.TrainingJobName, $.Error.Error, $.Error.Cause)"},
            "End": True,
        },
    }


def _walk(next_state: str, **members: Any) -> dict[str, Any]:
    """A Pass state with the maximum and actual seconds to wait, and the seconds waited so far."""
    return {"Type": "Pass", "Parameters": members, "ResultPath": "$.Walk", "Next": next_state}


def _wait(most: str) -> dict[str, Any]:
    """A Pass state that chooses a random wait of up to ``most`` seconds."""
    members = {
        "Most.$": most,
        "Seconds.$": f"States.MathRandom(1, {most})",
        "Waited.$": "States.MathAdd($.Walk.Waited, $.Walk.Seconds)",
    }
    return _walk("Wait", **members)


def _second_look(partition: str) -> dict[str, Any]:
    return {
        "HasLookedTwice": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.Execution", "IsPresent": True, "Next": "Done"}],
            "Default": "WaitForLateJobs",
        },
        "WaitForLateJobs": {"Type": "Wait", "Seconds": _SECONDS_BETWEEN_LOOKS, "Next": "DescribeExecution"},
        "DescribeExecution": {
            "Type": "Task",
            "Resource": f"arn:{partition}:states:::aws-sdk:sfn:describeExecution",
            # The execution's input and output may exceed the size limit of a state's result.
            "Parameters": {"ExecutionArn.$": "$.executionArn", "IncludedData": "METADATA_ONLY"},
            "ResultSelector": {"Status.$": "$.Status"},
            "ResultPath": "$.Execution",
            "Retry": [_FOR_AN_HOUR],
            "Next": "WasRedriven",
        },
        "WasRedriven": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.Execution.Status", "StringEquals": "RUNNING", "Next": "Done"}],
            "Default": "First",
        },
        "Done": {"Type": "Succeed"},
    }


def _of_queues(queued: Mapping[str, tuple[str, str]], partition: str) -> dict[str, Any]:
    """The states that terminate the service jobs of executions whose jobs wait in a queue, in place of `First`.

    Service jobs are listed by their queue, and by how their names begin.
    """
    batch = f"arn:{partition}:states:::aws-sdk:batch"
    states: dict[str, Any] = {}
    choices = []
    for number, (machine, (queue_arn, prefix)) in enumerate(queued.items()):
        choices.append({"Variable": "$.stateMachineArn", "StringMatches": f"*:{machine}", "Next": f"Queued{number}"})
        names = f"States.Array(States.Format('{prefix}-{{}}-*', {_HASH}))"
        states[f"Queued{number}"] = {
            "Type": "Pass",
            "Parameters": {"JobQueue": queue_arn, "Filters": [{"Name": "JOB_NAME", "Values.$": names}]},
            "ResultPath": "$.Queued",
            "Next": "ListQueued",
        }
    terminate = {
        "Type": "Task",
        "Resource": f"{batch}:terminateServiceJob",
        "Parameters": {"JobId.$": "$.JobId", "Reason": "its execution has ended"},
        "Retry": [_FOR_AN_HOUR],
        "Next": "Ended",
    }
    ended = [{"Variable": "$.Status", "StringEquals": status, "Next": "Ended"} for status in ("SUCCEEDED", "FAILED")]
    return {
        "First": {"Type": "Choice", "Choices": choices, "Default": "Begin"},
        "Begin": _walk("List", Most=1, Seconds=0, Waited=0),
        **states,
        # Of many jobs the most recent are first, and an execution has one at a time.
        "ListQueued": sdk_task(
            partition,
            "batch:listServiceJobs",
            {"JobQueue.$": "$.Queued.JobQueue", "Filters.$": "$.Queued.Filters"},
            "$.Listed",
            _FOR_AN_HOUR,
            "TerminateEach",
        ),
        "TerminateEach": {
            "Type": "Map",
            "ItemsPath": "$.Listed.JobSummaryList",
            "MaxConcurrency": 1,
            "ItemProcessor": {
                "StartAt": "HasEnded",
                "States": {
                    "HasEnded": {"Type": "Choice", "Choices": ended, "Default": "Terminate"},
                    "Terminate": terminate,
                    "Ended": {"Type": "Pass", "Result": {}, "End": True},
                },
            },
            "ResultPath": "$.Stopped",
            # The jobs of before an update that put the workflow into a queue.
            "Next": "Begin",
        },
    }
