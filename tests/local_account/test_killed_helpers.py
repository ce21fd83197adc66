"""Processes by which the account runs a job, each killed while it runs: the job ends with a reason, and nothing is left."""

from __future__ import annotations

import contextlib
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from host_jobs import FOREVER, SECONDS, Job
from shell_jobs import ShellJobs

from sagemaker_local_account.account import LocalAccount
from sagemaker_local_account.runtime import pod as runtime_pod
from sagemaker_local_account.runtime.pod import HostError, Pod

HELPERS = ("supervisor", "switch", "keeper")

pytestmark = pytest.mark.soak  # kills each process in turn


def helper_of(pod: Pod, kind: str, host: int = 0) -> psutil.Process:
    """A helper of a pod: the supervisor's only child is the switch, whose children are keepers, in the order of the hosts."""
    assert pod._supervisor is not None
    found = psutil.Process(pod._supervisor.pid)
    if kind != "supervisor":
        [found] = found.children()
    if kind == "keeper":
        found = sorted(found.children(), key=lambda it: it.pid)[host]
    return found


def family(pod: Pod) -> list[psutil.Process]:
    supervisor = helper_of(pod, "supervisor")
    return [supervisor, *supervisor.children(recursive=True)]


class Early(Job):
    """A job of which a helper is killed when its first keeper has started process 1, which has not started its command."""

    def __init__(self, folder: Path, *programs: str, kind: str) -> None:
        super().__init__(folder, *programs)
        self._kind = kind
        self.started: list[psutil.Process] = []

    def _on_message(self, content: dict[str, Any], lines: Any) -> None:
        if "process" in content and not self.started:
            self.started = family(self)
            helper_of(self, self._kind).kill()
        super()._on_message(content, lines)


@pytest.mark.parametrize("kind", HELPERS)
def test_a_helper_that_is_killed_ends_its_hosts_within_a_second_and_leaves_no_process(
    tmp_path: Path, kind: str
) -> None:
    with Job(tmp_path, FOREVER, FOREVER) as job:
        assert {job.line(), job.line()} == {("algo-1", "running"), ("algo-2", "running")}
        processes = family(job)
        helper_of(job, kind).kill()
        first = job.first_exit(SECONDS)
        assert first is not None
        assert first[1] == -signal.SIGKILL
        if kind == "keeper":
            assert first[0] in job.lost == {"algo-1"}
            job.signal(signal.SIGTERM)  # of the host that is left, which it handles
        assert job.wait(SECONDS) == {"algo-1": -9, "algo-2": 7 if kind == "keeper" else -9}
    _, alive = psutil.wait_procs(processes, timeout=SECONDS)
    assert alive == []


def test_a_lost_host_takes_no_signal_and_the_others_do(tmp_path: Path) -> None:
    with Job(tmp_path, FOREVER, FOREVER, FOREVER) as job:
        assert len({job.line() for _ in range(3)}) == 3
        helper_of(job, "keeper", 1).kill()
        assert job.first_exit(SECONDS) == ("algo-2", -9)
        job.kill_host("algo-3")
        assert job.first_exit(SECONDS) == ("algo-3", -9)
        job.signal(signal.SIGTERM)
        assert job.wait(SECONDS) == {"algo-1": 7, "algo-2": -9, "algo-3": -9}


@pytest.mark.parametrize("kind", HELPERS)
def test_a_helper_that_is_killed_before_the_hosts_have_started_fails_the_start(tmp_path: Path, kind: str) -> None:
    job = Early(tmp_path, FOREVER, FOREVER, kind=kind)
    with contextlib.closing(job):
        failure = ""
        try:
            job.start()
        except HostError as error:
            failure = str(error)
        if failure:
            assert "could not be started: " in failure
        else:  # it was killed a moment later than the commands began
            first = job.first_exit(SECONDS)
            assert first is not None
            assert first[1] == -signal.SIGKILL
    _, alive = psutil.wait_procs(job.started, timeout=SECONDS)
    assert alive == []


# The supervisor's program, but process 1 of a host asks late for the kernel's signal at the end of its parent: after that end.
LATE = """
import os, sys, time
sys.path.append(sys.argv[1])
from sagemaker_local_account.runtime import supervisor
ask = supervisor._die_with_parent
supervisor._die_with_parent = lambda: (os.getpid() == 1 and time.sleep(1), ask())
supervisor.main()
"""


def test_a_keeper_that_is_killed_before_its_host_can_learn_of_it_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_pod, "SUPERVISOR", LATE)
    with (
        contextlib.closing(Early(tmp_path, FOREVER, kind="keeper")) as job,
        pytest.raises(HostError, match=r"could not be started: .*killed"),
    ):
        job.start()
    _, alive = psutil.wait_procs(job.started, timeout=SECONDS)
    assert alive == []


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with LocalAccount(state=tmp_path_factory.mktemp("account")) as account:
        yield account, ShellJobs(account.environment(), account.state)


@pytest.mark.parametrize("kind", HELPERS)
def test_its_job_fails_with_a_reason_and_the_account_goes_on(jobs: tuple[LocalAccount, ShellJobs], kind: str) -> None:
    account, shell = jobs
    shell.create(f"loses-{kind}", "echo running; sleep 1000", 2)
    pod = running_pod(account, shell, f"loses-{kind}")
    helper_of(pod, kind).kill()
    assert shell.ended(f"loses-{kind}")["FailureReason"].startswith("InternalServerError: the host ")
    shell.create(f"after-{kind}", "echo trained")
    assert shell.ended(f"after-{kind}")["TrainingJobStatus"] == "Completed"


@pytest.mark.parametrize("kind", HELPERS)
def test_its_job_can_be_stopped(jobs: tuple[LocalAccount, ShellJobs], kind: str) -> None:
    account, shell = jobs
    shell.create(f"stops-{kind}", "echo running; sleep 1000", 2)
    pod = running_pod(account, shell, f"stops-{kind}")
    processes = family(pod)
    helper_of(pod, kind).kill()
    with contextlib.suppress(shell.sagemaker.exceptions.ClientError):  # where it has failed already
        shell.sagemaker.stop_training_job(TrainingJobName=f"stops-{kind}")
    assert shell.ended(f"stops-{kind}")["TrainingJobStatus"] in ("Stopped", "Failed")
    _, alive = psutil.wait_procs(processes, timeout=SECONDS)
    assert alive == []


def running_pod(account: LocalAccount, shell: ShellJobs, name: str) -> Pod:
    """The pod of a job, once each of its two hosts has said a line."""
    while len(shell.said(name)) < 2:
        assert shell.sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobStatus"] == "InProgress"
        time.sleep(0.05)
    attempt = account.jobs._job(name)._attempt
    assert attempt is not None
    pod: Pod = attempt._hosts
    return pod
