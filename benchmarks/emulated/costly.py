"""A dataset whose preprocessing takes time and hardly any of this machine's cores."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.data import Dataset

LENGTH = 100_000  # batches; no run comes to the end
GOLDEN = 0.6180339887498949


class Costly(Dataset[Tensor]):
    """Batches of float32 that take ``seconds`` each, +- 20 %; a sample is a whole batch, to be read with a batch size of 1.

    The times vary, since real batches do, and workers that end at the same time would cause bursts of the machine's real work.
    Multiples of the golden ratio are evenly distributed, so that few batches already have the mean.
    """

    def __init__(self, shape: Sequence[int], seconds: float) -> None:
        self._shape, self._seconds = tuple(shape), seconds
        self._batch: Tensor | None = None  # made in the worker, not pickled to it

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Tensor:
        if self._batch is None:
            self._batch = torch.rand(self._shape)
        time.sleep(self._seconds * (0.8 + 0.4 * (index * GOLDEN % 1)))
        return self._batch
