"""The order of a dataset's samples, as order.py has it: a function of the seed and of how many samples were read."""

from __future__ import annotations

from functools import lru_cache

import numpy as np


class Order:
    """Epochs of all ``length`` samples, each a permutation of its own, in steps of ``batch`` samples over all devices.

    The last step of an epoch has what is left. Raises ValueError where there is no sample, or less than one batch.
    """

    def __init__(self, length: int, batch: int, seed: int) -> None:
        if length < 1:
            raise ValueError(f"the dataset must have at least one sample, got {length}")
        if not 1 <= batch <= length:
            allowed = f"from 1 to the number of samples, {length}, like {min(64, length)}"
            raise ValueError(f"batch_size times devices must be {allowed}, got {batch}")
        self.length, self.batch, self.seed = length, batch, seed
        self.steps_of_an_epoch = -(-length // batch)

    def at(self, samples: int) -> np.ndarray:
        """The numbers of the samples of the step before which ``samples`` were read: int64, at most ``batch``."""
        epoch, first = divmod(samples, self.length)
        return permutation(self.length, self.seed, epoch)[first : first + self.batch]

    def shares(self, samples: int, devices: int) -> np.ndarray:
        """``at`` as int64 [devices, n] of one shape in all steps, with the number ``length`` behind the last sample's."""
        numbers = self.at(samples)
        return np.append(numbers, np.full(self.batch - len(numbers), self.length)).reshape(devices, -1)

    def steps(self, samples: int) -> float:
        """How many steps of this batch ``samples`` are, for a schedule that does not jump where the batch has changed."""
        epoch, first = divmod(samples, self.length)
        return epoch * self.steps_of_an_epoch + first / self.batch


@lru_cache(maxsize=2)
def permutation(length: int, seed: int, epoch: int) -> np.ndarray:
    """An epoch's order of the samples."""
    return np.random.default_rng([seed, epoch]).permutation(length)
