"""How long an execution of a workflow may take, and how often it looks at its jobs in that time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from cdk_sagemaker_training.core.checks import seconds_of
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.jobs.advice import Advice, advice
from cdk_sagemaker_training.lifecycle.job_set import JobSet
from cdk_sagemaker_training.lifecycle.polling import MOST_SECONDS, Intervals

if TYPE_CHECKING:
    from aws_cdk import Duration

_PENDING_SECONDS = 24 * 3_600  # for machines, without max_pending
_LONGEST_SECONDS = 28 * 24 * 3_600  # for a time that is known only when the app is deployed
# Retries of all causes together: each writes fewer than 50 events, of the 25,000 that an execution's history has.
MOST_RETRIES = 300
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


@dataclass
class Runs:
    """How often a job of an execution runs at most, and waits between; features add theirs.

    Attributes:
        attempts: How often a job runs that fails, whatever the cause.
        others: How many runs follow on one that did not complete for a cause, those without capacity apart.
        refused: How many calls that create no job are repeated.
        rounds: How often the job and its alternatives are tried in turn where there is no capacity.
        jobs_in_a_round: The job and its alternatives.
        wait_seconds: The waits before runs and calls, in seconds.
    """

    attempts: int = 1
    others: int = 0
    refused: int = 0
    rounds: int = 1
    jobs_in_a_round: int = 1
    wait_seconds: int = 0

    @property
    def without_capacity(self) -> int:
        """How many jobs at most find no capacity and are followed by another."""
        return self.rounds * self.jobs_in_a_round - 1

    def check(self) -> None:
        """Check that an execution's history has room for them.

        Raises:
            ValueError: There are too many retries.
        """
        number, alternatives = self.others + self.refused + self.without_capacity, self.jobs_in_a_round - 1
        if number > MOST_RETRIES:
            raise must(
                "retries",
                f"be at most {MOST_RETRIES} of all causes together, which an execution's history has room for",
                "Retry(attempts=20, first_wait=Duration.minutes(5)) for each",
                f"{number}{(f' with {alternatives} alternatives' if alternatives else '')}",
            )


def time_limits(jobs: JobSet, timeout: Duration | int | None, runs: Runs, *, unbounded: bool) -> TimeLimits:
    """The time of an execution in which all of its jobs fit.

    Args:
        jobs: The workflow's jobs.
        timeout: The time-out, as a Duration or in seconds; None for one in which all jobs at their longest fit.
        runs: How often each job runs; those that find no capacity only as long as they wait for it.
        unbounded: Whether they wait for what no limit counts, as a training plan or a queue; then None is no time-out.
    """
    pending = _known(jobs.max_pending_seconds or _PENDING_SECONDS)
    number = len(jobs.job_requests) * runs.attempts
    longest = number * (
        (1 + runs.others) * (_longest_seconds(jobs) + _UPLOAD_SECONDS)
        + runs.without_capacity * pending
        + runs.wait_seconds
    )
    seconds = (None if unbounded else longest) if timeout is None else seconds_of("timeout", timeout)
    created = number * (1 + runs.others + runs.without_capacity)
    return TimeLimits(seconds, Intervals.over(_known(seconds, longest), created, number * runs.refused))


def time_out_advice(
    timeout: Duration | int | None, max_runtime_seconds: int, max_pending_seconds: int | None
) -> Iterator[Advice]:
    """Warn of a time-out that ends an execution, and its job, before the job may have run, or waited, for as long as it may.

    Args:
        timeout: The prop ``timeout``.
        max_runtime_seconds: The longest that a job runs.
        max_pending_seconds: The longest that it waits for its machines; None where SageMaker decides it.
    """
    seconds = None if timeout is None else seconds_of("timeout", timeout)
    if seconds is None or is_unresolved(seconds):
        return
    for prop, does, most in (
        ("max_runtime", "run", max_runtime_seconds),
        ("max_pending", "wait for its machines", max_pending_seconds),
    ):
        if most is not None and not is_unresolved(most) and seconds < most:
            yield from advice(
                f"timeout-before-{prop.replace('_', '-')}",
                f"timeout is {seconds} seconds, after which an execution and its job end, and {prop} lets the job {does} for "
                f"{most}: leave timeout out, or set {prop} to what the job may take.",
            )


def _longest_seconds(jobs: JobSet) -> int:
    """The most seconds from a job's Create to its end, without its upload and without waiting for a training plan."""
    pending = _known(jobs.max_pending_seconds or _PENDING_SECONDS)
    return pending + max(_known(jobs.max_runtime_seconds), _known(jobs.max_wait_seconds or 0))


def _known(seconds: int | None, otherwise: int = _LONGEST_SECONDS) -> int:
    return otherwise if seconds is None or is_unresolved(seconds) else seconds
