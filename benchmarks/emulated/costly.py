"""A dataset whose preprocessing takes time and hardly any of this machine's cores."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.data import Dataset

LENGTH = 100_000  # batches; no run comes to the end


class Costly(Dataset[Tensor]):
    """Batches of float32 that each take ``seconds``; a sample is a whole batch, to be read with a batch size of 1."""

    def __init__(self, shape: Sequence[int], seconds: float) -> None:
        self._shape, self._seconds = tuple(shape), seconds
        self._batch: Tensor | None = None  # made in the worker, not pickled to it

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Tensor:
        if self._batch is None:
            self._batch = torch.rand(self._shape)
        time.sleep(self._seconds)
        return self._batch
