"""What the processes of a host take of this machine, counted from outside one by one."""

from __future__ import annotations

import contextlib

import psutil


def threads(first: int) -> int:
    """How many threads a process and those that descend from it have."""
    return sum(map(_threads, _tree(first)))


def exceeds(first: int, most: int) -> bool:
    """Whether a process and those that descend from it have more than ``most`` bytes of memory."""
    processes = _tree(first)
    # Pages that processes share count in each of them; to count them once takes longer.
    return all(sum(map(count, processes)) > most for count in (_resident, _proportional))


def _tree(first: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(first)
        return [process, *process.children(recursive=True)]
    return []


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
