"""What the batches of an epoch are, and what has become of them at a rank. No thread and no socket.

They are a pure function of seed, epoch and number, on which data hosts and ranks agree. Of a map-style dataset an epoch is one
permutation of its samples, cut into batches: rank ``r`` reads the batches ``r``, ``r + ranks``, and so on. Of an iterable
dataset it is ``shards`` passes, each over one share of the samples, as ``torch.utils.data.get_worker_info()`` has it; rank
``r`` reads the shards ``r``, ``r + ranks``, and so on.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
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
        even: True or ``"pad"``: every rank reads the same number of batches, where what is left over is left out, or
            batches from the beginning of the epoch come twice. False: ranks may differ by one batch.
    """

    batch_size: int
    length: int | None
    shards: int | None = None
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False
    even: bool | str = True

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, like 64, got {self.batch_size}")
        if self.even not in (True, False, "pad"):
            raise ValueError(f"even must be True, False or 'pad', got {self.even!r}")
        if self.length is None and (self.shards is None or self.shards < 1):
            raise ValueError(f"shards of an iterable dataset must be at least 1, like 8, got {self.shards}")
        if self.length is None and self.even == "pad":
            raise ValueError("even='pad' needs a dataset with a length; an iterable one takes even=True or even=False")

    @staticmethod
    def of(dataset: Dataset[Any], *, shuffle: bool = True, shards: int | None = None, **options: Any) -> Plan:
        """The plan of a dataset; ``shards`` is of an iterable one only, and ``shuffle`` of a map-style one."""
        if isinstance(dataset, IterableDataset):
            return Plan(length=None, shards=shards, shuffle=False, **options)
        return Plan(length=len(dataset), shuffle=shuffle, **options)  # type: ignore[arg-type]

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
        if self.even is True and 0 < self.batches < ranks:
            raise ValueError(
                f"even=True leaves out what is not enough for all ranks, which is every batch of {self.batches} for "
                f"{ranks} ranks: set a smaller batch_size than {self.batch_size}, or even='pad'"
            )
        counts = {"pad": -(-self.batches // ranks), True: self.batches // ranks}
        lengths = [counts.get(self.even, len(range(rank, self.batches, ranks))) for rank in range(ranks)]
        return [Sequence(None, rank, ranks, length, max(1, self.batches)) for rank, length in enumerate(lengths)]

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
        found: list[int] = []
        while begin < end:
            block, first = divmod(begin, BLOCK)
            found += _block(self.length, self.seed, epoch, block)[first : first + end - begin]
            begin = min((block + 1) * BLOCK, end)
        return found

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


def home_shares(rank: int, ranks: int, hosts: int, least: int = 2) -> dict[int, Fraction]:
    """The hosts that a rank reads from while all are up, and of each the share of its workers that the rank may keep busy.

    Ranks are spread evenly over a ring of hosts, and each has those of the next ``max(hosts / ranks, least)``. Each ``1 / ranks``
    of a host is divided evenly among the ranks that have it. So the shares of a host add up to 1, and those of a rank to
    ``hosts / ranks``, also where the hosts are no multiple of the ranks.
    """
    width, shares = min(max(hosts, least * ranks), hosts * ranks), Counter[int]()
    few = width // max(1, hosts)  # ranks that have a part, or one more
    for part in range(rank * hosts, rank * hosts + width):
        shares[part // ranks % hosts] += few * (few + 1) // (part // hosts - (part - width) // hosts)
    return {host: Fraction(share, ranks * few * (few + 1)) for host, share in shares.items()}


Key = tuple[int, int]  # which of a sequence's batches, and the sequence: sorted as batches are delivered
Position = list[list[Any]]  # of each sequence: how many were delivered, and which beyond those; empty before the first


@dataclass(eq=False)
class Request:
    """A batch that is in flight, perhaps from several sources, until it is ``done``: ready, or known not to exist."""

    tracker: BatchTracker
    key: Key
    order: tuple[int, int | None, int]  # epoch, shard and number, as a worker takes them
    copies: int = 1
    done: bool = False
    sent: float = 0.0
    timeout: float = 0.0  # seconds until it is requested from another source as well


class BatchTracker:
    """The batches of one rank's epoch, from a position on: pending, in flight, ready, and each delivered once."""

    def __init__(
        self, epoch: int, sequences: Iterable[Sequence], position: Iterable[Any] = (), *, ordered: bool
    ) -> None:
        self.epoch, self.in_flight, self._ordered = epoch, 0, ordered
        self._sequences = list(sequences)
        self._ends = [math.inf if one.length is None else one.length for one in self._sequences]
        self._delivered, self._requested = [0] * len(self._ends), [0] * len(self._ends)  # of a sequence all below
        self._beyond: set[Key] = set()  # delivered before one that precedes them
        self._ready: dict[Key, Any] = {}  # in the order of arrival
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
    def done(self) -> bool:
        """Whether every batch is delivered."""
        return all(delivered >= end for delivered, end in zip(self._delivered, self._ends, strict=True))

    @property
    def position(self) -> Position:
        if not (self._beyond or any(self._delivered)):
            return []
        beyond = [sorted(n for n, of in self._beyond if of == index) for index in range(len(self._ends))]
        return [[delivered, rest] for delivered, rest in zip(self._delivered, beyond, strict=True)]

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
        key = min((key for key in self._pending if accepts(key[1])), default=None)
        if key is None:
            return None
        n, index = key
        self._pending.remove(key)
        if n == self._requested[index]:
            self._requested[index] += 1
            self._add((n + 1, index))
        self.in_flight += 1
        sequence = self._sequences[index]
        return Request(self, key, (self.epoch, sequence.shard, sequence.number(n)))

    def _add(self, key: Key) -> None:
        if key[0] < self._ends[key[1]]:
            self._pending.add(key)

    def requeue(self, request: Request) -> None:
        """It was requested in vain, and is pending again unless it is in flight from another source."""
        request.copies -= 1
        if not request.copies and not request.done:
            self.in_flight -= 1
            self._add(request.key)

    def receive(self, request: Request, batch: Any) -> None:
        """A batch has come; one that has come before is dropped."""
        if not request.done:
            request.done = True
            self.in_flight -= 1
            if request.key[0] < self._ends[request.key[1]]:
                self._ready[request.key] = batch

    def end(self, request: Request) -> None:
        """The sequence has no such batch."""
        n, index = request.key
        self._ends[index] = min(self._ends[index], n)
        self._pending = {key for key in self._pending if key[0] < self._ends[key[1]]}
        self.receive(request, None)

    @property
    def deliverable(self) -> bool:
        return self._turn() is not None

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
        key = self._turn()
        assert key is not None
        index = key[1]
        self._beyond.add(key)
        while (before := (self._delivered[index], index)) in self._beyond:
            self._beyond.remove(before)
            self._delivered[index] += 1
        return self._ready.pop(key)

    def _turn(self) -> Key | None:
        if not self._ordered:
            return next(iter(self._ready), None)
        left = ((n, index) for index, n in enumerate(self._delivered) if n < self._ends[index])
        key = min(left, default=None)
        return key if key in self._ready else None
