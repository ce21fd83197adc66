"""The states that submit a job to a queue of AWS Batch, and wait for its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cdk_sagemaker_training.workflow.redirection import redirected
from cdk_sagemaker_training.workflow.retries import OF_BATCH, retry

# Batch names a training job "AWSBatch", the payload's TrainingJobName and 32 hexadecimal digits of the attempt ("Getting started
# with AWS Batch on SageMaker AI", "Service job state change events"). What it does with a name for which the 63 characters of
# SageMaker have no room is not said, so the payload's is as short as always fits.
_LONGEST_NAME = 63 - len("AWSBatch") - 32


@dataclass(frozen=True)
class Submission:
    """Where a workflow's jobs wait.

    Attributes:
        queue_arn: The job queue.
        share: The share; None for a queue without shares.
        priority: The priority within the share.
        quota_share_arn: The share's ARN, where it is a quota share.
        preemption_retries: How often a job runs again that was preempted; None for no limit.
    """

    queue_arn: str
    share: str | None
    priority: int
    quota_share_arn: str | None = None
    preemption_retries: int | None = None

    def members(self) -> dict[str, Any]:
        """Return the members of SubmitServiceJob that name the share."""
        if self.share is None:
            return {}
        name = "ShareIdentifier" if self.quota_share_arn is None else "QuotaShareName"
        limit = {"PreemptionRetriesBeforeTermination": self.preemption_retries}
        preemption = {} if self.preemption_retries is None else {"PreemptionConfiguration": limit}
        return {name: self.share, "SchedulingPriority": self.priority, **preemption}


def name_in_payload(prefix: str) -> str:
    """Return the TrainingJobName of a payload.

    Args:
        prefix: How the jobs' names begin.
    """
    return prefix[:_LONGEST_NAME].rstrip("-")


def queued_states(
    states: Mapping[str, Any], request: Mapping[str, Any], to: Submission, prefix: str, own: str, partition: str
) -> dict[str, Any]:
    """Return the states of an attempt whose job is submitted to a queue, and described by SageMaker once it has been created.

    The service job has the name of the attempt's job, and the same text as its token: of two requests with the same token the
    second "is rejected" (service model), and `Find` looks for the job of the first. From `IsOver` on all is as without a queue.

    Args:
        states: The states of an attempt that polls by a second state machine.
        request: The request of the job.
        to: Where it waits.
        prefix: How the jobs' names begin.
        own: JSONPath of the workflow's own data.
        partition: Partition of ARNs.
    """
    payload = {name: value for name, value in request.items() if name not in ("TrainingJobName.$", "Tags")}
    service, job = f"arn:{partition}:states:::aws-sdk:batch", f"{own}.Service"
    trained = f"{job}.LatestAttempt.ServiceResourceId.Value"
    failed = {"Variable": f"{job}.Status", "StringEquals": "FAILED"}
    terminated = [
        {"Variable": f"{job}.IsTerminated", "IsPresent": True},
        {"Variable": f"{job}.IsTerminated", "BooleanEquals": True},
    ]
    over = {"Or": [{"Variable": f"{job}.Status", "StringEquals": "SUCCEEDED"}, failed]}

    def called(
        operation: str, parameters: Mapping[str, Any], result: str, following: str, caught: str
    ) -> dict[str, Any]:
        return {
            "Type": "Task",
            "Resource": f"{service}:{operation}",
            "Parameters": parameters,
            "ResultPath": f"{own}.{result}",
            "Retry": [retry(5 if operation == "submitServiceJob" else 10, *OF_BATCH)],
            "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": f"{own}.Error", "Next": caught}],
            "Next": following,
        }

    def ended(status: str) -> dict[str, Any]:
        reason = {"FailureReason.$": f"{job}.StatusReason"} if status == "Failed" else {}
        return {
            "Type": "Pass",
            "Parameters": {"TrainingJobStatus": status, "SecondaryStatus": status, **reason},
            "ResultPath": f"{own}.Job",
            "Next": "IsOver",
        }

    found = f"{own}.Found.JobSummaryList[0]"
    refused = states["Find"]["Catch"][0]["Next"]
    described = {**states["Describe"], "Next": "IsOver"}
    described["Parameters"] = {"TrainingJobName.$": f"States.ArrayGetItem(States.StringSplit({trained}, '/'), 1)"}
    # There is no job to stop where none was submitted.
    states = redirected(states, {"Create": "Payload"})
    states = {
        name: redirected(state, {"Stop": "Error"}) if name == "WhyRefused" else state for name, state in states.items()
    }
    return {
        **states,
        "Payload": {
            "Type": "Pass",
            "Parameters": {"TrainingJobName": name_in_payload(prefix), **payload},
            "ResultPath": f"{own}.Request",
            "Next": "Create",
        },
        "Create": called(
            "submitServiceJob",
            {
                "JobName.$": f"{own}.JobName",
                "JobQueue": to.queue_arn,
                # What is tried again, and when, is the workflow's.
                "RetryStrategy": {"Attempts": 1},
                **to.members(),
                "ServiceJobType": "SAGEMAKER_TRAINING",
                "ServiceRequestPayload.$": f"States.JsonToString({own}.Request)",
                # As SageMaker's SDK has a job's tags (aws_batch/batch_api_helper.py): those of the service job.
                "Tags": _tags(request),
                "ClientToken.$": f"{own}.JobName",
            },
            "Queued",
            "Poll",
            "Find",
        ),
        "Find": called(
            "listServiceJobs",
            {
                "JobQueue": to.queue_arn,
                "Filters": [{"Name": "JOB_NAME", "Values.$": f"States.Array({own}.JobName)"}],
            },
            "Found",
            "IsFound",
            "Error",
        ),
        "IsFound": {
            "Type": "Choice",
            "Choices": [{"Variable": f"{found}.JobId", "IsPresent": True, "Next": "Found"}],
            "Default": "Error" if refused == "Stop" else refused,
        },
        "Found": {
            "Type": "Pass",
            "Parameters": {"JobId.$": f"{found}.JobId"},
            "ResultPath": f"{own}.Queued",
            "Next": "Describe",
        },
        "Describe": called("describeServiceJob", {"JobId.$": f"{own}.Queued.JobId"}, "Service", "IsQueued", "Stop"),
        "IsQueued": {
            "Type": "Choice",
            "Choices": [
                {"And": [over, {"Variable": trained, "IsPresent": True}], "Next": "DescribeJob"},
                {"And": [failed, *terminated], "Next": "Terminated"},
                {**failed, "Next": "NotCreated"},
            ],
            "Default": "Poll",
        },
        "DescribeJob": described,
        "Terminated": ended("Stopped"),
        "NotCreated": ended("Failed"),
        "Stop": {
            **called(
                "terminateServiceJob",
                {"JobId.$": f"{own}.Queued.JobId", "Reason": "its execution failed"},
                "Stopped",
                "Error",
                "Error",
            ),
            "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": f"{own}.Stopped", "Next": "Error"}],
        },
    }


def _tags(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tags of a rendered request as Batch has them."""
    tags: dict[str, Any] = {}
    for tag in request.get("Tags", []):
        tags |= {f"{tag['Key']}.$": tag["Value.$"]} if "Value.$" in tag else {tag["Key"]: tag["Value"]}
    return tags


def stopping_queued_states(queue_arn: str, job_names: str, partition: str) -> dict[str, Any]:
    """Return the states that terminate the service jobs of an execution, from `List` to before `HasLookedTwice`.

    Args:
        queue_arn: The job queue.
        job_names: Intrinsic function of a pattern of the jobs' names.
        partition: Partition of ARNs.
    """
    service = f"arn:{partition}:states:::aws-sdk:batch"
    again = retry(112, "States.ALL")  # for about an hour
    return {
        # Of many jobs the most recent are first, and an execution has one at a time.
        "List": {
            "Type": "Task",
            "Resource": f"{service}:listServiceJobs",
            "Parameters": {
                "JobQueue": queue_arn,
                "Filters": [{"Name": "JOB_NAME", "Values.$": f"States.Array({job_names})"}],
            },
            "ResultPath": "$.Listed",
            "Retry": [again],
            "Next": "Each",
        },
        "Each": {
            "Type": "Map",
            "ItemsPath": "$.Listed.JobSummaryList",
            "MaxConcurrency": 1,
            "ItemProcessor": {
                "StartAt": "HasEnded",
                "States": {
                    "HasEnded": {
                        "Type": "Choice",
                        "Choices": [
                            {"Variable": "$.Status", "StringEquals": status, "Next": "Ended"}
                            for status in ("SUCCEEDED", "FAILED")
                        ],
                        "Default": "Terminate",
                    },
                    "Terminate": {
                        "Type": "Task",
                        "Resource": f"{service}:terminateServiceJob",
                        "Parameters": {"JobId.$": "$.JobId", "Reason": "its execution has ended"},
                        "Retry": [again],
                        "Next": "Ended",
                    },
                    "Ended": {"Type": "Pass", "Result": {}, "End": True},
                },
            },
            "ResultPath": "$.Stopped",
            "Next": "HasLookedTwice",
        },
    }
