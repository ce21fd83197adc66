"""Where a training process's batches arrive."""

from __future__ import annotations

import contextlib
import mmap
from collections import deque

import torch
from torch import Tensor

from .batches import lent

LARGE = 2**20  # bytes from which memory is kept for the batches to come; smaller ones malloc keeps
HUGE_PAGE = 2**21
MOST_KEPT = 64  # batches that are gone, whose memory is kept


class Memory:
    """Gives memory for batches: pinned where there is a GPU, else that of batches whose last tensor is gone.

    The kernel gives new memory page by page, at half the cost of receiving a batch into it.
    """

    def __init__(self) -> None:
        self._pin, self._device = torch.cuda.is_available(), 0
        self._free: deque[mmap.mmap] = deque(maxlen=MOST_KEPT)

    def of_this_device(self) -> None:
        """Pin from now on for the GPU that is the calling thread's."""
        if self._pin:
            self._device = torch.cuda.current_device()

    def empty(self, size: int) -> Tensor:
        """uint8 [size]."""
        if self._pin:
            with torch.cuda.device(self._device):  # or this thread would begin to use the first one
                return torch.empty(size, dtype=torch.uint8, pin_memory=True)
        if size < LARGE:
            return torch.empty(size, dtype=torch.uint8)
        block = None
        with contextlib.suppress(IndexError):
            block = self._free.pop()
        if block is None or len(block) < size:
            block = _block(size)
        return lent(memoryview(block)[:size], _Taken(self._free, block))

    def pinned(self, memory: Tensor) -> Tensor:
        """Memory that the GPU can fetch from while a step runs: the same where there is none."""
        return self.empty(len(memory)).copy_(memory) if self._pin else memory


class _Taken:
    """A block until the last tensor in it is gone."""

    def __init__(self, free: deque[mmap.mmap], block: mmap.mmap) -> None:
        self._free, self._block = free, block

    def __del__(self) -> None:
        self._free.append(self._block)


def _block(size: int) -> mmap.mmap:
    block = mmap.mmap(-1, -(-size // HUGE_PAGE) * HUGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without them
        block.madvise(mmap.MADV_HUGEPAGE)
    return block
