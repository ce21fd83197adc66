"""What an account that was killed leaves in its folder, and how the next one on the same folder gets rid of it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import atomic_files, control_groups
from .state import AccountError

_MOST_SECONDS = 30.0
_LOOK_SECONDS = 0.01


# The folders of what ends with the account, each with a folder for each build, call of a function, or file system; that of jobs
# has one for each region, with one for each job.
JOBS, BUILDS, FUNCTIONS, FILE_SYSTEMS = "jobs", "builds", "functions", "file-systems"
# How the names of folders begin in which images are built.
UNFINISHED = ".build-"


def lost(state: Path) -> str | None:
    """What the account before this one lost because it was killed, in a sentence or two; None where it was not killed.

    To be called with the folder locked, before anything in it is removed.
    """
    description = state / "account.json"
    try:
        owner = json.loads(description.read_text())["pid"]
    except FileNotFoundError:  # an account removes it when it is closed; one that starts replaces it last of all
        return None
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
        f"the account before this one on {state} (process {owner}) was killed. Lost is all that it held: stacks, buckets with "
        f"their objects, roles, logs, executions and descriptions of jobs; and what ran or was mounted: "
        f"{', '.join(ran) or 'nothing'}. Kept are images that were built and environments that were installed."
    )


@contextmanager
def held(job: Path) -> Iterator[int]:
    """A descriptor that shows a job's folder to be in use, for as long as this process or one that inherits it has it open."""
    descriptor = os.open(job, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def alone(folder: Path) -> Iterator[bool]:
    """Whether no process holds a folder; while it is so, whoever wants to hold it waits."""
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
    """Remove what was being written when its writer was killed: parts of files, and images that were not complete."""
    for folder in (state, state / "bin"):
        atomic_files.remove_partial(folder)
    images = state / "images"
    if not images.is_dir():
        return
    with alone(images) as unused:  # by a build in another terminal
        if unused:
            for folder in images.glob(f"{UNFINISHED}*/"):
                shutil.rmtree(folder, ignore_errors=True)
            for folder in (images, *images.glob("*/")):
                atomic_files.remove_partial(folder)


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
    with alone(job) as unused:
        return not unused
