"""Memory of batches: slots that worker processes share with the process that serves, and where a trainer receives.

A slot is an anonymous file in memory (memfd), which workers open by its path under /proc. So nothing is left behind however
processes end, and the size of /dev/shm, 64 MB in a container unless it is set, is no limit.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections import deque

import torch
from torch import Tensor

from .batches import tensor_from_buffer

LARGE = 2**20  # bytes from which memory is used again for later batches; smaller blocks malloc keeps
HUGE_PAGE = 2**21
MOST_KEPT = 64  # received batches whose memory is kept once their last tensor is gone


class Slots:
    """The slots of one process, created as they are needed and used again; ``close`` frees them."""

    def __init__(self) -> None:
        self._free: deque[_File] = deque()
        self._closed = False

    def take(self) -> Slot:
        """A slot of its own, until the last reference to it is gone."""
        try:
            return Slot(self, self._free.pop())
        except IndexError:
            return Slot(self, _File())

    def release(self, file: _File) -> None:
        # Called wherever the last reference ends, on any thread: a deque needs no lock.
        if self._closed:
            file.close()
        else:
            self._free.append(file)

    def close(self) -> None:
        self._closed = True
        while self._free:
            self._free.pop().close()


class Slot:
    """A batch's place. ``path`` is what another process of this user opens."""

    def __init__(self, slots: Slots, file: _File) -> None:
        self._slots, self._file = slots, file
        self.path = file.path

    def view(self, size: int) -> memoryview:
        """Its first ``size`` bytes."""
        return self._file.view(size)

    def __del__(self) -> None:
        self._slots.release(self._file)


class _File:
    def __init__(self) -> None:
        self._file = os.memfd_create("batch")
        self.path = f"/proc/{os.getpid()}/fd/{self._file}"
        self._mapped: mmap.mmap | bytes = b""

    def view(self, size: int) -> memoryview:
        if size > len(self._mapped):  # a worker has made it larger
            self._mapped = mmap.mmap(self._file, os.fstat(self._file).st_size)
        return memoryview(self._mapped)[:size]

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._mapped = -1, b""


class OpenSlots:
    """The slots that a worker has mapped, by their paths."""

    def __init__(self) -> None:
        self._mapped: dict[str, mmap.mmap] = {}

    def memory(self, path: str, size: int) -> memoryview:
        """At least ``size`` bytes of a slot, made larger where it is smaller. Raises ``MemoryError`` where there are no more."""
        found = self._mapped.get(path)
        if found is None or len(found) < size:
            with open(path, "r+b") as file:
                length = os.fstat(file.fileno()).st_size
                if length < size:
                    # Pages that are only promised would end the worker by SIGBUS when they are written to.
                    try:
                        os.posix_fallocate(file.fileno(), 0, size)
                    except OSError as error:
                        raise MemoryError(f"a batch of {size} bytes finds no room in shared memory: {error}") from error
                found = self._mapped[path] = mmap.mmap(file.fileno(), max(length, size))
        return memoryview(found)


class ReceiveMemory:
    """Memory that batches are received into: pinned where there is a GPU, else that of batches that are gone.

    The kernel hands out new memory page by page, at half the cost of receiving a batch into it.
    """

    def __init__(self) -> None:
        self._pin, self._device = torch.cuda.is_available(), 0
        self._free: deque[mmap.mmap] = deque(maxlen=MOST_KEPT)

    def use_current_device(self) -> None:
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
            block = _huge_pages(size)
        return tensor_from_buffer(memoryview(block)[:size], _InUse(self._free, block))

    def pinned(self, memory: Tensor) -> Tensor:
        """The same bytes where a GPU can copy them from; the same memory where there is none."""
        return self.empty(len(memory)).copy_(memory) if self._pin else memory


class _InUse:
    """A block until the last tensor in it is gone."""

    def __init__(self, free: deque[mmap.mmap], block: mmap.mmap) -> None:
        self._free, self._block = free, block

    def __del__(self) -> None:
        self._free.append(self._block)


def _huge_pages(size: int) -> mmap.mmap:
    block = mmap.mmap(-1, -(-size // HUGE_PAGE) * HUGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without them
        block.madvise(mmap.MADV_HUGEPAGE)
    return block
