"""What has become of an epoch's batches at a rank: pending, in flight, ready or delivered. No thread and no socket."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from .plan import Sequence

Key = tuple[int, int]  # the sequence, and which of its batches
Position = list[tuple[int, list[int]]]  # of each sequence: how many were delivered, and which beyond those


@dataclass
class _Progress:
    """One sequence's: delivered are all below ``delivered`` and those of ``beyond``; from ``requested`` on none was requested."""

    sequence: Sequence
    length: float
    delivered: int = 0
    beyond: set[int] = field(default_factory=set)
    requested: int = 0
    requeued: list[int] = field(default_factory=list)  # a heap
    ready: dict[int, Any] = field(default_factory=dict)

    def next(self) -> int | None:
        """The first that is pending."""
        self.requested = max(self.requested, self.delivered)
        while self.requested in self.beyond:
            self.requested += 1
        first = self.requeued[0] if self.requeued else self.requested
        return first if first < self.length else None


class BatchTracker:
    """The batches of one rank's epoch, from a position on. Each is delivered once, however often it is requested."""

    def __init__(
        self, epoch: int, sequences: Iterable[Sequence], position: Iterable[Any] = (), *, ordered: bool
    ) -> None:
        self.epoch = epoch
        self._all = [_Progress(one, float("inf") if one.length is None else one.length) for one in sequences]
        for progress, (delivered, beyond) in zip(self._all, position, strict=False):
            # Ranks may differ by one batch, so that another rank's position can be one beyond this one's end.
            progress.delivered = progress.requested = int(min(delivered, progress.length))
            progress.beyond = set(beyond)
        self._ordered = ordered
        self._arrived: deque[Key] = deque()
        self._in_flight: set[Key] = set()
        self.ready = 0

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def done(self) -> bool:
        """Whether every batch is delivered."""
        return all(progress.delivered >= progress.length for progress in self._all)

    @property
    def position(self) -> Position:
        return [(progress.delivered, sorted(progress.beyond)) for progress in self._all]

    def sequence(self, key: Key) -> Sequence:
        return self._all[key[0]].sequence

    def request(self, accepts: Callable[[int], bool] = lambda sequence: True) -> Key | None:
        """The next batch to request, of the sequences that are accepted; None where none is pending."""
        pending = [
            (n, index)
            for index, progress in enumerate(self._all)
            if accepts(index) and (n := progress.next()) is not None
        ]
        if not pending:
            return None
        n, index = min(pending)
        progress = self._all[index]
        if progress.requeued:
            heapq.heappop(progress.requeued)
        else:
            progress.requested += 1
        self._in_flight.add((index, n))
        return index, n

    @property
    def exhausted(self) -> bool:
        """Whether no batch is pending."""
        return all(progress.next() is None for progress in self._all)

    @property
    def requeued(self) -> bool:
        """Whether a batch that was requested in vain is pending."""
        return any(one.requeued and one.requeued[0] < one.length for one in self._all)

    def requeue(self, key: Key) -> None:
        """It was requested in vain, and is pending again."""
        if key in self._in_flight:
            self._in_flight.remove(key)
            heapq.heappush(self._all[key[0]].requeued, key[1])

    def receive(self, key: Key, batch: Any) -> None:
        """A batch has come; one that has come before is dropped."""
        if key not in self._in_flight:
            return
        self._in_flight.remove(key)
        progress = self._all[key[0]]
        if key[1] < progress.length:
            progress.ready[key[1]] = batch
            self.ready += 1
            if not self._ordered:
                self._arrived.append(key)

    def end(self, key: Key) -> None:
        """The sequence has no such batch."""
        self._in_flight.discard(key)
        progress = self._all[key[0]]
        progress.length = min(progress.length, key[1])
        progress.requeued = [n for n in progress.requeued if n < progress.length]
        heapq.heapify(progress.requeued)

    @property
    def deliverable(self) -> bool:
        return self._turn() is not None

    def deliverable_count(self, most: int) -> int:
        """How many batches, up to ``most`` of each sequence, can be delivered without one that has not come."""
        if not self._ordered:
            return self.ready
        return sum(
            next((n for n in range(most) if one.delivered + n not in one.ready), most) for one in self._all if one.ready
        )

    def deliver(self) -> Any:
        """The batch whose turn it is."""
        key = self._turn()
        assert key is not None
        if not self._ordered:
            self._arrived.popleft()
        self.ready -= 1
        progress = self._all[key[0]]
        progress.beyond.add(key[1])
        while progress.delivered in progress.beyond:
            progress.beyond.remove(progress.delivered)
            progress.delivered += 1
        return progress.ready.pop(key[1])

    def _turn(self) -> Key | None:
        if not self._ordered:
            return self._arrived[0] if self._arrived else None
        left = ((one.delivered, index) for index, one in enumerate(self._all) if one.delivered < one.length)
        n, index = min(left, default=(0, -1))
        return (index, n) if index >= 0 and n in self._all[index].ready else None
