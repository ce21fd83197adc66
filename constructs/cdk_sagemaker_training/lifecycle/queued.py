"""Jobs that wait in a queue of AWS Batch, which creates them once there are machines.

Actions are those of the service authorization reference, "AWS Batch", whose table of operations has batch:TagResource and
iam:PassRole beside SubmitServiceJob.

Batch stops a preempted job's training job, and creates another one once there are machines again. "A sliding window of recent
preemption attempts is stored on the job, and visible via DescribeServiceJob" (AWS Batch guide, "Preemption"), each with the ARN
of its training job (the guide's example of the event "Batch Service Job Preemption Completed").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import aws_iam as iam

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.jobs.instance_group import machines_of
from cdk_sagemaker_training.lifecycle.attempt import FAILED_ATTEMPTS, Attempt, Seam
from cdk_sagemaker_training.lifecycle.causes import Cause
from cdk_sagemaker_training.lifecycle.job_set import JobSet
from cdk_sagemaker_training.lifecycle.plan import Call, Plan
from cdk_sagemaker_training.lifecycle.states import DATA, OF_BATCH, catch, fail, forbidden, retry, sdk_task
from cdk_sagemaker_training.resources.queue import ITrainingQueue, QueueShare
from cdk_sagemaker_training.resources.quota_share import QuotaShare

_JOB = f"{DATA}.Service"
_FAILED = {"Variable": f"{_JOB}.Status", "StringEquals": "FAILED"}
_OVER = {"Or": [{"Variable": f"{_JOB}.Status", "StringEquals": "SUCCEEDED"}, _FAILED]}

# Batch names a training job "AWSBatch", the payload's TrainingJobName and 32 hexadecimal digits of the attempt ("Getting started
# with AWS Batch on SageMaker AI", "Service job state change events"). What it does with a name for which the 63 characters of
# SageMaker have no room is not said, so the payload's is as short as always fits.
_LONGEST_NAME = 63 - len("AWSBatch") - 32


@dataclass(frozen=True)
class Submission:
    """Where a workflow's jobs wait."""

    queue_arn: str
    share: str | None  # None for a queue without shares
    priority: int  # within the share
    quota_share_arn: str | None = None  # where it is a quota share
    preemptions: int | None = None  # how often a job runs again that was preempted; None for no limit

    def members(self) -> dict[str, Any]:
        """Return the members of SubmitServiceJob that name the share."""
        if self.share is None:
            return {}
        name = "ShareIdentifier" if self.quota_share_arn is None else "QuotaShareName"
        limit = {"PreemptionRetriesBeforeTermination": self.preemptions}
        preemption = {} if self.preemptions is None else {"PreemptionConfiguration": limit}
        return {name: self.share, "SchedulingPriority": self.priority, **preemption}


def name_in_payload(prefix: str) -> str:
    """Return the TrainingJobName of a payload."""
    return prefix[:_LONGEST_NAME].rstrip("-")


class QueuedJobs:
    """Jobs that executions submit to a queue, and that Batch creates; see ``JobService``.

    A service job has the name of the attempt's job, and the same text as its token: of two requests with one token the second "is
    rejected" (service model), and `Find` looks for the job of the first.
    """

    error_prefix = "Batch."
    job_id = f"{DATA}.Queued.JobId"
    describe = Call("batch:describeServiceJob", {"JobId.$": "$.JobName"}, "Status")
    ended: Sequence[str] = ("SUCCEEDED", "FAILED")
    errors: Sequence[str] = OF_BATCH
    polls = True
    waits_unbounded = True

    def __init__(
        self,
        queue: ITrainingQueue | QueueShare,
        requests: Sequence[Mapping[str, Any]],
        preemptions: int | None = None,
    ) -> None:
        """Choose where jobs wait, where none has more machines than the capacity, so that it would wait for ever."""
        self.queue = queue.queue if isinstance(queue, QueueShare) else queue
        self.submission = _submission(queue, requests, preemptions)
        self.properties: Mapping[str, Any] = {"JobQueue": self.queue.queue_arn}
        self.needs: Sequence[Any] = (self.queue,)

    def states(self, attempt: Attempt) -> None:
        """Add the states that submit a job, describe it, and once SageMaker has created it describe that."""
        trained = f"{_JOB}.LatestAttempt.ServiceResourceId.Value"
        terminated = [
            {"Variable": f"{_JOB}.IsTerminated", "IsPresent": True},
            {"Variable": f"{_JOB}.IsTerminated", "BooleanEquals": True},
        ]
        [request], jobs = attempt.requests, attempt.plan.jobs
        attempt.starts(Seam.CREATE, "Payload")
        # There is no job to stop where none was submitted.
        attempt.starts(Seam.REFUSED, "Error")
        attempt.states |= {
            **submitting_states(request, self.submission, jobs.prefix, attempt.partition, jobs.tags.mapped),
            "Describe": _called(
                attempt.partition, "describeServiceJob", {"JobId.$": self.job_id}, "Service", "IsQueued", "NotDescribed"
            ),
            "NotDescribed": {
                "Type": "Choice",
                "Choices": [{**forbidden(f"{DATA}.Error"), "Next": "Stop"}],
                "Default": "Poll",
            },
            "IsQueued": {
                "Type": "Choice",
                "Choices": [
                    *self._preempted(attempt),
                    {"And": [_OVER, {"Variable": trained, "IsPresent": True}], "Next": "DescribeJob"},
                    {"And": [_FAILED, *terminated], "Next": "Terminated"},
                    {**_FAILED, "Next": "NotCreated"},
                ],
                "Default": "Poll",
            },
            "DescribeJob": _describe_training_job(attempt.partition, trained, "IsOver"),
            "Terminated": _ended("Stopped"),
            "NotCreated": _ended("Failed"),
            "Stop": {
                **_called(
                    attempt.partition,
                    "terminateServiceJob",
                    {"JobId.$": self.job_id, "Reason": "its execution failed"},
                    "Stopped",
                    "Error",
                    "Error",
                ),
                "Catch": [catch("Error", f"{DATA}.Stopped")],
            },
        }

    def _preempted(self, attempt: Attempt) -> Iterator[dict[str, Any]]:
        """Add the states of a job that was preempted in a quota share, and yield the rules that lead to them.

        `Preempted` fails the execution of a job that was preempted once more than it may be. Each preempted training job is
        described once the service job has ended, where a feature accounts for it.
        """
        to = self.submission
        if to.quota_share_arn is None:
            return
        summary = f"{_JOB}.PreemptionSummary"
        if to.preemptions is not None:
            too_often = [
                _FAILED,
                {"Variable": f"{summary}.PreemptedAttemptCount", "IsPresent": True},
                {"Variable": f"{summary}.PreemptedAttemptCount", "NumericGreaterThan": to.preemptions},
            ]
            text = f"{{}}: preempted more often than retries of Cause.PREEMPTED allow, {to.preemptions}"
            attempt.states["Preempted"] = fail("TrainingJobStopped", text)
            yield {"And": too_often, "Next": attempt.counts("Preempted", FAILED_ATTEMPTS, str(Cause.PREEMPTED))}
        if billed := attempt.billed("NextPreempted", "Preempted"):
            recent = f"{summary}.RecentPreemptedAttempts"
            first = f"{recent}[0].ServiceResourceId.Value"
            attempt.states |= billed
            attempt.states |= {
                "DescribePreempted": _describe_training_job(attempt.partition, first, next(iter(billed))),
                "NextPreempted": {
                    "Type": "Pass",
                    "InputPath": f"{recent}[1:]",
                    "ResultPath": recent,
                    "Next": "IsQueued",
                },
            }
            yield {"And": [_OVER, {"Variable": first, "IsPresent": True}], "Next": "DescribePreempted"}

    def arns(self, jobs: JobSet) -> list[str]:
        """Return the ARN patterns of the service jobs, whose ids are random, and of the training jobs that Batch creates."""
        return [_service_jobs(jobs), *_training_jobs(jobs)]

    def statements(self, plan: Plan) -> Iterator[iam.PolicyStatement]:
        """Yield what submitting, describing and terminating service jobs needs."""
        jobs, to = plan.jobs, self.submission
        share = [] if to.quota_share_arn is None else [to.quota_share_arn]
        service_jobs = _service_jobs(jobs)
        yield iam.PolicyStatement(actions=["batch:SubmitServiceJob"], resources=[to.queue_arn, service_jobs, *share])
        yield iam.PolicyStatement(actions=["batch:TagResource", "batch:TerminateServiceJob"], resources=[service_jobs])
        yield _describe_policy("batch:ListServiceJobs")
        yield iam.PolicyStatement(actions=["sagemaker:DescribeTrainingJob"], resources=_training_jobs(jobs))
        yield jobs.pass_role_policy()

    def polling_statement(self, jobs: JobSet, *, stops: bool) -> iam.PolicyStatement:
        """Return what describing service jobs needs."""
        return _describe_policy()


def submitting_states(
    request: Mapping[str, Any],
    to: Submission,
    prefix: str,
    partition: str,
    tags: Callable[[Mapping[str, Any]], Any] = dict,
) -> dict[str, Any]:
    """Return the states from `Payload` that submit a job, or find the one that was submitted."""
    payload = {name: value for name, value in request.items() if name not in ("TrainingJobName.$", "Tags")}
    found = f"{DATA}.Found.JobSummaryList[0]"
    submit = {
        "JobName.$": f"{DATA}.JobName",
        "JobQueue": to.queue_arn,
        # What is tried again, and when, is the workflow's.
        "RetryStrategy": {"Attempts": 1},
        **to.members(),
        "ServiceJobType": "SAGEMAKER_TRAINING",
        "ServiceRequestPayload.$": f"States.JsonToString({DATA}.Request)",
        # As SageMaker's SDK has a job's tags (aws_batch/batch_api_helper.py): those of the service job.
        "Tags": tags(_tags(request)),
        "ClientToken.$": f"{DATA}.JobName",
    }
    return {
        "Payload": {
            "Type": "Pass",
            "Parameters": {"TrainingJobName": name_in_payload(prefix), **payload},
            "ResultPath": f"{DATA}.Request",
            "Next": "Create",
        },
        "Create": _called(partition, "submitServiceJob", submit, "Queued", "Poll", "Find"),
        "Find": _called(
            partition, "listServiceJobs", _named(to.queue_arn, f"{DATA}.JobName"), "Found", "IsFound", "Error"
        ),
        "IsFound": {
            "Type": "Choice",
            "Choices": [{"Variable": f"{found}.JobId", "IsPresent": True, "Next": "Found"}],
            "Default": Seam.REFUSED,
        },
        "Found": {
            "Type": "Pass",
            "Parameters": {"JobId.$": f"{found}.JobId"},
            "ResultPath": f"{DATA}.Queued",
            "Next": "Describe",
        },
    }


def _called(
    partition: str, operation: str, parameters: Mapping[str, Any], result: str, following: str, caught: str
) -> dict[str, Any]:
    """A state that calls AWS Batch."""
    retrier = retry(5 if operation == "submitServiceJob" else 10, *OF_BATCH)
    return sdk_task(partition, f"batch:{operation}", parameters, f"{DATA}.{result}", retrier, following, catch(caught))


def _ended(status: str) -> dict[str, Any]:
    """The state that describes a job that SageMaker did not create."""
    reason = {"FailureReason.$": f"{_JOB}.StatusReason"} if status == "Failed" else {}
    return {
        "Type": "Pass",
        "Parameters": {"TrainingJobStatus": status, "SecondaryStatus": status, **reason},
        "ResultPath": f"{DATA}.Job",
        "Next": "IsOver",
    }


def _describe_training_job(partition: str, arn: str, following: str) -> dict[str, Any]:
    """The state that describes the training job of a service job."""
    name = {"TrainingJobName.$": f"States.ArrayGetItem(States.StringSplit({arn}, '/'), 1)"}
    operation = "sagemaker:describeTrainingJob"
    return sdk_task(partition, operation, name, f"{DATA}.Job", retry(10), following, catch("NotDescribed"))


def _tags(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tags of a rendered request as Batch has them."""
    tags: dict[str, Any] = {}
    for tag in request.get("Tags", []):
        tags |= {f"{tag['Key']}.$": tag["Value.$"]} if "Value.$" in tag else {tag["Key"]: tag["Value"]}
    return tags


def _named(queue_arn: str, names: str) -> dict[str, Any]:
    """The parameters of ListServiceJobs for the jobs of a name, or of a pattern of names, that an expression gives."""
    return {"JobQueue": queue_arn, "Filters": [{"Name": "JOB_NAME", "Values.$": f"States.Array({names})"}]}


def _describe_policy(*others: str) -> iam.PolicyStatement:
    """A statement that allows describing service jobs, which has no narrower resource, and other actions that have none."""
    return iam.PolicyStatement(actions=["batch:DescribeServiceJob", *others], resources=["*"])


def _service_jobs(jobs: JobSet) -> str:
    return jobs.stack.format_arn(service="batch", resource="service-job", resource_name="*")


def _training_jobs(jobs: JobSet) -> list[str]:
    """The ARN patterns of the training jobs that Batch creates, as they are named and in lower case: see ``job_arns``."""
    name = f"AWSBatch{name_in_payload(jobs.prefix)}*"
    return [
        jobs.stack.format_arn(service="sagemaker", resource="training-job", resource_name=resource_name)
        for resource_name in (name, name.lower())
    ]


def _submission(
    place: ITrainingQueue | QueueShare, requests: Sequence[Mapping[str, Any]], preemptions: int | None
) -> Submission:
    """Where jobs wait, once the capacity has been checked."""
    if not isinstance(place, QueueShare):
        _check_capacity(place, requests)
        return Submission(place.queue_arn, None, 0)
    queue, name = place.queue, place.name
    if isinstance(share := queue.shares[name], QuotaShare):
        _check_quota(queue, name, share, requests)
    else:
        _check_capacity(queue, requests)
    return Submission(queue.queue_arn, name, place.priority, queue.quota_share_arns.get(name), preemptions)


def _check_quota(queue: ITrainingQueue, name: str, share: QuotaShare, requests: Sequence[Mapping[str, Any]]) -> None:
    """Check that a quota share has room for each job; machines that an execution's input decides pass."""
    assert isinstance(queue.capacity, Mapping)
    for request in requests:
        config, machines = request["ResourceConfig"], Counter[str]()
        for group in machines_of(config):
            kind, count = group.get("InstanceType"), group.get("InstanceCount", config.get("InstanceCount"))
            if isinstance(kind, str) and isinstance(count, int) and not (is_unresolved(kind) or is_unresolved(count)):
                machines[kind] += count
        for kind, count in machines.items():
            most = share.most(kind, queue.capacity.get(kind, 0))
            if count > most:
                prop, example = f"capacity of the share {name!r} of {queue.node.path}", f"{{{kind!r}: {count}}}"
                raise must(prop, "be at least the machines of one job", example, f"{most} of {kind!r}")


def _check_capacity(queue: ITrainingQueue, requests: Sequence[Mapping[str, Any]]) -> None:
    """Check that a queue has room for each job; machines that an execution's input decides pass."""
    assert not isinstance(queue.capacity, Mapping)
    for request in requests:
        config = request["ResourceConfig"]
        counts = [group.get("InstanceCount", config.get("InstanceCount")) for group in machines_of(config)]
        known = [count for count in counts if isinstance(count, int) and not is_unresolved(count)]
        machines = max(known, default=0) if config.get("InstancePreferences") else sum(known)
        if not is_unresolved(queue.capacity) and machines > queue.capacity:
            rule, example = "be at least the machines of one job", f"capacity={machines}"
            raise must(f"capacity of {queue.node.path}", rule, example, f"{queue.capacity}")
