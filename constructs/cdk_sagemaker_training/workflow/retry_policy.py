"""How often, and after which waits, a job is run again: by the cause for which it did not complete."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cdk_sagemaker_training.core.checks import seconds_of
from cdk_sagemaker_training.props.prop import Known, Prop, kind
from cdk_sagemaker_training.props.prop_types import check_fields
from cdk_sagemaker_training.workflow.causes import SIGNS, Cause

if TYPE_CHECKING:
    from aws_cdk import Duration

# Retries of all causes together: each writes fewer than 50 events, of the 25,000 that an execution's history has.
MOST_RETRIES = 300

# CreateTrainingJob was refused, so there is no job, and the same call is repeated; otherwise the next job is another one.
REFUSALS = frozenset(sign.cause for sign in SIGNS if sign.member in ("Error", "Message")) - {Cause.DATA_NOT_FOUND}

_NEVER = {
    Cause.STOPPED: "a job that somebody stopped stays stopped",
    Cause.DATA_NOT_FOUND: "no other run finds the data",
}


_WAITS = Known("synth", "since the waits are listed in the state machine")


@kind("Retry(attempts=3, first_wait=Duration.minutes(5))")
@dataclass(frozen=True)
class Retry:
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
        if self.attempts is not None and not 1 <= self.attempts <= MOST_RETRIES:
            raise ValueError(
                f"attempts of a Retry must be a number of retries from 1 to {MOST_RETRIES}, like 3, got {self.attempts}"
            )
        if self.attempts is None and (self.until is None or self.first_wait is None):
            raise ValueError(
                "attempts of a Retry must be set unless first_wait and until are, like "
                f"Retry(first_wait=Duration.minutes(5), until=Duration.hours(24)), got {self!r}"
            )
        if self.backoff < 1:
            raise ValueError(f"backoff must be a factor of at least 1, like 2, got {self.backoff}")
        if self.first_wait is not None and seconds_of("first_wait", self.first_wait) > seconds_of(
            "max_wait", self.max_wait
        ):
            raise ValueError(
                "first_wait must be at most max_wait, like first_wait=Duration.minutes(5) and max_wait=Duration.minutes(30), "
                f"got {seconds_of('first_wait', self.first_wait)} and {seconds_of('max_wait', self.max_wait)} seconds"
            )
        waits = self.waits()
        if not 1 <= len(waits) <= MOST_RETRIES:
            raise ValueError(
                f"until must be as long as 1 to {MOST_RETRIES} waits, like until=Duration.hours(24) with "
                f"first_wait=Duration.minutes(5), got {seconds_of('until', self.until)} seconds, "
                f"which {'no wait fits into' if not waits else 'are more'}"
            )

    def waits(self) -> list[int]:
        """Return the seconds before each retry."""
        most = None if self.until is None else seconds_of("until", self.until)
        waits: list[int] = []
        for seconds in itertools.islice(self._growing(), self.attempts or MOST_RETRIES + 1):
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


def capacity_failures(retries: Mapping[Cause, Retry], alternatives: int) -> int:
    """Return how many jobs at most find no capacity and are followed by another.

    Args:
        retries: Retries by cause.
        alternatives: The number of alternatives, which are all tried before each wait and after the last.
    """
    rounds = 1 + (len(retries[Cause.CAPACITY].waits()) if Cause.CAPACITY in retries else 0)
    return rounds * (1 + alternatives) - 1


def check_retries(retries: Mapping[Cause, Retry], alternatives: int = 0) -> None:
    """Check the retries of a workflow.

    Args:
        retries: Retries by cause.
        alternatives: The number of alternatives.

    Raises:
        ValueError: A cause is never retried, or there are more retries than an execution's history has room for.
    """
    for cause, why in _NEVER.items():
        if cause in retries:
            raise ValueError(f"retries must be of causes that pass, like Cause.CAPACITY, got {cause!s}: {why}")
    others = sum(len(retry.waits()) for cause, retry in retries.items() if cause is not Cause.CAPACITY)
    number = others + capacity_failures(retries, alternatives)
    if number > MOST_RETRIES:
        raise ValueError(
            f"retries must be at most {MOST_RETRIES} of all causes together, which an execution's history has room for, like "
            f"Retry(attempts=20, first_wait=Duration.minutes(5)) for each, got {number}"
            f"{f' with {alternatives} alternatives' if alternatives else ''}"
        )
