"""Which job of a queue starts next: in the order of submission, or by fair shares.

The guide says that jobs of a fair-share queue are scheduled by the "share identifier's usage" and weight factor, and by their
scheduling priority within a share ("Use fair-share scheduling to help schedule jobs"); it does not give the formula. Here a
share's usage is the machine-seconds of its jobs over ``decay`` seconds, of which older ones count less, in a line to zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

# What a job counts as having used when it starts, so that of jobs that start at once not all are of one share.
_AT_LEAST_SECONDS = 1.0
_DEFAULT_DECAY = 600.0  # "A value of zero (0) indicates the default minimum time window (600 seconds)" (service model)


@dataclass(frozen=True)
class Waiting:
    """A job that waits.

    Args:
        id: its id.
        order: the order of its submission.
        machines: the number of its machines.
        share: its share; empty in a queue without shares.
        priority: its scheduling priority.
    """

    id: str
    order: int
    machines: int
    share: str = ""
    priority: int = 0


@dataclass(frozen=True)
class Use:
    """Machines that a job of a share uses, or used, from ``start`` to ``end``; None while it runs."""

    share: str
    machines: int
    start: float
    end: float | None = None


@dataclass(frozen=True)
class FairShare:
    """A scheduling policy.

    Args:
        weights: weight factors, of which a lower one has a higher priority; by share, or by a prefix and `*`.
        decay: shareDecaySeconds.
    """

    weights: Mapping[str, float]
    decay: float = 0.0

    def weight(self, share: str) -> float:
        """Returns a share's weight factor: 1.0 for one that the policy does not have."""
        for name, factor in self.weights.items():
            if share == name or (name.endswith("*") and share.startswith(name[:-1])):
                return factor
        return 1.0

    def usage(self, share: str, uses: Iterable[Use], now: float) -> float:
        """Returns a share's usage, times its weight factor."""
        return self.weight(share) * sum(self._machine_seconds(use, now) for use in uses if use.share == share)

    def _machine_seconds(self, use: Use, now: float) -> float:
        decay = self.decay or _DEFAULT_DECAY
        latest = 0.0 if use.end is None else min(decay, now - use.end)
        earliest = min(decay, max(now - use.start, latest + _AT_LEAST_SECONDS))
        # The integral of 1 - age / decay over the ages of its use.
        return use.machines * max(0.0, (earliest - latest) - (earliest**2 - latest**2) / (2 * decay))


def first(waiting: Sequence[Waiting], uses: Sequence[Use], policy: FairShare | None, now: float) -> Waiting | None:
    """Returns the job at the head of a queue; None if none waits.

    Args:
        waiting: the jobs of the queue.
        uses: what its shares use and used.
        policy: None for the order of submission.
        now: the time, of which only differences have a meaning.
    """
    if policy is None or not waiting:
        return min(waiting, key=lambda job: job.order, default=None)
    usage = {share: policy.usage(share, uses, now) for share in {job.share for job in waiting}}
    return min(waiting, key=lambda job: (usage[job.share], -job.priority if job.share else 0, job.order))
