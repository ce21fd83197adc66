"""The samples of benchmarks/data_service.py for those contestants that read a PyTorch dataset."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from harness import ENDLESS, POOL, Run, pool
from torch import Tensor
from torch.utils.data import Dataset

sys.path.insert(0, str(Path(__file__).parents[2] / "training_code" / "heterogeneous"))

from model import Digits


class Ready(Dataset[dict[str, Tensor]]):
    """No preprocessing: each sample is a whole batch in memory, to be read with a batch size of 1."""

    def __init__(self, batch_size: int) -> None:
        self._batch_size, self._pool = batch_size, []  # filled in the worker, not pickled to it

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        if not self._pool:
            self._pool = [
                (torch.from_numpy(images), torch.from_numpy(labels)) for images, labels in pool(self._batch_size)
            ]
        images, labels = self._pool[index % POOL]
        return {"image": images, "label": labels}


class Repeated(Dataset[dict[str, Tensor]]):
    """The digits of training_code/heterogeneous repeatedly, each rotated, made noisy and blurred again."""

    def __init__(self, batch_size: int) -> None:
        self._digits, self._length = Digits(), ENDLESS * batch_size

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return self._digits[index % len(self._digits)]


def dataset_of(run: Run) -> tuple[Dataset[dict[str, Tensor]], int]:
    """The dataset, and the batch size to read it with."""
    return (Ready(run.batch_size), 1) if run.workload == "ready" else (Repeated(run.batch_size), run.batch_size)
