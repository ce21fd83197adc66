"""Checks of the props of a TrainingWorkflow that concern each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cdk_sagemaker_training.core.checks import seconds_of
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.jobs.kinds import TrainingJob
from cdk_sagemaker_training.request.props import TrainingProps
from cdk_sagemaker_training.request.sync import check_sync_takes, sync_takes
from cdk_sagemaker_training.resources.queue import QueueShare, TrainingQueue
from cdk_sagemaker_training.workflow.alternatives import Alternative
from cdk_sagemaker_training.workflow.attempt_states import OWN, Integration
from cdk_sagemaker_training.workflow.budget import Budget, BudgetStates
from cdk_sagemaker_training.workflow.causes import Cause
from cdk_sagemaker_training.workflow.launch import Launch
from cdk_sagemaker_training.workflow.retry_policy import Retry, check_retries
from cdk_sagemaker_training.workflow.stop_rules import Silence, StopRule
from cdk_sagemaker_training.workflow.waiting import LONGEST

_MOST_ATTEMPTS = 30  # as many as SageMaker itself retries a job, and as fit into an execution's history


def chosen_integration(
    integration: Integration | None,
    requests: Sequence[Mapping[str, Any]],
    props: TrainingProps,
    stop_when: Sequence[StopRule],
) -> Integration:
    """Return the integration that is given, if it takes the requests, or else ``"sync"`` where that is known to take them.

    Args:
        integration: The prop ``integration``.
        requests: The rendered requests of all jobs.
        props: The props of the job.
        stop_when: The prop ``stop_when``.

    Raises:
        ValueError: The integration does not take a request, or does not look at a running job as ``stop_when`` needs.
    """
    if stop_when and integration not in (None, "poll"):
        raise ValueError(
            "integration must be 'poll' with stop_when, since `.sync` says nothing of a job until it ends, like "
            f"integration='poll', got {integration!r}"
        )
    if stop_when:
        return "poll"
    chosen = integration or ("sync" if all(map(sync_takes, requests)) else "poll")
    if chosen == "sync":
        for request in requests:
            check_sync_takes(request, "integration='poll'", props, integration)
    return chosen


def check_waiting(longest: Any, notify: Sequence[Any]) -> int | None:
    """Return the seconds of ``waiting_longer_than``; None where there is none.

    Args:
        longest: The prop ``waiting_longer_than``.
        notify: The prop ``notify``.

    Raises:
        ValueError: It is without a topic, or is no time that a state machine can wait for.
    """
    if longest is None:
        return None
    seconds = seconds_of("waiting_longer_than", longest)
    if seconds > LONGEST:
        rule = "at most a year, as long as an execution runs"
        raise ValueError(f"waiting_longer_than must be {rule}, like Duration.hours(2), got {longest!r}")
    if not notify:
        raise ValueError(f"notify must have a topic with waiting_longer_than, like notify=[topic], got {notify!r}")
    return seconds


def check_queue(
    queue: TrainingQueue | QueueShare | None,
    integration: Integration | None,
    alternatives: Sequence[TrainingJob | Alternative],
    stop_when: Sequence[StopRule],
) -> None:
    """Check what cannot be said together with a queue.

    Args:
        queue: The prop ``queue``.
        integration: The prop ``integration``.
        alternatives: The prop ``alternatives``.
        stop_when: The prop ``stop_when``.

    Raises:
        ValueError: A queue with shares is given without one, or one of the others is given with a queue.
    """
    if queue is None:
        return
    if isinstance(queue, TrainingQueue) and queue.shares:
        raise ValueError(
            f"queue must be one of the shares of {queue.node.path}, like queue.share({next(iter(queue.shares))!r}), got the queue"
        )
    if integration not in (None, "poll"):
        raise ValueError(
            "integration must be 'poll' with a queue, since `.sync` creates a job at once, like integration=None, got "
            f"{integration!r}"
        )
    if alternatives or stop_when:
        given, got = ("alternatives", alternatives) if alternatives else ("stop_when", stop_when)
        why = "AWS Batch itself waits for capacity" if alternatives else "a service job has no status that rules read"
        raise ValueError(f"{given} must be left out with a queue, since {why}, like {given}=[], got {list(got)!r}")


def check_silence(retries: Mapping[Cause, Retry] | None, stop_when: Sequence[StopRule]) -> None:
    """Check that only jobs that are stopped when silent are run again for it.

    Args:
        retries: The prop ``retries``.
        stop_when: The prop ``stop_when``.

    Raises:
        ValueError: There is no rule by which a job is stopped when it is silent.
    """
    if Cause.SILENT in (retries or {}) and not any(isinstance(rule, Silence) for rule in stop_when):
        raise ValueError(
            "stop_when must have a Silence where retries have Cause.SILENT, like [Silence(Duration.hours(2))], got "
            f"{list(stop_when)!r}"
        )


def budget_states(
    budget: Budget | None, requests: Sequence[Mapping[str, Any]], launch: Launch, *, notifies: bool = False
) -> BudgetStates | None:
    """Return the states of a budget; None without one.

    Args:
        budget: The prop ``budget``.
        requests: The rendered requests of all jobs.
        launch: The workflow's jobs.
        notifies: Whether an event is put once the budget is nearly used.

    Raises:
        ValueError: The job makes several requests, or how long one runs is not known.
    """
    if budget is None:
        return None
    if len(launch.job_requests) > 1:
        raise ValueError(
            "budget must be left out of a job that makes several requests, like one compiled ahead of time, got "
            f"{len(launch.job_requests)} of job with {budget!r}"
        )
    if is_unresolved(launch.max_runtime_seconds):
        raise ValueError(
            "max_runtime must be known at synth where a budget is given, like Duration.hours(6), got a token"
        )
    partition = launch.partition if notifies else None
    return BudgetStates(budget, requests, launch.max_runtime_seconds, OWN, partition)


def check_attempts(
    attempts: int,
    retries: Mapping[Cause, Retry] | None,
    alternatives: Sequence[TrainingJob | Alternative],
    *,
    job_metrics: bool = False,
) -> None:
    """Check how often a job is run again.

    Args:
        attempts: The prop ``attempts``.
        retries: The prop ``retries``.
        alternatives: The prop ``alternatives``.
        job_metrics: The prop ``job_metrics``, which counts by cause.

    Raises:
        ValueError: There are too many attempts, attempts beside what excludes them, or retries that break a rule.
    """
    if not 1 <= attempts <= _MOST_ATTEMPTS:
        raise ValueError(f"attempts must be a whole number from 1 to {_MOST_ATTEMPTS}, like 3, got {attempts!r}")
    if attempts != 1 and (retries is not None or alternatives or job_metrics):
        beside = "retries" if retries is not None else "alternatives" if alternatives else "job_metrics"
        raise ValueError(
            f"attempts must be left out where {beside} are given, like retries=default_retries(), got {attempts!r}"
        )
    check_retries(retries or {}, len(alternatives))
