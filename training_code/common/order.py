"""The order of a dataset's samples, a function of the seed and of how many were read: a job of other ranks goes on in it.

NumPy alone, for PyTorch's scripts and TensorFlow's, whose devices are its ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np


def check_batch(length: int, batch: int) -> None:
    """Raise ValueError where an epoch of ``length`` samples is less than a batch over all ranks."""
    if length < 1:
        raise ValueError(f"the dataset must have at least one sample, got {length}")
    if not 1 <= batch <= length:
        allowed = f"from 1 to the number of samples, {length}, like {min(64, length)}"
        raise ValueError(f"batch_size times ranks must be {allowed}, got {batch}")


class Order:
    """Epochs of all ``length`` samples, each a permutation of its own, in steps of ``batch`` samples over all ranks.

    The last step of an epoch has what is left. Raises ValueError where there is no sample, or less than one batch.
    """

    def __init__(self, length: int, batch: int, seed: int) -> None:
        check_batch(length, batch)
        self.length, self.batch, self.seed = length, batch, seed
        self.steps_of_an_epoch = -(-length // batch)

    def at(self, samples: int) -> np.ndarray:
        """The numbers of the samples of the step before which ``samples`` were read: int64, at most ``batch``."""
        epoch, first = divmod(samples, self.length)
        return permutation(self.length, self.seed, epoch)[first : first + self.batch]

    def steps_from(self, samples: int) -> Iterator[np.ndarray]:
        """``at`` of each step on from there, without an end."""
        while True:
            yield (batch := self.at(samples))
            samples += len(batch)

    def steps(self, samples: int) -> float:
        """How many steps of this batch ``samples`` are, for a schedule that does not jump where the batch has changed."""
        epoch, first = divmod(samples, self.length)
        return epoch * self.steps_of_an_epoch + first / self.batch


@lru_cache(maxsize=4)
def permutation(length: int, seed: int, epoch: int) -> np.ndarray:
    """An epoch's order of the samples."""
    return np.random.default_rng([seed % 2**63, epoch]).permutation(length)


def share(batch: np.ndarray, rank: int, ranks: int, size: int, filling: int = -1) -> np.ndarray:
    """A rank's samples of a step, every ranks-th of ``batch``, and ``filling`` behind them: ``size``, one shape in all steps."""
    mine = batch[rank::ranks]
    return np.append(mine, np.full(size - len(mine), filling))
