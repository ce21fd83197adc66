"""Many jobs one after the other, many hosts at once: what they leave, and how they share two cores."""

import contextlib
import gc
import os
import time
from pathlib import Path

import psutil
import pytest
from running_account import Running
from shell_jobs import ShellJobs

WARM_UP, SOAK, AT_ONCE = 40, 200, 8
MOST_KILOBYTES_PER_JOB = 64
MOST_SECONDS_PER_JOB = 0.4


@pytest.fixture(scope="module")
def jobs(running: Running) -> ShellJobs:
    return ShellJobs(running.account.environment(), running.account.state)


class Holdings:
    """What this process, in which the account runs, holds of the machine."""

    def __init__(self) -> None:
        gc.collect()
        own = psutil.Process()
        family = [own, *own.children(recursive=True)]
        self.memory = own.memory_info().rss
        self.counts = {
            "files": len(os.listdir("/proc/self/fd")),
            "threads": own.num_threads(),
            "processes": len(family),
            "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
            "namespaces": len({link for process in family for link in _namespaces(process)}),
        }


def _namespaces(process: psutil.Process) -> list[str]:
    with contextlib.suppress(OSError):
        return [os.readlink(f"/proc/{process.pid}/ns/{kind}") for kind in ("net", "mnt", "user", "pid")]
    return []


def run_many(jobs: ShellJobs, name: str, count: int) -> None:
    for first in range(0, count, AT_ONCE):
        names = [jobs.create(f"{name}-{first + number}", "echo done") for number in range(AT_ONCE)]
        assert set(jobs.statuses(names)) == {"Completed"}


@pytest.fixture(scope="module")
def soak(jobs: ShellJobs) -> tuple[Holdings, Holdings, float]:
    """What was held before and after many jobs, and the seconds per job."""
    run_many(jobs, "warm-up", WARM_UP)
    before = Holdings()
    start = time.monotonic()
    run_many(jobs, "soak", SOAK)
    seconds = (time.monotonic() - start) / SOAK
    after = Holdings()
    print(f"{SOAK} jobs, {seconds:.2f} s each, {(after.memory - before.memory) / SOAK / 1024:.1f} KB each")
    print(before.counts, after.counts)
    return before, after, seconds


def test_two_hundred_jobs_leave_files_threads_processes_and_namespaces_as_they_were(
    soak: tuple[Holdings, Holdings, float],
) -> None:
    before, after, _ = soak
    assert after.counts == before.counts


def test_a_job_that_is_over_keeps_a_few_kilobytes(soak: tuple[Holdings, Holdings, float]) -> None:
    before, after, _ = soak
    assert (after.memory - before.memory) / SOAK / 1024 < MOST_KILOBYTES_PER_JOB


def test_a_short_job_is_over_in_a_moment(soak: tuple[Holdings, Holdings, float]) -> None:
    assert soak[2] < MOST_SECONDS_PER_JOB
