"""What an account that was killed leaves of its jobs, and how the next one on the same folder gets rid of it."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import control_groups
from .state import AccountError

_MOST_SECONDS = 30.0
_LOOK_SECONDS = 0.01


@contextmanager
def held(job: Path) -> Iterator[int]:
    """A descriptor that shows a job's folder to be in use, for as long as this process or one that inherits it has it open."""
    descriptor = os.open(job, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield descriptor
    finally:
        os.close(descriptor)


def clear(jobs: Path) -> None:
    """Make `jobs` an empty folder, once the processes of jobs that were there are gone.

    They end by themselves when their account does, but it may be dead for a moment before the last of them is.
    """
    deadline = time.monotonic() + _MOST_SECONDS
    for job in jobs.glob("*/"):
        while in_use(job):
            if time.monotonic() > deadline:
                raise AccountError(
                    f"processes of an earlier account still use {job}; end them, or choose another --state"
                )
            time.sleep(_LOOK_SECONDS)
    control_groups.remove_left(jobs)
    shutil.rmtree(jobs, ignore_errors=True)
    jobs.mkdir(parents=True, exist_ok=True)


def in_use(job: Path) -> bool:
    """Whether a process holds a job's folder."""
    descriptor = os.open(job, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
