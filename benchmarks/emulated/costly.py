"""A dataset whose preprocessing takes time and hardly any of this machine's cores."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.data import Dataset

LENGTH = 100_000  # batches; no run comes to the end


class Costly(Dataset[Tensor]):
    """Batches of float32 that take ``seconds`` each; a sample is a whole batch, to be read with a batch size of 1.

    Give or take a fifth, drawn by the batch's number: real batches differ, and workers that all ended at one moment would
    make bursts of the machine's own work, which is not what is emulated.
    """

    def __init__(self, shape: Sequence[int], seconds: float) -> None:
        self._shape, self._seconds = tuple(shape), seconds
        self._batch: Tensor | None = None  # made in the worker, not pickled to it

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Tensor:
        if self._batch is None:
            self._batch = torch.rand(self._shape)
        time.sleep(self._seconds * random.Random(index).uniform(0.8, 1.2))
        return self._batch
