"""What an epoch's batches are: a pure function of what data hosts and training ranks have agreed on.

Of a map-style dataset an epoch is one permutation of its samples, cut into batches: rank ``r`` owns the batches ``r``,
``r + ranks``, and so on. Of an iterable dataset it is ``shards`` passes, of which each makes one share of the samples, as
``torch.utils.data.get_worker_info()`` tells it; rank ``r`` owns the shards ``r``, ``r + ranks``, and so on.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch


@dataclass(frozen=True)
class Lane:
    """Batches that follow each other: a rank's of a map-style dataset, or one shard's of an iterable one.

    ``length`` is how many, None where only its end will tell; the n-th has the number ``first + n * step``.
    """

    shard: int | None
    first: int
    step: int
    length: int | None

    def number(self, n: int) -> int:
        return self.first + n * self.step


@dataclass(frozen=True)
class Plan:
    """What everyone in a job must agree on. ``length`` counts a map-style dataset's samples; of an iterable one it is None."""

    batch_size: int
    length: int | None
    shards: int | None = None
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, like 64, got {self.batch_size}")
        if self.length is None and (self.shards is None or self.shards < 1):
            raise ValueError(f"shards of an iterable dataset must be at least 1, like 8, got {self.shards}")

    @property
    def batches(self) -> int | None:
        """How many an epoch has, over all ranks; None where nobody knows before its end."""
        if self.length is None:
            return None
        return self.length // self.batch_size if self.drop_last else -(-self.length // self.batch_size)

    def lanes(self, rank: int, ranks: int) -> list[Lane]:
        """What a rank reads of each epoch."""
        if self.batches is not None:
            return [Lane(None, rank, ranks, len(range(rank, self.batches, ranks)))]
        assert self.shards is not None
        if self.shards < ranks:
            raise ValueError(
                f"shards of an iterable dataset must be at least one for each rank, got {self.shards} for {ranks}"
            )
        return [Lane(shard, 0, 1, None) for shard in range(rank, self.shards, ranks)]

    def samples(self, epoch: int, number: int) -> list[int]:
        """The indices of a batch's samples, of a map-style dataset."""
        assert self.length is not None
        begin, end = number * self.batch_size, min((number + 1) * self.batch_size, self.length)
        if not self.shuffle:
            return list(range(begin, end))
        return _permutation(self.length, self.seed * 1_000_003 + epoch)[begin:end].tolist()

    def seed_of(self, epoch: int, shard: int | None, number: int) -> int:
        """What a batch's random numbers begin with, whoever makes it."""
        return zlib.crc32(f"{self.seed} {epoch} {shard} {number}".encode())

    def differences(self, other: Plan) -> list[str]:
        """Where two disagree: ``batch_size 64, not 32``, this one's value first."""
        names: Sequence[str] = list(self.__dataclass_fields__)
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in names]
        return [f"{name} {mine}, not {its}" for name, mine, its in pairs if mine != its]


@lru_cache(maxsize=2)
def _permutation(length: int, seed: int) -> torch.Tensor:
    return torch.randperm(length, generator=torch.Generator().manual_seed(seed))
