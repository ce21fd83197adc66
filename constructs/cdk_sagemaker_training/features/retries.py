"""How often, and after which waits, a job is run again: by the cause for which it did not complete."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cdk_sagemaker_training.core.checks import seconds_of
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.jobs.advice import Advice, advice
from cdk_sagemaker_training.lifecycle.attempt import FAILED_ATTEMPTS, Attempt, Seam
from cdk_sagemaker_training.lifecycle.causes import REFUSALS, Cause
from cdk_sagemaker_training.lifecycle.feature import Feature
from cdk_sagemaker_training.lifecycle.states import DATA, RETRIED, status_is
from cdk_sagemaker_training.lifecycle.time_limits import MOST_RETRIES, Runs
from cdk_sagemaker_training.props.prop import Known, Prop, kind
from cdk_sagemaker_training.props.prop_types import Value, check_fields

if TYPE_CHECKING:
    from aws_cdk import Duration

    from cdk_sagemaker_training.lifecycle.plan import Plan

# One fewer than SageMaker itself retries a job, and as many as fit into an execution's history.
_MOST_RETRIES_AT_ONCE = 29

_NEVER = {
    Cause.STOPPED: "a job that somebody stopped stays stopped",
    Cause.DATA_NOT_FOUND: "no other run finds the data",
    Cause.NOT_AVAILABLE: "no wait brings a larger quota, or machines that the region has not",
}
_WAITS = Known("synth", "since the waits are listed in the state machine")


@kind("Retry(attempts=3, first_wait=Duration.minutes(5))")
@dataclass(frozen=True)
class Retry(Value):
    """How a job that did not complete for a cause is run again: after waits that grow, until the last of them.

    Args:
        attempts: Maximum number of retries. None: as many as fit into ``until``.
        first_wait: Wait before the first retry, a Duration or in seconds. None: all retries are at once.
        backoff: Factor by which each wait is longer than the one before, at least 1.
        max_wait: The longest wait, a Duration or in seconds.
        until: What all waits for the cause add up to at most, a Duration or in seconds; the time in which jobs run is not
            counted. None: no limit but ``attempts``.

    Raises:
        ValueError: Neither ``attempts`` nor ``until`` ends the retries, or a value is out of its range.
    """

    attempts: Annotated[int | None, Prop(known=_WAITS, example="3")] = None
    first_wait: Annotated[Duration | int | None, _WAITS] = None
    backoff: Annotated[float, _WAITS] = 2.0
    max_wait: Annotated[Duration | int, _WAITS] = 1_800
    until: Annotated[Duration | int | None, _WAITS] = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.attempts is not None and not 0 <= self.attempts <= MOST_RETRIES:
            raise must(
                "attempts of a Retry", f"be a number of retries from 0 to {MOST_RETRIES}", "3", f"{self.attempts}"
            )
        if self.attempts is None and (self.until is None or self.first_wait is None):
            example = "Retry(first_wait=Duration.minutes(5), until=Duration.hours(24))"
            raise must("attempts of a Retry", "be set unless first_wait and until are", example, repr(self))
        if self.backoff < 1:
            raise must("backoff", "be a factor of at least 1", "2", f"{self.backoff}")
        first = 0 if self.first_wait is None else seconds_of("first_wait", self.first_wait)
        if first > (most := seconds_of("max_wait", self.max_wait)):
            example = "first_wait=Duration.minutes(5) and max_wait=Duration.minutes(30)"
            raise must("first_wait", "be at most max_wait", example, f"{first} and {most} seconds")
        waits = self.waits()
        if self.attempts != 0 and not 1 <= len(waits) <= MOST_RETRIES:
            raise must(
                "until",
                f"be as long as 1 to {MOST_RETRIES} waits",
                "until=Duration.hours(24) with first_wait=Duration.minutes(5)",
                f"{seconds_of('until', self.until)} seconds, which {('no wait fits into' if not waits else 'are more')}",
            )

    def waits(self) -> list[int]:
        """Return the seconds before each retry."""
        most = None if self.until is None else seconds_of("until", self.until)
        waits: list[int] = []
        for seconds in itertools.islice(self._growing(), MOST_RETRIES + 1 if self.attempts is None else self.attempts):
            if most is not None and sum(waits) + seconds > most:
                break
            waits.append(seconds)
        return waits

    def _growing(self) -> Iterator[int]:
        if self.first_wait is None:
            yield from itertools.repeat(0)
        seconds = float(seconds_of("first_wait", self.first_wait))
        longest = seconds_of("max_wait", self.max_wait)
        while True:
            yield min(round(seconds), longest)
            seconds = min(seconds * self.backoff, longest)


def default_retries() -> dict[Cause, Retry]:
    """Return retries for what passes: throttling and errors of the service, a full quota, lack of capacity, a lost host.

    The first two are retried for an hour, the next two for a day, with waits that grow to half an hour; a job whose host was
    lost is run again at once, up to ten times, from its checkpoints where it has some. Nothing else is: what a script does wrong
    it does wrong again, at the same price.
    """
    soon = Retry(first_wait=30, max_wait=300, until=3_600)
    later = Retry(first_wait=300, max_wait=1_800, until=86_400)
    return {
        Cause.THROTTLED: soon,
        Cause.SERVICE_ERROR: soon,
        Cause.QUOTA: later,
        Cause.CAPACITY: later,
        Cause.HOST_LOST: Retry(attempts=10),
    }


class RetriedFailures(Feature):
    """Runs a job that fails again at once, whatever the cause: ``retries`` as a number."""

    prop = "retries"

    def __init__(self, times: int) -> None:
        """Check the number."""
        if not 1 <= times <= _MOST_RETRIES_AT_ONCE:
            raise must("retries", f"be by cause, or a whole number from 1 to {_MOST_RETRIES_AT_ONCE}", "2", repr(times))
        self.times = times

    def check(self, plan: Plan) -> None:
        """Check that no other feature needs to know the cause."""
        beside = next((feature.prop for feature in plan.features if feature.by_cause), None)
        if beside is not None:
            raise must(
                "retries", f"be by cause where {beside} are given", "retries=default_retries()", repr(self.times)
            )

    def runs(self, runs: Runs) -> None:
        """Add the runs."""
        runs.attempts = 1 + self.times

    def states(self, attempt: Attempt) -> None:
        """Add the rule."""
        left = {"Variable": f"{DATA}.Attempt", "NumericLessThan": 1 + self.times}
        attempt.ends("Failed", {"And": [status_is("Failed"), left], "Next": Seam.AGAIN})


class Retries(Feature):
    """Runs a job again by the cause for which it did not complete.

    A cause has a counter and its waits in the execution data. ``Retry<Cause>`` counts, and ``WaitAfter<Cause>`` waits.
    """

    prop = "retries"
    by_cause = True

    def __init__(self, retries: Mapping[Cause, Retry]) -> None:
        """Check the prop ``retries``: some causes are never retried, and after a preemption there is no wait."""
        for cause, why in _NEVER.items():
            if cause in retries:
                raise must("retries", "be of causes that pass", "Cause.CAPACITY", f"{cause!s}: {why}")
        preempted = retries.get(Cause.PREEMPTED)
        if preempted is not None and any(preempted.waits()):
            rule = "be a number of attempts, since AWS Batch itself runs the job again"
            raise must("retries of Cause.PREEMPTED", rule, "Retry(attempts=3)", repr(preempted))
        self.preemptions = None if preempted is None else len(preempted.waits())
        self.waits = {cause: retry.waits() for cause, retry in retries.items() if cause is not Cause.PREEMPTED}
        self.retried = tuple(self.waits)

    def events(self) -> Mapping[str, str]:
        """Return that of a job that is run again."""
        return {"Retries": RETRIED}

    def check(self, plan: Plan) -> None:
        """Check that the causes can be: only jobs that are stopped when silent are, and only spot jobs are interrupted."""
        if Cause.INTERRUPTED in self.waits and plan.props.get("spot") is None:
            rule = "be given where retries have Cause.INTERRUPTED, since no other job is interrupted"
            raise must("spot", rule, "Spot(S3Prefix(bucket, 'checkpoints/'))", "None")
        if Cause.SILENT in self.waits and not any(Cause.SILENT in feature.stops_for for feature in plan.features):
            given = next((repr(feature) for feature in plan.features if feature.prop == "stop_when"), "none")
            rule = "have a Silence where retries have Cause.SILENT"
            raise must("stop_when", rule, "[Silence(Duration.hours(2))]", given)
        plan.jobs.advise(self._cut_off(plan.limits.timeout_seconds))

    def _cut_off(self, timeout: int | None) -> Iterator[Advice]:
        """Warn of retries of a cause whose waits alone are longer than an execution may take."""
        for cause, waits in self.waits.items():
            if timeout is not None and not is_unresolved(timeout) and sum(waits) >= timeout:
                yield from advice(
                    "timeout-before-retries",
                    f"timeout is {timeout} seconds, after which an execution ends, and the waits of retries of "
                    f"Cause.{cause.name} are {sum(waits)} together: leave timeout out, or set until of the Retry to less.",
                )

    def runs(self, runs: Runs) -> None:
        """Add the runs, and the waits before them."""
        for cause, waits in self.waits.items():
            runs.wait_seconds += sum(waits)
            if cause is Cause.CAPACITY:
                runs.rounds += len(waits)
            elif cause in REFUSALS:
                runs.refused += len(waits)
            else:
                runs.others += len(waits)

    def data(self, plan: Plan) -> Mapping[str, Any]:
        """Return the counters."""
        return {
            "Retries": {cause.state: {"Retries": 0, "Waits": waits, "Wait": 0} for cause, waits in self.waits.items()}
        }

    def states(self, attempt: Attempt) -> None:
        """Let attempts follow, each after its wait."""
        for cause, waits in self.waits.items():
            counter, wait = f"{DATA}.Retries.{cause.state}", f"WaitAfter{cause.state}"
            following: str = Seam.CREATE if cause in REFUSALS else Seam.AGAIN
            if cause is Cause.CAPACITY:
                following = Seam.FROM_THE_FIRST
            if any(waits):
                attempt.states[wait] = {"Type": "Wait", "SecondsPath": f"{counter}.Wait", "Next": following}
                following = wait
            detail = {"Cause": str(cause), "WaitSeconds.$": f"{counter}.Wait"}
            attempt.states[f"Retry{cause.state}"] = {
                "Type": "Pass",
                "Parameters": {
                    "Retries.$": f"States.MathAdd({counter}.Retries, 1)",
                    "Waits.$": f"{counter}.Waits",
                    "Wait.$": f"States.ArrayGetItem({counter}.Waits, {counter}.Retries)",
                },
                "ResultPath": counter,
                "Next": attempt.event(f"Tell{cause.state}", RETRIED, detail, following),
            }
            attempt.follows(
                cause,
                {"Variable": f"{counter}.Retries", "NumericLessThan": len(waits)},
                attempt.counts(f"Retry{cause.state}", FAILED_ATTEMPTS, str(cause)),
                times=len(waits),
            )
