"""How long an execution of a workflow may take, and how often it looks at its jobs in that time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from cdk_sagemaker_training.core.checks import seconds_of
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.jobs.advice import Advice, advice
from cdk_sagemaker_training.workflow.causes import Cause
from cdk_sagemaker_training.workflow.launch import Launch
from cdk_sagemaker_training.workflow.polling import MOST_SECONDS, Intervals
from cdk_sagemaker_training.workflow.retry_policy import REFUSALS, Retry, capacity_failures

if TYPE_CHECKING:
    from aws_cdk import Duration

_PENDING_SECONDS = 24 * 3_600  # for machines, without max_pending
_LONGEST_SECONDS = 28 * 24 * 3_600  # for a time that is known only when the app is deployed
_UPLOAD_SECONDS = 3_600  # after its last second of training a job uploads what it made


class TimeLimits(NamedTuple):
    """The time of an execution.

    Args:
        timeout_seconds: The state machine's time-out; None without one.
        intervals: The times between two polls of a job, where they are polled.
    """

    timeout_seconds: int | None
    intervals: Intervals

    @property
    def outlast_one_history(self) -> bool:
        """Whether polls may need more events than one execution has, or intervals longer than two minutes."""
        unbounded = self.timeout_seconds is None or is_unresolved(self.timeout_seconds)
        return unbounded or self.intervals.longest > MOST_SECONDS


def time_limits(
    launch: Launch,
    timeout: Duration | int | None,
    jobs: int,
    *,
    reserved: bool,
    retries: Mapping[Cause, Retry] | None = None,
    alternatives: int = 0,
) -> TimeLimits:
    """The time of an execution in which all of its jobs fit.

    Args:
        launch: The workflow's jobs.
        timeout: The time-out, as a Duration or in seconds; None for one in which all jobs at their longest fit.
        jobs: How many jobs an execution runs at most, without retries.
        reserved: Whether they wait for a training plan, which no limit counts; then None is no time-out.
        retries: Retries of each job by cause. The waits are added, and the jobs: those that found no capacity only as long
            as they wait for it.
        alternatives: The number of alternatives, which may all find no capacity before each of these waits.
    """
    waits = {cause: retry.waits() for cause, retry in (retries or {}).items()}
    pended = capacity_failures(retries or {}, alternatives)
    again = pended + sum(len(of) for cause, of in waits.items() if cause not in {*REFUSALS, Cause.CAPACITY})
    refused = sum(len(of) for cause, of in waits.items() if cause in REFUSALS)
    pending = _known(launch.max_pending_seconds or _PENDING_SECONDS)
    longest = jobs * (
        (1 + again - pended) * (_longest_seconds(launch) + _UPLOAD_SECONDS)
        + pended * pending
        + sum(sum(of) for of in waits.values())
    )
    seconds = (None if reserved else longest) if timeout is None else seconds_of("timeout", timeout)
    return TimeLimits(seconds, Intervals.over(_known(seconds, longest), jobs * (1 + again), jobs * refused))


def time_out_advice(timeout: Duration | int | None, max_runtime_seconds: int) -> Iterator[Advice]:
    """Warn of a time-out that ends an execution, and its job, before the job may have run for as long as it may.

    Args:
        timeout: The prop ``timeout``.
        max_runtime_seconds: The longest that a job runs.
    """
    seconds = None if timeout is None else seconds_of("timeout", timeout)
    if seconds is None or is_unresolved(seconds) or is_unresolved(max_runtime_seconds):
        return
    if seconds < max_runtime_seconds:
        yield from advice(
            "timeout-before-max-runtime",
            f"timeout is {seconds} seconds, after which an execution and its job end, and max_runtime allows the job "
            f"{max_runtime_seconds}: leave timeout out, or set max_runtime to what the job may take.",
        )


def _longest_seconds(launch: Launch) -> int:
    """The most seconds from a job's Create to its end, without its upload and without waiting for a training plan."""
    pending = _known(launch.max_pending_seconds or _PENDING_SECONDS)
    return pending + max(_known(launch.max_runtime_seconds), _known(launch.max_wait_seconds or 0))


def _known(seconds: int | None, otherwise: int = _LONGEST_SECONDS) -> int:
    return otherwise if seconds is None or is_unresolved(seconds) else seconds
