"""Sequences of a tokenised text in memory-mapped files, in an order that is a function of seed and position.

The files are ``*.npy``, each a vector of unsigned integers, as ``prepare_tokens.py`` writes them. Each is cut into
sequences of one length, and an epoch is a permutation of all. A batch is a function of its position, so that a training that
resumes at a step reads what it would have read without the interruption.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from common.order import Order
from torch import Tensor

# Of a file, which are compared with the vocabulary at the start; the others are with their batch.
FIRST_TOKENS = 10_000_000


class TokenShards:
    """The sequences of a folder's files: ``context`` tokens and the one that follows each, int64.

    ``vocabulary`` and ``positions``: those of the model. Raises ValueError for tokens or a context that do not fit them.
    """

    def __init__(
        self, folder: Path, context: int, seed: int = 0, vocabulary: int | None = None, positions: int | None = None
    ) -> None:
        if positions and context > positions:
            most = f"at most the model's positions, {positions} in config.json"
            raise ValueError(f"context must be {most}, got {context}")
        self._files, self._vocabulary = sorted(folder.glob("*.npy")), vocabulary
        self._shards = [opened(file) for file in self._files]
        for number, shard in enumerate(self._shards):
            self._check(shard[:FIRST_TOKENS], number)
        # The last sequence's last target is the token after it.
        counts = [max(0, len(shard) - 1) // context for shard in self._shards]
        self._ends = np.cumsum(counts)
        self._context = context
        if sum(counts) == 0:
            files = f"files like tokens-00000.npy with more than {context} tokens"
            raise ValueError(f"the channel tokens must have {files}, got {folder}")
        self._order = Order(sum(counts), 1, seed)

    def __len__(self) -> int:
        """The sequences of an epoch."""
        return self._order.length

    def batch(self, first: int, size: int) -> tuple[Tensor, Tensor]:
        """Tokens and targets, both int64 [size, context], of the sequences from position ``first`` of the training on."""
        sequences = torch.from_numpy(np.stack([self._sequence(position) for position in range(first, first + size)]))
        return sequences[:, :-1], sequences[:, 1:]

    def _sequence(self, position: int) -> np.ndarray:
        chosen = int(self._order.at(position)[0])
        shard = int(np.searchsorted(self._ends, chosen, side="right"))
        start = (chosen - (int(self._ends[shard - 1]) if shard else 0)) * self._context
        return self._check(self._shards[shard][start : start + self._context + 1], shard).astype(np.int64)

    def _check(self, tokens: np.ndarray, shard: int) -> np.ndarray:
        if self._vocabulary and (largest := tokens.max(initial=0)) >= self._vocabulary:
            raise ValueError(
                f"the channel tokens must have tokens below vocab_size in config.json, {self._vocabulary}, got {largest} in "
                f"{self._files[shard].name}, which another tokenizer has made"
            )
        return tokens


def opened(file: Path) -> np.ndarray:
    try:
        tokens = np.load(file, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise ValueError(f"the channel tokens must have whole files, got {file.name}: {error}") from error
    if tokens.ndim != 1 or tokens.dtype.kind != "u":
        got = f"{tokens.dtype} of shape {tokens.shape} in {file.name}"
        raise ValueError(f"the channel tokens must have vectors of unsigned integers, like uint16, got {got}")
    return tokens
