"""What the batches of an epoch are, and what has become of them at a rank. No thread and no socket.

They are a pure function of seed, epoch and number, on which data hosts and ranks agree. Of a map-style dataset an epoch is one
permutation of its samples, cut into batches: rank ``r`` reads the batches ``r``, ``r + ranks``, and so on. Of an iterable
dataset it is ``shards`` passes, each over one share of the samples, as ``torch.utils.data.get_worker_info()`` has it; rank
``r`` reads the shards ``r``, ``r + ranks``, and so on.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from torch.utils.data import Dataset, IterableDataset

ROUNDS = 8  # of the Feistel network
BLOCK = 1024  # positions that are permuted at once: one of them costs as much as a hundred


@dataclass(frozen=True)
class Sequence:
    """Batches that follow each other: a rank's of a map-style dataset, or one shard's of an iterable one.

    ``length`` is how many, None where only the end of the shard tells. The n-th is the batch ``(first + n * step) % wrap``.
    """

    shard: int | None
    first: int
    step: int
    length: int | None
    wrap: int = 2**63

    def number(self, n: int) -> int:
        return (self.first + n * self.step) % self.wrap


@dataclass(frozen=True)
class Plan:
    """What a job reads in each epoch. All data hosts and ranks must agree on it.

    Attributes:
        batch_size: Samples of a batch.
        length: Samples of a map-style dataset; None of an iterable one.
        shards: Passes over an iterable dataset; None of a map-style one.
        seed: Of the permutations, and of the random numbers that samples use.
        drop_last: Whether a batch with fewer samples is left out.
        even: ``"drop"`` or ``"pad"``: every rank reads the same number of batches, where what is left over is left out, or
            batches from the beginning of the epoch come twice. ``""``: ranks may differ by one batch.
    """

    batch_size: int
    length: int | None
    shards: int | None = None
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False
    even: str = "drop"

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, like 64, got {self.batch_size}")
        if self.length is None and (self.shards is None or self.shards < 1):
            raise ValueError(f"shards of an iterable dataset must be at least 1, like 8, got {self.shards}")
        if self.length is None and self.even == "pad":
            raise ValueError("even='pad' needs a dataset with a length; an iterable one takes even=True or even=False")

    @staticmethod
    def of(
        dataset: Dataset[Any],
        *,
        batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        shards: int | None = None,
        even: bool | str = True,
    ) -> Plan:
        """The plan of a dataset; ``shards`` is of an iterable one only, and ``shuffle`` of a map-style one."""
        if even not in (True, False, "pad"):
            raise ValueError(f"even must be True, False or 'pad', got {even!r}")
        policy = "pad" if even == "pad" else "drop" if even else ""
        if isinstance(dataset, IterableDataset):
            return Plan(batch_size, None, shards, seed, False, drop_last, policy)
        return Plan(batch_size, len(dataset), None, seed, shuffle, drop_last, policy)  # type: ignore[arg-type]

    @property
    def batches(self) -> int | None:
        """Of an epoch, over all ranks; None of an iterable dataset."""
        if self.length is None:
            return None
        return self.length // self.batch_size if self.drop_last else -(-self.length // self.batch_size)

    def sequences(self, ranks: int) -> list[Sequence]:
        """Of all ranks: the s-th is rank ``s % ranks``'s. Raises ``ValueError`` where a rank would have none."""
        if self.batches is None:
            assert self.shards is not None
            if self.shards < ranks:
                raise ValueError(
                    f"shards of an iterable dataset must be at least one for each rank, got {self.shards} for {ranks}"
                )
            return [Sequence(shard, 0, 1, None) for shard in range(self.shards)]
        if self.even == "pad":
            count = -(-self.batches // ranks)
            return [Sequence(None, rank, ranks, count, max(1, self.batches)) for rank in range(ranks)]
        if self.even and self.batches and self.batches < ranks:
            raise ValueError(
                f"even=True leaves out what is not enough for all ranks, which is every batch of {self.batches} for "
                f"{ranks} ranks: set a smaller batch_size than {self.batch_size}, or even='pad'"
            )
        left = [self.batches // ranks if self.even else len(range(rank, self.batches, ranks)) for rank in range(ranks)]
        return [Sequence(None, rank, ranks, count) for rank, count in enumerate(left)]

    def left_over(self, ranks: int) -> int:
        """Batches of an epoch that ``even`` leaves out, or less than 0 those that come twice."""
        if self.batches is None or not self.even:
            return 0
        return self.batches - sum(sequence.length or 0 for sequence in self.sequences(ranks))

    def samples(self, epoch: int, number: int) -> list[int]:
        """The indices of a batch's samples, of a map-style dataset."""
        assert self.length is not None
        begin, end = number * self.batch_size, min((number + 1) * self.batch_size, self.length)
        if not self.shuffle:
            return list(range(begin, end))
        blocks = range(begin // BLOCK, -(-end // BLOCK))
        found = (
            _block(self.length, self.seed, epoch, block)[max(0, begin - block * BLOCK) : end - block * BLOCK]
            for block in blocks
        )
        return list(itertools.chain.from_iterable(found))

    def seed_of(self, epoch: int, shard: int | None, number: int) -> int:
        """What a batch's random numbers begin with, whichever worker makes it."""
        return zlib.crc32(f"{self.seed} {epoch} {shard} {number}".encode())

    def differences(self, other: Plan) -> list[str]:
        """Where two disagree: ``batch_size 64, not 32``, this one's value first."""
        pairs = [(field.name, getattr(self, field.name), getattr(other, field.name)) for field in fields(self)]
        return [f"{name} {mine!r}, not {its!r}" for name, mine, its in pairs if mine != its]


@lru_cache(maxsize=8)
def _block(length: int, seed: int, epoch: int, block: int) -> list[int]:
    positions = np.arange(block * BLOCK, min((block + 1) * BLOCK, length), dtype=np.uint64)
    found: list[int] = permuted(positions, length, (seed, epoch)).tolist()
    return found


def permuted(positions: np.ndarray, length: int, key: tuple[int, int]) -> np.ndarray:
    """Where a keyed permutation of ``range(length)`` has each position, uint64 [n]; it needs no memory but theirs.

    A balanced Feistel network over the smallest square power of two that holds ``length``, in which a value beyond
    ``length`` is permuted again until it is below (cycle walking, Black and Rogaway, "Ciphers with arbitrary finite
    domains", CT-RSA 2002). The round function is the finalizer of splitmix64.
    """
    half = max(2, (max(length - 1, 1).bit_length() + 1) // 2)
    shift, mask = np.uint64(half), np.uint64(2**half - 1)
    digest = hashlib.sha512(repr(key).encode()).digest()
    keys = [np.uint64(int.from_bytes(digest[8 * n : 8 * n + 8], "little")) for n in range(ROUNDS)]
    found = positions.copy()
    beyond = np.arange(len(found))
    while len(beyond):
        left, right = found[beyond] >> shift, found[beyond] & mask
        for round_key in keys:
            left, right = right, left ^ (_mixed(right ^ round_key) & mask)
        found[beyond] = (left << shift) | right
        beyond = beyond[found[beyond] >= length]
    return found


def _mixed(values: np.ndarray) -> np.ndarray:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = values ^ (values >> np.uint64(31))
    return mixed


def home_hosts(rank: int, ranks: int, hosts: int, least: int = 2) -> list[int]:
    """The hosts that a rank reads from while all are up: the same few in each epoch, and of each host as many ranks.

    Ranks are spread evenly over a ring of hosts, and each has those of the next ``max(hosts / ranks, least)``.
    """
    begin, width = rank * hosts, max(hosts, least * ranks)  # in shares of 1 / ranks of a host
    return [host % hosts for host in range(begin // ranks, min(-(-(begin + width) // ranks), begin // ranks + hosts))]


def home_share(host: int, rank: int, ranks: int, hosts: int, least: int = 2) -> Fraction:
    """The share of a host's workers that a rank may keep busy: those of all ranks of a host add up to 1, those of all hosts of
    a rank to ``hosts / ranks``, also where the hosts are no multiple of the ranks.

    Each ``1 / ranks`` of a host is divided evenly among the ranks whose ``home_hosts`` cover it.
    """
    width, ring = min(max(hosts, least * ranks), hosts * ranks), hosts * ranks
    covered = [part for part in range(host * ranks, (host + 1) * ranks) if (part - rank * hosts) % ring < width]
    return sum((Fraction(1, part // hosts - (part - width) // hosts) for part in covered), Fraction()) / ranks


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
        self._in_flight: dict[Key, int] = {}  # how often each is requested
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
        self._in_flight[index, n] = 1
        return index, n

    def request_again(self, key: Key) -> bool:
        """Whether it has still not come, and so is to be requested once more."""
        if key in self._in_flight:
            self._in_flight[key] += 1
        return key in self._in_flight

    @property
    def exhausted(self) -> bool:
        """Whether no batch is pending."""
        return all(progress.next() is None for progress in self._all)

    @property
    def requeued(self) -> bool:
        """Whether a batch that was requested in vain is pending."""
        return any(one.requeued and one.requeued[0] < one.length for one in self._all)

    def requeue(self, key: Key) -> None:
        """It was requested in vain, and is pending again unless it is requested elsewhere too."""
        left = self._in_flight.pop(key, 0) - 1
        if left > 0:
            self._in_flight[key] = left
        elif left == 0:
            heapq.heappush(self._all[key[0]].requeued, key[1])

    def receive(self, key: Key, batch: Any) -> None:
        """A batch has come; one that has come before is dropped."""
        if self._in_flight.pop(key, None) is None:
            return
        progress = self._all[key[0]]
        if key[1] < progress.length:
            progress.ready[key[1]] = batch
            self.ready += 1
            if not self._ordered:
                self._arrived.append(key)

    def end(self, key: Key) -> None:
        """The sequence has no such batch."""
        self._in_flight.pop(key, None)
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
