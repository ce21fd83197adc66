"""What the batches of an epoch are, and which rank reads them from which hosts. No thread and no socket.

They are a pure function of seed, epoch and position, on which data hosts and ranks agree. Of a map-style dataset an epoch is one
permutation of its samples, which all ranks read together, step by step: so it can be continued by other ranks, in batches of
another size. Of an iterable dataset it is ``shards`` passes, each over one share of the samples, as
``torch.utils.data.get_worker_info()`` has it; the shards are dealt to the ranks anew in each epoch.
"""

from __future__ import annotations

import hashlib
import warnings
import zlib
from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence as Several
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from torch.utils.data import Dataset, DistributedSampler, IterableDataset

ROUNDS = 8  # of the Feistel network
BLOCK = 1024  # positions that are permuted at once: one of them costs as much as a hundred


@dataclass(frozen=True)
class Sequence:
    """Batches that follow each other: a rank's of a map-style dataset, or one shard's of an iterable one.

    Attributes:
        start: Samples of the epoch, or of the shard, that precede all of these batches.
        size: Samples of a batch, ``step`` samples after the one before it; the first is ``offset`` after ``start``.
        length: How many batches; None where only the end of the shard tells.
        last: First sample and number of samples of the last ones, where they are others, and the position after their step.
    """

    shard: int | None
    start: int
    step: int
    size: int
    offset: int = 0
    length: int | None = None
    last: tuple[tuple[int, int, int], ...] = ()

    def batch(self, n: int) -> tuple[int, int]:
        """The first sample of the n-th batch, and how many it has."""
        other = self._last(n) if self.last else None
        return other[:2] if other else (self.start + n * self.step + self.offset, self.size)

    def position(self, n: int) -> int:
        """Samples of the epoch, or of the shard, that are read when so many of these batches are, by all ranks."""
        other = self._last(n - 1)
        return other[2] if other else self.start + n * self.step

    def _last(self, n: int) -> tuple[int, int, int] | None:
        before = (self.length or 0) - len(self.last)
        return self.last[n - before] if self.last and n >= before else None


@dataclass(frozen=True)
class Plan:
    """What a job reads in each epoch. All data hosts and ranks must agree on it.

    Attributes:
        batch_size: Samples of a batch.
        length: Samples of a map-style dataset, or of its sampler; None of an iterable one.
        shards: Passes over an iterable dataset; None of a map-style one.
        seed: Of the permutations, and of the random numbers that samples use.
        shuffle: Of an iterable dataset: whether the order of its shards is another in each epoch.
        drop_last: Whether batches with fewer samples are dropped.
        even, sampler: As of ``read_batches``; here, whether there is a sampler.
    """

    batch_size: int
    length: int | None
    shards: int | None = None
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False
    even: bool = True
    sampler: bool = False

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, like 64, got {self.batch_size}")
        if self.length is None and (self.shards is None or self.shards < 1):
            raise ValueError(f"shards of an iterable dataset must be at least 1, like 8, got {self.shards}")
        if self.length is not None and self.length < 1:
            raise ValueError(f"dataset must have at least one sample in an epoch, got {self.length}")

    @staticmethod
    def of(
        dataset: Dataset[Any],
        *,
        shuffle: bool | None = None,
        shards: int | None = None,
        sampler: Any = None,
        **options: Any,
    ) -> Plan:
        """The plan of a dataset; ``shards`` is of an iterable one only, ``sampler`` of a map-style one."""
        if sampler is not None and (shuffle or isinstance(dataset, IterableDataset)):
            raise ValueError("sampler must be of a map-style dataset, without shuffle=True, as a DataLoader's")
        if isinstance(sampler, DistributedSampler):
            raise ValueError("sampler must be of the whole dataset, since ranks divide it, got a DistributedSampler")
        if not isinstance(dataset, IterableDataset):
            length = len(dataset if sampler is None else sampler)  # type: ignore[arg-type]
            shuffle = sampler is None if shuffle is None else shuffle
            return Plan(length=length, shuffle=shuffle, sampler=sampler is not None, **options)
        if shuffle and not hasattr(dataset, "set_epoch"):
            warnings.warn(
                "shuffle=True of an iterable dataset shuffles its shards; within a shard it decides the order itself, by the "
                f"epoch if it has a set_epoch(epoch), got {type(dataset).__qualname__} without one",
                stacklevel=2,
            )
        return Plan(length=None, shards=shards, shuffle=bool(shuffle), **options)

    def sequences(
        self, rank: int = 0, ranks: int = 1, epoch: int = 0, samples: int = 0, shards: Several[Mapping[str, Any]] = ()
    ) -> list[Sequence]:
        """A rank's, from the position that an epoch has after ``samples``, or each of its ``shards`` after its own."""
        if self.length is not None:
            return [self._share(rank, ranks, samples)]
        assert self.shards is not None
        if self.shards < ranks:
            least = "at least one for each rank"
            raise ValueError(f"shards of an iterable dataset must be {least}, got {self.shards} for {ranks}")
        dealt = list(range(self.shards))
        if self.shuffle or ranks > 1:
            dealt = permuted(np.arange(self.shards, dtype=np.uint64), self.shards, (self.seed, epoch)).tolist()
        mine = dealt[rank::ranks] if self.shuffle else sorted(dealt[rank::ranks])
        at = [shards[shard] if shards else {"samples": 0} for shard in mine]
        return [
            Sequence(shard, one["samples"], self.batch_size, self.batch_size, 0, 0 if one.get("ended") else None)
            for shard, one in zip(mine, at, strict=True)
        ]

    def steps(self, ranks: int, samples: int = 0) -> tuple[int, list[int], int]:
        """Of a map-style dataset's epoch after ``samples``: the steps in which each rank has ``batch_size``, the samples of
        those after them, over all ranks, and how many samples of the epoch are dropped.
        """
        assert self.length is not None
        full, rest = divmod(self.length - samples, self.batch_size * ranks)
        if not rest or self.drop_last:
            return full, [], rest
        if rest >= ranks or not self.even:
            return full, [rest], 0
        if full and self.batch_size > 1:  # the step before the last leaves each rank a sample for that
            return full - 1, [self.batch_size * ranks + rest - ranks, ranks], 0
        return full, [], rest

    def _share(self, rank: int, ranks: int, samples: int) -> Sequence:
        full, sizes, _ = self.steps(ranks, samples)
        step, last = self.batch_size * ranks, []
        at, offset = samples + full * step, self.batch_size * rank
        if self.even:
            if not (full or sizes) and not samples:
                raise ValueError(
                    f"an epoch of {self.length} samples must have one for each rank and, with drop_last=True, batch_size "
                    f"of them: set even=False or fewer ranks, got batch_size {self.batch_size} and {ranks} ranks"
                )
            for size in sizes:
                each, more = divmod(size, ranks)
                last.append((at + rank * each + min(rank, more), each + (rank < more), at + size))
                at += size
        else:  # what a rank of its own would read
            left = min(self.batch_size, (self.length or 0) - at - offset)
            if left == self.batch_size or (left > 0 and not self.drop_last):
                last.append((at + offset, left, min(at + step, self.length or 0)))
        return Sequence(None, samples, step, self.batch_size, offset, full + len(last), tuple(last))

    def samples(self, epoch: int, first: int, size: int) -> list[int]:
        """The indices of a batch's samples, of a map-style dataset."""
        assert self.length is not None
        if not self.shuffle:
            return list(range(first, first + size))
        found: list[int] = []
        while size:
            block, begin = divmod(first, BLOCK)
            some = _block(self.length, self.seed, epoch, block)[begin : begin + size]
            found, first, size = found + some, first + len(some), size - len(some)
        return found

    def seed_of(self, epoch: int, shard: int | None, first: int) -> int:
        """What a batch's random numbers begin with, whichever worker makes it."""
        return zlib.crc32(f"{self.seed} {epoch} {shard} {first}".encode())

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
