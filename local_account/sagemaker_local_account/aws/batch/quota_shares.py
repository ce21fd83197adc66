"""Which job of a queue with quota shares starts next, and which jobs are stopped for one that waits.

Quota shares are "virtual queues" (AWS Batch guide, "Quota shares"): within its capacity limits a share's jobs start whatever the
others do. Capacity that shares lend is borrowed in the order of submission (FIFO, "Currently, only FIFO is supported"), up to
``borrowLimit``, and is restored "when jobs arrive" by preemption ("Preemption"). Batch chooses the preempted jobs by "a custom
heuristic"; here it is the one that started last, of the lowest priority within a share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Share:
    """A quota share, as CreateQuotaShare has it."""

    limits: Mapping[str, int]
    lends: bool = False
    borrow_percent: float = 0.0
    preempts: bool = False

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> Share:
        """Returns the share of a request of CreateQuotaShare."""
        sharing = request["resourceSharingConfiguration"]
        limit = sharing.get("borrowLimit", -1)
        borrows = sharing["strategy"] == "LEND_AND_BORROW"
        return cls(
            {one["capacityUnit"]: int(one["maxCapacity"]) for one in request["capacityLimits"]},
            sharing["strategy"] != "RESERVE",
            (float("inf") if limit < 0 else float(limit)) if borrows else 0.0,
            request["preemptionConfiguration"]["inSharePreemption"] == "ENABLED",
        )

    def most(self, kind: str) -> float:
        """Returns the most machines of a type, borrowed ones included; none of a type without a limit."""
        own = self.limits.get(kind, 0)
        return own + own * self.borrow_percent / 100 if own else 0


@dataclass(frozen=True)
class Job:
    """A job that waits, or one that has machines.

    Args:
        id: its id.
        order: the order of its submission.
        share: its share's name.
        machines: the number of its machines, by type.
        priority: its scheduling priority.
        start: when it started; None while it waits.
    """

    id: str
    order: int
    share: str
    machines: Mapping[str, int]
    priority: int = 0
    start: float | None = None


@dataclass(frozen=True)
class Decision:
    """The job that starts; or the jobs that are preempted, so that another can."""

    start: Job | None = None
    preempt: tuple[Job, ...] = ()


def decide(
    waiting: Iterable[Job], running: Sequence[Job], shares: Mapping[str, Share], capacity: Mapping[str, int]
) -> Decision:
    """Returns what is done next.

    Args:
        waiting: the jobs that wait; the first of each share is the one of the highest priority, and of the earliest submission.
        running: the jobs that have machines, without those that are being preempted.
        shares: the queue's shares by name.
        capacity: the machines of the service environment, by type, less those of jobs that are being preempted.
    """
    heads: dict[str, Job] = {}
    for job in sorted(waiting, key=lambda job: (-job.priority, job.order)):
        heads.setdefault(job.share, job)
    used = {name: _machines(job for job in running if job.share == name) for name in shares}
    free = Counter(capacity)
    free.subtract(_machines(running))
    in_order = sorted(heads.values(), key=lambda job: job.order)
    for job in in_order:
        share = shares[job.share]
        if _fits(job, {kind: most - used[job.share][kind] for kind, most in share.limits.items()}):
            if _fits(job, free):
                return Decision(job)
            if victims := _victims(job, _borrowing(running, shares, used), free):
                return Decision(preempt=victims)
        elif share.preempts:
            lower = [one for one in running if one.share == job.share and one.priority < job.priority]
            lower.sort(key=lambda one: (one.priority, -(one.start or 0.0)))
            own = Counter({kind: most - used[job.share][kind] for kind, most in share.limits.items()})
            if victims := _victims(job, lower, own):
                return Decision(preempt=victims)
    for job in in_order:
        share, reserved = shares[job.share], Counter[str]()
        for name, other in shares.items():
            if name != job.share and not other.lends:
                reserved += Counter({kind: most - used[name][kind] for kind, most in other.limits.items()})
        lent = Counter(free)
        lent.subtract(reserved)
        if _fits(job, lent) and _fits(job, {kind: share.most(kind) - used[job.share][kind] for kind in job.machines}):
            return Decision(job)
    return Decision()


def _machines(jobs: Iterable[Job]) -> Counter[str]:
    found: Counter[str] = Counter()
    for job in jobs:
        found.update(job.machines)
    return found


def _fits(job: Job, free: Mapping[str, float]) -> bool:
    return all(count <= free.get(kind, 0) for kind, count in job.machines.items())


def _borrowing(running: Iterable[Job], shares: Mapping[str, Share], used: Mapping[str, Counter[str]]) -> list[Job]:
    """The jobs without which no share has more machines than its own, from the last that started."""
    left = {name: Counter(machines) for name, machines in used.items()}
    found: list[Job] = []
    for one in sorted(running, key=lambda one: -(one.start or 0.0)):
        if any(left[one.share][kind] > shares[one.share].limits.get(kind, 0) for kind in one.machines):
            found.append(one)
            left[one.share].subtract(one.machines)
    return found


def _victims(job: Job, candidates: Iterable[Job], free: Counter[str]) -> tuple[Job, ...]:
    """The first of the candidates without which there is room for a job; none where there is none without all of them."""
    left = Counter(free)
    found: list[Job] = []
    for one in candidates:
        if _fits(job, left):
            break
        if any(kind in job.machines for kind in one.machines):
            left.update(one.machines)
            found.append(one)
    return tuple(found) if _fits(job, left) else ()
