"""The resource usage of a host's processes, measured with psutil."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import psutil


def tree(first: int) -> list[psutil.Process]:
    """Returns a process and its descendants; none where it has ended."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(first)
        return [process, *process.children(recursive=True)]
    return []


def threads(processes: Sequence[psutil.Process]) -> int:
    """Returns the number of threads of the processes."""
    return sum(map(_threads, processes))


def exceed(processes: Sequence[psutil.Process], most: int) -> bool:
    """Whether the processes use more than ``most`` bytes of memory."""
    # RSS counts shared pages in each process; PSS, which does not, takes longer to read.
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
    """The proportional set size (smaps_rollup's Pss)."""
    with contextlib.suppress(psutil.Error, OSError):
        return int(process.memory_full_info().pss)
    return _resident(process)
