"""A workflow's features, in the order in which they put their states, and its plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.lifecycle.direct import DirectJobs, Integration
from cdk_sagemaker_training.lifecycle.feature import Feature
from cdk_sagemaker_training.lifecycle.job_set import JobSet
from cdk_sagemaker_training.lifecycle.plan import JobService, Plan
from cdk_sagemaker_training.lifecycle.queued import QueuedJobs
from cdk_sagemaker_training.lifecycle.states import DATA
from cdk_sagemaker_training.lifecycle.time_limits import Runs, time_limits, time_out_advice
from cdk_sagemaker_training.request.data import checkpoint_folder
from cdk_sagemaker_training.request.machine import check_unit, short_time_advice
from cdk_sagemaker_training.request.props import TrainingProps
from cdk_sagemaker_training.resources.queue import ITrainingQueue, QueueShare
from cdk_sagemaker_training.resources.quota_share import QuotaShare

if TYPE_CHECKING:
    from aws_cdk import Duration


def planned(
    jobs: JobSet,
    features: Sequence[Feature],
    props: TrainingProps,
    resume_from: str | None,
    *,
    queue: ITrainingQueue | QueueShare | None,
    integration: Integration | None,
    timeout: Duration | int | None,
) -> Plan:
    """Return the plan of a workflow, with its requests rendered and each of its props checked beside the others."""
    folder = checkpoint_folder(resume_from, jobs.checkpoints)
    name = f"{DATA}.JobName"
    requests = {
        request.name_suffix: jobs.request(request, job_name=name, checkpoint_folder=folder)
        for request in jobs.job_requests
    }
    others = jobs.alternatives(job_name=name, checkpoint_folder=folder)
    service = _service(queue, integration, [*requests.values(), *others], features, props)
    jobs.advise_unlisted(integration)
    check_unit("timeout", timeout)
    jobs.advise(short_time_advice("timeout", timeout))
    jobs.advise(time_out_advice(timeout, jobs.max_runtime_seconds, jobs.max_pending_seconds))
    runs = Runs()
    for feature in features:
        feature.runs(runs)
    runs.check()
    limits = time_limits(jobs, timeout, runs, unbounded=service.waits_unbounded)
    plan = Plan(props, jobs, service, features, requests, others, limits)
    for feature in features:
        feature.check(plan)
    return plan


def _service(
    queue: ITrainingQueue | QueueShare | None,
    integration: Integration | None,
    requests: Sequence[Mapping[str, Any]],
    features: Sequence[Feature],
    props: TrainingProps,
) -> JobService:
    """By which service jobs are created."""
    if queue is None:
        if any(feature.preemptions is not None for feature in features):
            rule = "be given where retries have Cause.PREEMPTED, since no other job is preempted"
            raise must("queue", rule, "queue.share('vision')", "None")
        watched = any(feature.watch() for feature in features)
        return DirectJobs(integration, requests, props, watched=watched)
    if isinstance(queue, ITrainingQueue) and queue.shares:
        raise must(
            "queue",
            f"be one of the shares of {queue.node.path}",
            f"queue.share({next(iter(queue.shares))!r})",
            "the queue",
        )
    if integration not in (None, "poll"):
        rule = "be 'poll' with a queue, since `.sync` creates a job at once"
        raise must("integration", rule, "integration=None", repr(integration))
    for feature in features:
        if feature.not_queued:
            rule = f"be left out with a queue, since {feature.not_queued}"
            raise must(feature.prop, rule, f"{feature.prop}=[]", repr(feature))
    limits = [feature.preemptions for feature in features if feature.preemptions is not None]
    share = queue.queue.shares[queue.name] if isinstance(queue, QueueShare) else None
    if limits and not isinstance(share, QuotaShare):
        rule = "be a QuotaShare of a TrainingQueue where retries have Cause.PREEMPTED, since no other job is preempted"
        raise must("queue", rule, "queue.share('vision')", repr(queue))
    for feature in features:
        if feature.bounds_runs and isinstance(share, QuotaShare) and share.is_preemptible and not limits:
            raise must(
                "retries",
                f"have Cause.PREEMPTED with {feature.prop} and a quota share whose jobs are preempted, since AWS Batch runs them "
                "again without limit, each for as long as the first may",
                "{Cause.PREEMPTED: Retry(attempts=3)}",
                f"{share!r} without",
            )
    return QueuedJobs(queue, requests, *limits)
