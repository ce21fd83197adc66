"""An account that is killed in the middle of its jobs, and the next one on the same folder."""

import contextlib
import os
import signal
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from account_process import Serving, lives, marked
from botocore.exceptions import ClientError
from shell_jobs import AN_ERROR_RATHER_THAN_A_HANG, ShellJobs, client_of

from sagemaker_local_account.runtime import leftovers


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + AN_ERROR_RATHER_THAN_A_HANG
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


KINDS = ("net", "mnt", "user", "pid")


def namespaces_of(processes: list[psutil.Process]) -> set[str]:
    found = set()
    for process in processes:
        for kind in KINDS:
            with contextlib.suppress(OSError):
                found.add(os.readlink(f"/proc/{process.pid}/ns/{kind}"))
    return found


def cpu_groups(mark: str) -> list[Path]:
    # os.walk, since groups of other tests' accounts go meanwhile, at which rglob ends.
    folders = (Path(root, name) for root, names, _ in os.walk("/sys/fs/cgroup") for name in names)
    return [folder for folder in folders if folder.match(f"local-account-*{mark}*")]


class Killed:
    """What an account was that was killed while two jobs of two hosts ran, and what was there before it."""

    def __init__(self, state: Path) -> None:
        self.interfaces = set(socket.if_nameindex())
        self.mark = uuid.uuid4().hex
        with Serving(state) as serving:
            self.exports = serving.exports
            jobs = ShellJobs(serving.exports, state)
            for number in (1, 2):
                jobs.create(
                    f"{self.mark}-{number}", "setsid sleep 1000 & sleep 1000", 2, Environment={"MARK": self.mark}
                )
            # Each of four hosts has its shell and two others.
            until(lambda: len(marked(self.mark)) >= 12)
            self.family = psutil.Process(serving.process.pid).children(recursive=True)
            self.folders_in_use = [leftovers.in_use(folder) for folder in (state / "jobs" / "us-east-1").iterdir()]
            self.namespaces = namespaces_of(self.family) - namespaces_of([psutil.Process()])
            # Open, so that the kernel gives their numbers to no other namespace while these tests look for them.
            self.held = [
                os.open(f"/proc/{process.pid}/ns/{kind}", os.O_RDONLY) for process in self.family for kind in KINDS
            ]
            serving.end(signal.SIGKILL)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    killed = Killed(tmp_path_factory.mktemp("state"))
    yield killed
    for namespace in killed.held:
        os.close(namespace)


@pytest.fixture(scope="module")
def state(killed: Killed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(killed.exports["SAGEMAKER_LOCAL_ACCOUNT_STATE"])


@pytest.fixture(scope="module")
def folders_left(state: Path) -> list[Path]:
    """What lay in the folder of jobs when the account was dead."""
    return [*(state / "jobs" / "us-east-1").iterdir()]


@pytest.fixture(scope="module")
def next_one(killed: Killed, state: Path, folders_left: list[Path]) -> Iterator[Serving]:
    """The next account on the folder and the port of the one that was killed, started at once."""
    with Serving(state, "--port", killed.exports["AWS_ENDPOINT_URL"].rpartition(":")[2]) as serving:
        yield serving


@pytest.fixture(scope="module")
def listed(next_one: Serving) -> list[dict[str, Any]]:
    """The jobs of the next account, before these tests make one there."""
    sagemaker = client_of(next_one.exports, "sagemaker")
    return list(sagemaker.list_training_jobs()["TrainingJobSummaries"])


@pytest.fixture(scope="module")
def jobs(next_one: Serving, listed: list[dict[str, Any]], state: Path) -> ShellJobs:
    return ShellJobs(next_one.exports, state)


def test_an_account_starts_at_once_where_one_was_killed(killed: Killed, next_one: Serving) -> None:
    assert next_one.exports["AWS_ENDPOINT_URL"] == killed.exports["AWS_ENDPOINT_URL"]


def test_when_the_next_account_answers_no_process_of_the_jobs_is_left(killed: Killed, next_one: Serving) -> None:
    assert len(killed.family) >= 2 * (2 + 2 * 4)  # supervisor and switch; keeper and three of each host
    assert marked(killed.mark) == set()
    assert [process for process in killed.family if lives(process)] == []


def test_the_folders_of_jobs_that_run_are_in_use(killed: Killed) -> None:
    assert killed.folders_in_use == [True, True]


def test_folders_in_use_are_removed_once_they_are_given_free(tmp_path: Path) -> None:
    job = tmp_path / "jobs" / "job"
    job.mkdir(parents=True)
    with ThreadPoolExecutor() as pool:
        with leftovers.mark_in_use(job):
            cleared = pool.submit(leftovers.clear, job.parent)
            with pytest.raises(TimeoutError):
                cleared.result(timeout=0.2)
            assert job.exists()
        cleared.result(AN_ERROR_RATHER_THAN_A_HANG)
    assert not job.exists()


def test_an_account_that_is_killed_leaves_no_namespace(killed: Killed, next_one: Serving) -> None:
    assert killed.namespaces
    assert not killed.namespaces & namespaces_of([*psutil.process_iter()])


def test_an_account_that_is_killed_leaves_no_mount(killed: Killed, state: Path) -> None:
    assert str(state) not in Path("/proc/self/mountinfo").read_text()


def test_an_account_that_is_killed_leaves_no_network_interface(killed: Killed) -> None:
    assert set(socket.if_nameindex()) == killed.interfaces


def test_the_next_account_has_no_jobs(listed: list[dict[str, Any]]) -> None:
    assert listed == []


def test_the_next_account_removes_the_folders_of_jobs(folders_left: list[Path], state: Path, next_one: Serving) -> None:
    assert folders_left
    assert [*(state / "jobs" / "us-east-1").iterdir()] == []


def test_the_next_account_removes_the_control_groups(killed: Killed, next_one: Serving) -> None:
    assert cpu_groups(killed.mark) == []


def test_the_keys_of_an_account_that_was_killed_are_refused(killed: Killed, next_one: Serving) -> None:
    with pytest.raises(ClientError, match="InvalidClientTokenId"):
        client_of(killed.exports, "sts").get_caller_identity()


def test_a_job_runs_in_the_next_account_by_the_name_of_one_that_was_killed(killed: Killed, jobs: ShellJobs) -> None:
    assert jobs.statuses([jobs.create(f"{killed.mark}-1", "true")]) == ["Completed"]
