"""Cleanup of the state folder after an account that was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sagemaker_local_account.core import atomic_files
from sagemaker_local_account.core.json_files import read_object
from sagemaker_local_account.core.state import AccountError
from sagemaker_local_account.runtime import control_groups

_MOST_SECONDS = 30.0
_LOOK_SECONDS = 0.01


# The folders of resources that end with the account, with a folder per build, call of a function, or file system; that of jobs
# has a folder per region with a folder per job.
JOBS, BUILDS, FUNCTIONS, FILE_SYSTEMS = "jobs", "builds", "functions", "file-systems"
# The prefix of folders in which images are built.
UNFINISHED = ".build-"


def losses(state: Path) -> str | None:
    """Returns what was lost when the account before this one was killed; None where it was not killed.

    To be called with the folder locked, before anything in it is removed.

    Args:
        state: the state folder.
    """
    description = state / "account.json"
    try:
        described = read_object(description, AccountError, "")
        owner = f"process {described.get('pid', 'unknown')}"
    except FileNotFoundError:  # an account removes it when it is closed, and writes it at the end of its start
        return None
    except AccountError:
        owner = f"whose description {description} is damaged"
    ran = [
        f"{what} {name}"
        for what, folders in (
            ("training job", f"{JOBS}/*/*/"),
            ("build", f"{BUILDS}/*/"),
            ("file system", f"{FILE_SYSTEMS}/*/"),
        )
        for name in sorted(path.name for path in state.glob(folders))
    ]
    return (
        f"the previous account on {state} ({owner}) was killed. Lost are its stacks, buckets with their objects, roles, "
        f"logs, executions and job descriptions, and what was running or mounted: {', '.join(ran) or 'nothing'}. Images and "
        "Python environments are kept."
    )


@contextmanager
def mark_in_use(job: Path) -> Iterator[int]:
    """Holds a shared lock on a folder, until this process and those that inherit the descriptor have closed it."""
    descriptor = os.open(job, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def try_lock(folder: Path) -> Iterator[bool]:
    """Tries to hold an exclusive lock on a folder: False where it is in use, else `mark_in_use` blocks meanwhile."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def clear_written(state: Path) -> None:
    """Removes temporary files and unfinished images of killed processes."""
    for folder in (state, state / "bin"):
        atomic_files.remove_partial(folder)
    images = state / "images"
    if not images.is_dir():
        return
    with try_lock(images) as unused:  # by a build in another terminal
        if unused:
            for folder in images.glob(f"{UNFINISHED}*/"):
                shutil.rmtree(folder, ignore_errors=True)
            for folder in (images, *images.glob("*/")):
                atomic_files.remove_partial(folder)


def clear(jobs: Path) -> None:
    """Empties a folder of jobs, once their processes have ended, which they do shortly after their account.

    Raises:
        AccountError: a process still uses a job's folder after 30 seconds.
    """
    deadline = time.monotonic() + _MOST_SECONDS
    for job in jobs.glob("*/"):
        while in_use(job):
            if time.monotonic() > deadline:
                raise AccountError(
                    f"processes of an earlier account still use {job}; end them, or choose another --state"
                )
            time.sleep(_LOOK_SECONDS)
    control_groups.remove_leftover(jobs)
    shutil.rmtree(jobs, ignore_errors=True)
    jobs.mkdir(parents=True, exist_ok=True)


def in_use(job: Path) -> bool:
    """Whether a process has marked a job's folder as in use."""
    with try_lock(job) as unused:
        return not unused
