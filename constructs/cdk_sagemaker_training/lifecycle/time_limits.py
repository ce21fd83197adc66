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
    """The time of an execution."""

    timeout_seconds: int | None  # of the state machine; None without a time-out
    intervals: Intervals  # between two polls of a job, where they are polled

    @property
    def outlast_one_history(self) -> bool:
        """Whether polls may need more events than one execution has, or intervals longer than two minutes."""
        unbounded = self.timeout_seconds is None or is_unresolved(self.timeout_seconds)
        return unbounded or self.intervals.longest > MOST_SECONDS


@dataclass
class Runs:
    """How often a job of an execution runs at most, and waits between; features add theirs."""

    attempts: int = 1  # of a job that fails, whatever the cause
    others: int = 0  # runs that follow on one that did not complete for a cause, those without capacity apart
    refused: int = 0  # calls that create no job and are repeated
    rounds: int = 1  # in which the job and its alternatives are tried in turn where there is no capacity
    jobs_in_a_round: int = 1  # the job and its alternatives
    wait_seconds: int = 0  # before runs and calls

    @property
    def without_capacity(self) -> int:
        """How many jobs at most find no capacity and are followed by another."""
        return self.rounds * self.jobs_in_a_round - 1

    def check(self) -> None:
        """Check that an execution's history has room for them."""
        number, alternatives = self.others + self.refused + self.without_capacity, self.jobs_in_a_round - 1
        if number > MOST_RETRIES:
            raise must(
                "retries",
                f"be at most {MOST_RETRIES} of all causes together, which an execution's history has room for",
                "Retry(attempts=20, first_wait=Duration.minutes(5)) for each",
                f"{number}{(f' with {alternatives} alternatives' if alternatives else '')}",
            )


def time_limits(jobs: JobSet, timeout: Duration | int | None, runs: Runs, *, unbounded: bool) -> TimeLimits:
    """The time of an execution: ``timeout``, or else as long as all jobs at their longest take, so that they fit in.

    Jobs that find no capacity count only as long as they wait for it. Where jobs wait for what no limit counts (``unbounded``),
    as a training plan or a queue, there is no time-out but a given one.
    """
    pending = _known(jobs.max_pending_seconds or _PENDING_SECONDS)
    number = len(jobs.job_requests) * runs.attempts
    # Without waiting for a training plan.
    of_run = pending + max(_known(jobs.max_runtime_seconds), _known(jobs.max_wait_seconds or 0)) + _UPLOAD_SECONDS
    longest = number * ((1 + runs.others) * of_run + runs.without_capacity * pending + runs.wait_seconds)
    seconds = (None if unbounded else longest) if timeout is None else seconds_of("timeout", timeout)
    created = number * (1 + runs.others + runs.without_capacity)
    return TimeLimits(seconds, Intervals.over(_known(seconds, longest), created, number * runs.refused))


def time_out_advice(
    timeout: Duration | int | None, max_runtime_seconds: int, max_pending_seconds: int | None
) -> Iterator[Advice]:
    """Warn of a time-out that ends an execution, and its job, before the job may have run, or waited, for as long as it may."""
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


def _known(seconds: int | None, otherwise: int = _LONGEST_SECONDS) -> int:
    return otherwise if seconds is None or is_unresolved(seconds) else seconds
