"""What the processes of a host take of this machine, counted from outside one by one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import psutil


def tree(first: int) -> list[psutil.Process]:
    """A process and those that descend from it; none where it has ended."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(first)
        return [process, *process.children(recursive=True)]
    return []


def threads(processes: Sequence[psutil.Process]) -> int:
    """How many threads they have."""
    return sum(map(_threads, processes))


def exceed(processes: Sequence[psutil.Process], most: int) -> bool:
    """Whether they have more than ``most`` bytes of memory."""
    # Pages that processes share count in each of them; to count them once takes longer.
    return all(sum(map(count, processes)) > most for count in (_resident, _proportional))


def _threads(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        return int(process.num_threads())
    return 0


def _resident(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0


def _proportional(process: psutil.Process) -> int:
    """What is a process's own, and its part of what it shares (smaps_rollup's Pss)."""
    with contextlib.suppress(psutil.Error, OSError):
        return int(process.memory_full_info().pss)
    return _resident(process)
