"""What Ray's tasks do to a batch, in a module of its own, which Ray's processes import; of the script they get pickled copies."""

from __future__ import annotations

import functools
import os

import numpy as np
import torch
from model import Digits


@functools.cache
def digits(seed: int) -> Digits:
    """Read once in each process."""
    return Digits(seed=seed)


def prepared(block: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """The digits of these numbers (``id``): ``image``, float32 [n, 1, 28, 28], ``label``, int64 [n], and by which host."""
    torch.set_num_threads(1)  # Ray counts one CPU for a task
    samples = [digits(seed)[int(number)] for number in block["id"]]
    return {
        "image": np.stack([sample["image"].numpy() for sample in samples]),
        "label": np.array([int(sample["label"]) for sample in samples]),
        "host": np.full(len(samples), os.environ.get("SM_CURRENT_HOST", "localhost")),
    }
