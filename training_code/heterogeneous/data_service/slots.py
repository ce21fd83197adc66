"""Memory that a serving process and its workers share: each batch is written into a slot, and leaves from there.

A slot is an anonymous file in memory (memfd), which workers open by its path under /proc. So nothing is left behind however
processes end, and the size of /dev/shm, 64 MB in a container unless it is told otherwise, bounds nothing.
"""

from __future__ import annotations

import mmap
import os
from collections import deque


class Slots:
    """The slots of one process, made as they are needed and used again; ``close`` frees them."""

    def __init__(self) -> None:
        self._free: deque[_Memory] = deque()
        self._closed = False
        self.made = 0

    def take(self) -> Slot:
        """A slot of its own, until the last reference to it is gone."""
        try:
            memory = self._free.pop()
        except IndexError:
            memory = _Memory()
            self.made += 1
        return Slot(self, memory)

    def give_back(self, memory: _Memory) -> None:
        # Called wherever the last reference ends, be it in a thread of gRPC's: a deque needs no lock.
        if self._closed:
            memory.close()
        else:
            self._free.append(memory)

    def close(self) -> None:
        self._closed = True
        while self._free:
            self._free.pop().close()


class Slot:
    """A batch's place. ``path`` is what another process of this user opens."""

    def __init__(self, slots: Slots, memory: _Memory) -> None:
        self._slots, self._memory = slots, memory
        self.path = memory.path

    @property
    def size(self) -> int:
        return self._memory.size

    def view(self, size: int) -> memoryview:
        """Its first ``size`` bytes."""
        return self._memory.view(size)

    def __del__(self) -> None:
        self._slots.give_back(self._memory)


class _Memory:
    def __init__(self) -> None:
        self._file = os.memfd_create("batch")
        self.path = f"/proc/{os.getpid()}/fd/{self._file}"
        self.size = 0
        self._mapped: mmap.mmap | None = None

    def view(self, size: int) -> memoryview:
        if size > self.size:
            self.size = os.fstat(self._file).st_size  # a worker has made it larger
            self._mapped = mmap.mmap(self._file, self.size)
        return memoryview(self._mapped or b"")[:size]

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._mapped = -1, None


class Opened:
    """The slots that a worker has open, by their paths."""

    def __init__(self) -> None:
        self._memories: dict[str, mmap.mmap] = {}

    def memory(self, path: str, size: int) -> memoryview:
        """At least ``size`` bytes of a slot, made larger where it is smaller. Raises ``MemoryError`` where there is no more."""
        found = self._memories.get(path)
        if found is None or len(found) < size:
            with open(path, "r+b") as file:
                there = os.fstat(file.fileno()).st_size
                if there < size:
                    _reserve(file.fileno(), size)
                    there = size
                found = self._memories[path] = mmap.mmap(file.fileno(), there)
        return memoryview(found)


def _reserve(file: int, size: int) -> None:
    # Pages that are only promised would end the worker by SIGBUS, without a word, when they are written to.
    try:
        os.posix_fallocate(file, 0, size)
    except OSError as error:
        raise MemoryError(f"a batch of {size} bytes finds no room in shared memory: {error}") from error
