"""What a workflow needs for jobs in a queue: policy statements, and a capacity for its machines.

The actions are those of the service authorization reference, "AWS Batch", whose table of operations has batch:TagResource and
iam:PassRole beside SubmitServiceJob.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aws_cdk import aws_iam as iam

from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.jobs.instance_group import machines_of
from cdk_sagemaker_training.resources.queue import QueueShare, TrainingQueue
from cdk_sagemaker_training.resources.quota_share import QuotaShare
from cdk_sagemaker_training.workflow.launch import Launch
from cdk_sagemaker_training.workflow.queued_states import Submission, name_in_payload


def queue_policies(launch: Launch, to: Submission) -> Iterator[iam.PolicyStatement]:
    """Yield the statements that allow a state machine to submit, describe and terminate service jobs.

    Args:
        launch: The jobs.
        to: Where they wait.
    """
    jobs = service_jobs(launch)
    share = [] if to.quota_share_arn is None else [to.quota_share_arn]
    yield iam.PolicyStatement(actions=["batch:SubmitServiceJob"], resources=[to.queue_arn, jobs, *share])
    yield iam.PolicyStatement(actions=["batch:TagResource", "batch:TerminateServiceJob"], resources=[jobs])
    yield describe_policy("batch:ListServiceJobs")
    yield iam.PolicyStatement(actions=["sagemaker:DescribeTrainingJob"], resources=training_jobs(launch))
    yield launch.pass_role_policy()


def stop_policies(launch: Launch) -> Iterator[iam.PolicyStatement]:
    """Yield the statements that allow listing and terminating service jobs.

    Args:
        launch: The jobs.
    """
    yield iam.PolicyStatement(actions=["batch:ListServiceJobs"], resources=["*"])
    yield iam.PolicyStatement(actions=["batch:TerminateServiceJob"], resources=[service_jobs(launch)])


def describe_policy(*others: str) -> iam.PolicyStatement:
    """Return a statement that allows describing service jobs, which has no narrower resource.

    Args:
        *others: Actions that have none either.
    """
    return iam.PolicyStatement(actions=["batch:DescribeServiceJob", *others], resources=["*"])


def service_jobs(launch: Launch) -> str:
    """Return the ARN pattern of service jobs, whose ids are random.

    Args:
        launch: The jobs.
    """
    return launch.stack.format_arn(service="batch", resource="service-job", resource_name="*")


def training_jobs(launch: Launch) -> list[str]:
    """Return the ARN patterns of the training jobs that Batch creates, as they are named and in lower case: see ``job_arns``.

    Args:
        launch: The jobs.
    """
    name = f"AWSBatch{name_in_payload(launch.prefix)}*"
    return [
        launch.stack.format_arn(service="sagemaker", resource="training-job", resource_name=one)
        for one in (name, name.lower())
    ]


def submission_to(queue: TrainingQueue | QueueShare, requests: Sequence[Mapping[str, Any]]) -> Submission:
    """Return where a workflow's jobs wait.

    Args:
        queue: The queue, or a share of one.
        requests: The rendered requests of the jobs.

    Raises:
        ValueError: A job has more machines than the queue's or the share's capacity, so that it would wait for ever.
    """
    if isinstance(queue, QueueShare):
        line, name = queue.queue, queue.name
        share = line.shares[name]
        if isinstance(share, QuotaShare):
            _check_quota(line, name, share, requests)
        else:
            _check_capacity(line, requests)
        return Submission(
            line.queue_arn, name, queue.priority, line.quota_share_arns.get(name), queue.preemption_retries
        )
    _check_capacity(queue, requests)
    return Submission(queue.queue_arn, None, 0)


def _check_quota(queue: TrainingQueue, name: str, share: QuotaShare, requests: Sequence[Mapping[str, Any]]) -> None:
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
                raise ValueError(
                    f"capacity of the share {name!r} of {queue.node.path} must be at least the machines of one job, like "
                    f"{{{kind!r}: {count}}}, got {most} of {kind!r}"
                )


def _check_capacity(queue: TrainingQueue, requests: Sequence[Mapping[str, Any]]) -> None:
    """Check that a queue has room for each job; machines that an execution's input decides pass."""
    assert not isinstance(queue.capacity, Mapping)
    for request in requests:
        config = request["ResourceConfig"]
        counts = [group.get("InstanceCount", config.get("InstanceCount")) for group in machines_of(config)]
        known = [count for count in counts if isinstance(count, int) and not is_unresolved(count)]
        machines = max(known, default=0) if config.get("InstancePreferences") else sum(known)
        if not is_unresolved(queue.capacity) and machines > queue.capacity:
            raise ValueError(
                f"capacity of {queue.node.path} must be at least the machines of one job, like capacity={machines}, got "
                f"{queue.capacity}"
            )
