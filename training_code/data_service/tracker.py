"""What has become of an epoch's batches at a rank: pending, in flight, ready, delivered. No thread and no socket."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .plan import Sequence

NOTHING: Mapping[str, Any] = {}
Key = tuple[int, int]  # which of a sequence's batches, and the sequence
Order = tuple[int, int | None, int, int, Any]  # epoch, shard, first sample, samples, the dataset's state if known


@dataclass(eq=False)
class Request:
    """A batch that is in flight, perhaps from several sources, until it is ``done``: ready, or known not to exist."""

    tracker: BatchTracker
    key: Key
    copies: int = 1
    done: bool = False
    sent: float = 0.0
    timeout: float = 0.0  # seconds until it is requested from another source as well

    @property
    def order(self) -> Order:
        """As a worker takes it."""
        n, index = self.key
        sequence = self.tracker.sequences[index]
        return self.tracker.epoch, sequence.shard, *sequence.batch(n), self.tracker.states[index].get(n)


class BatchTracker:
    """The batches of one rank's epoch, from a position on: pending, in flight, ready, and each delivered once.

    ``position`` is, of each sequence, how many were delivered, and which beyond those.
    """

    def __init__(
        self, epoch: int, sequences: Iterable[Sequence], position: Iterable[Any] = (), *, ordered: bool
    ) -> None:
        self.epoch, self.sequences, self.in_flight, self._ordered = epoch, list(sequences), 0, ordered
        self._ends = [math.inf if one.length is None else one.length for one in self.sequences]
        self._delivered, self._requested = [0] * len(self._ends), [0] * len(self._ends)  # of a sequence all below
        self.samples = [one.start for one in self.sequences]  # of a shard, that were delivered
        self.states: list[dict[int, Any]] = [{} for _ in self._ends]  # of an iterable dataset, before its n-th batch
        self.dropped: Counter[str] = Counter()  # samples that no batch has, by shard or file
        self.needed = 1  # batches without which the reader cannot go on
        self._beyond: set[Key] = set()  # delivered before one that precedes them
        self._ready: dict[Key, tuple[Any, Mapping[str, Any]]] = {}  # in the order of arrival
        self.sources: dict[int, Any] = {}  # from which a sequence's last batch was requested
        for index, (delivered, beyond) in zip(range(len(self._ends)), position, strict=False):
            # Ranks may differ by one batch, so that another rank's position can be one beyond this one's end.
            self._delivered[index] = int(min(delivered, self._ends[index]))
            self._requested[index] = max([self._delivered[index], *(n + 1 for n in beyond)])
            self._beyond |= {(n, index) for n in beyond}
        # Of each sequence what was requested in vain, or never while one that follows was, and the first that never was.
        self._pending: set[Key] = set()
        for index, requested in enumerate(self._requested):
            for n in range(self._delivered[index], requested + 1):
                if (n, index) not in self._beyond:
                    self._add((n, index))

    @property
    def ready(self) -> int:
        return len(self._ready)

    @property
    def settled(self) -> bool:
        """Whether every batch that is not delivered is ready."""
        return not self._pending and not self.in_flight

    @property
    def done(self) -> bool:
        """Whether every batch is delivered."""
        return self.settled and not self._ready

    @property
    def position(self) -> list[tuple[int, list[int]]]:
        beyond = [sorted(n for n, of in self._beyond if of == index) for index in range(len(self._ends))]
        return list(zip(self._delivered, beyond, strict=True))

    @property
    def shards(self) -> dict[int, dict[str, Any]]:
        """The position in each shard of an iterable dataset, by its number."""
        found = {}
        for index, (delivered, beyond) in enumerate(self.position):
            sequence, ended = self.sequences[index], self._delivered[index] >= self._ends[index]
            entry = {"samples": self.samples[index] if ended else sequence.position(delivered), "ended": ended}
            entry |= {"state": self.states[index].get(delivered), "beyond": [sequence.position(n) for n in beyond]}
            entry["samples"] += found.get(sequence.shard or 0, {}).get("samples", 0)  # before parts of its last batch
            found[sequence.shard or 0] = {name: value for name, value in entry.items() if value or name == "samples"}
        return found

    def restarted(self) -> BatchTracker:
        """The same position, of which nothing is requested."""
        known = zip(self.sequences, self._ends, strict=True)
        sequences = [one if end == math.inf else replace(one, length=int(end)) for one, end in known]
        again = BatchTracker(self.epoch, sequences, self.position, ordered=self._ordered)
        again.states, again.samples, again.dropped = self.states, self.samples, self.dropped
        return again

    @property
    def exhausted(self) -> bool:
        """Whether no batch is pending."""
        return not self._pending

    @property
    def requeued(self) -> bool:
        """Whether a batch that was requested in vain is pending."""
        return any(n < self._requested[index] for n, index in self._pending)

    def request(self, accepts: Callable[[int], bool] = lambda sequence: True) -> Request | None:
        """The next batch to request, of the sequences that are accepted; None where none is pending."""
        key = self._first([key for key in self._pending if accepts(key[1])])
        if key is None:
            return None
        n, index = key
        self._pending.remove(key)
        if n == self._requested[index]:
            self._requested[index] += 1
            self._add((n + 1, index))
        self.in_flight += 1
        return Request(self, key)

    def _add(self, key: Key) -> None:
        if key[0] < self._ends[key[1]]:
            self._pending.add(key)

    def _place(self, key: Key) -> tuple[int, int]:
        """What batches are delivered by: from all shards by turns, also where they were left at different positions."""
        return self.sequences[key[1]].batch(key[0])[0], key[1]

    def requeue(self, request: Request) -> None:
        """It was requested in vain, and is pending again unless it is in flight from another source."""
        request.copies -= 1
        if not request.copies and not request.done:
            self.in_flight -= 1
            self._add(request.key)

    def receive(self, request: Request, batch: Any, about: Mapping[str, Any] = NOTHING) -> None:
        """A batch has come; one that has come before is dropped. ``about`` is of an iterable dataset's; see ``Made``."""
        if not request.done:
            request.done = True
            self.in_flight -= 1
            n, index = request.key
            if n < self._ends[index]:
                self._ready[request.key] = batch, about
                if about.get("state") is not None:
                    self.states[index][n + 1] = about["state"]
                if about and about["samples"] < self.sequences[index].batch(n)[1]:
                    self._end(n + 1, index)

    def end(self, request: Request, about: Mapping[str, Any] = NOTHING) -> None:
        """The sequence has no such batch; ``about`` what is left of it, which is not enough for one."""
        if not request.done:
            self._drop(request.key[1], about)
        self._end(*request.key)
        self.receive(request, None)

    def _end(self, n: int, index: int) -> None:
        self._ends[index] = min(self._ends[index], n)
        self._pending = {key for key in self._pending if key[0] < self._ends[key[1]]}

    def _drop(self, index: int, about: Mapping[str, Any]) -> None:
        if about.get("samples"):
            self.dropped[about.get("name") or f"shard {self.sequences[index].shard}"] += about["samples"]

    @property
    def divisible(self) -> int:
        """The samples of the largest batch that is ready and its shard's last."""
        return max((self._ready[key][1]["samples"] for key in self._lasts()), default=0)

    def _lasts(self) -> list[Key]:
        return [key for key in self._ready if key[0] == self._ends[key[1]] - 1]

    def split(self, parts: int) -> None:
        """Have that batch made again, in so many parts: a sequence of their own."""
        n, index = key = max(self._lasts(), key=lambda key: self._ready[key][1]["samples"])
        size, sequence = self._ready.pop(key)[1]["samples"], self.sequences[index]
        first, ends = sequence.batch(n)[0], [size * part // parts for part in range(parts + 1)]
        last = [(first + at, end - at, first + end) for at, end in itertools.pairwise(ends)]
        self._ends[index], self.sources[len(self._ends)] = n, self.sources.get(index)
        self.sequences.append(replace(sequence, length=parts, last=tuple(last)))
        for values, new in ((self._ends, parts), (self._delivered, 0), (self._requested, 0), (self.samples, 0)):
            values.append(new)
        self.states.append({})
        self._add((0, len(self._ends) - 1))

    def drop_ready(self) -> None:
        """Count what was not delivered."""
        for (_, index), (_, about) in self._ready.items():
            self._drop(index, about)
        self._ready.clear()

    @property
    def satisfied(self) -> bool:
        """Whether as many batches as are needed can be delivered, or all that there are."""
        return self.settled or self.available(self.needed) >= self.needed

    def available(self, most: int) -> int:
        """How many batches, up to ``most``, can be delivered without one that has not come."""
        if not self._ordered or most < 2:
            return min(self.ready, most) if not self._ordered else int(self._turn(self._delivered) in self._ready)
        at = list(self._delivered)
        for count in range(most):
            key = self._turn(at)
            if key not in self._ready:
                return count
            at[key[1]] += 1
        return most

    def deliverable_count(self, most: int) -> int:
        """How many batches, up to ``most`` of each sequence, can be delivered without one that has not come."""
        if not self._ordered:
            return self.ready
        return sum(
            next((n for n in range(most) if (delivered + n, index) not in self._ready), most)
            for index, delivered in enumerate(self._delivered)
        )

    def deliver(self) -> Any:
        """The batch whose turn it is."""
        key = self._turn(self._delivered) if self._ordered else next(iter(self._ready))
        assert key is not None
        (batch, about), index = self._ready.pop(key), key[1]
        self.samples[index] += about.get("samples", 0)
        self._beyond.add(key)
        while (before := (self._delivered[index], index)) in self._beyond:
            self._beyond.remove(before)
            self.states[index].pop(self._delivered[index], None)
            self._delivered[index] += 1
        return batch

    def _turn(self, delivered: list[int]) -> Key | None:
        """Of ordered batches the one that follows those ``delivered``."""
        return self._first([(n, index) for index, n in enumerate(delivered) if n < self._ends[index]])

    def _first(self, keys: list[Key]) -> Key | None:
        return keys[0] if len(keys) == 1 else min(keys, key=self._place, default=None)
