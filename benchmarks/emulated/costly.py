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
    """Batches of float32 that take ``seconds`` each; a sample is a whole batch, to be read with a batch size of 1.

    Give or take a fifth: real batches differ, and workers that all ended at one moment would make bursts of the machine's own
    work, which is not what is emulated. Multiples of the golden ratio spread evenly, so that few batches have the mean already.
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
