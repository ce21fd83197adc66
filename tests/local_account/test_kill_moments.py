"""An account that is killed at any moment of what it does, and the next one on the folder, that is killed in its turn."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from account_process import COMMAND, Serving, lives, marked
from cdk_stacks import WAITING, WITH_A_FUNCTION
from shell_jobs import BUCKET, ShellJobs, channel

LARGE = b"x" * (12 << 20)  # an object that moto does not keep in memory
TRAIN = (
    "head -c 12000000 /dev/zero > /opt/ml/checkpoints/1; cp /opt/ml/input/data/data/large /opt/ml/model/model; "
    "setsid sleep 1000 & cp /opt/ml/checkpoints/1 /opt/ml/checkpoints/2"
)
# All that may lie in the folder of an account.
ENTRIES = {
    *("account.json", "account.lock", "account.log", "aws-config", "bin", "builds", "file-systems", "functions"),
    *("images", "jobs", "s3", "sagemaker-config.yaml", "venvs"),
}
EMPTY = ("builds", "file-systems", "functions", "jobs/us-east-1", "s3")


class Work:
    """What is done in an account, in the order of `PHASES`. Each raises what its clients do where the account is gone."""

    def __init__(self, serving: Serving) -> None:
        self.jobs = ShellJobs(serving.exports, serving.state)
        self.stacks: Any = self.jobs.client("cloudformation")
        self.mark = str(serving.state)

    def deploy(self) -> None:
        self.stacks.create_stack(
            StackName="stack", TemplateBody=json.dumps(WITH_A_FUNCTION), Capabilities=["CAPABILITY_IAM"]
        )
        self.stacks.get_waiter("stack_create_complete").wait(StackName="stack", WaiterConfig=WAITING)

    def upload(self) -> None:
        for number in range(4):
            self.jobs.s3.put_object(Bucket=BUCKET, Key=f"data/{number}/large", Body=LARGE)

    def job(self) -> None:
        self.jobs.create(
            "job",
            TRAIN,
            2,
            CheckpointConfig={"S3Uri": f"s3://{BUCKET}/checkpoints"},
            Environment={"MARK": self.mark},
            InputDataConfig=[channel("data", f"s3://{BUCKET}/data/0/")],
        )
        assert self.jobs.statuses(["job"]) == ["Completed"]

    def delete(self) -> None:
        for entry in self.jobs.s3.list_objects_v2(Bucket=BUCKET)["Contents"]:
            self.jobs.s3.delete_object(Bucket=BUCKET, Key=entry["Key"])
        self.stacks.delete_stack(StackName="stack")
        self.stacks.get_waiter("stack_delete_complete").wait(StackName="stack", WaiterConfig=WAITING)


PHASES: tuple[Callable[[Work], None], ...] = (Work.deploy, Work.upload, Work.job, Work.delete)


class Killings:
    """Accounts on one folder, one after the other, each killed."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.seconds: dict[str, float] = {}  # each phase's, undisturbed
        self.owner = 0  # the process of the account that was killed last, if it had started
        self.ran: list[str] = []
        self.family: list[psutil.Process] = []

    def measure(self) -> None:
        """Start one account and let it do everything; then kill it."""
        since = time.monotonic()
        with self.next() as serving:
            self.seconds["start"] = time.monotonic() - since
            work = Work(serving)
            for phase in PHASES:
                since = time.monotonic()
                phase(work)
                self.seconds[phase.__name__] = time.monotonic() - since
            self.kill(serving)

    def kill_in_start(self, part: float) -> None:
        """Kill an account after this part of the time that it takes to start."""
        command = [COMMAND, "--state", str(self.state)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(part * self.seconds["start"])
            self.family = psutil.Process(process.pid).children(recursive=True)
            process.kill()
        # On a quick machine it may have started already.
        self.owner = json.loads((self.state / "account.json").read_text())["pid"]

    def kill_in(self, phase: Callable[[Work], None], part: float) -> None:
        """Kill the next account after this part of the time that a phase takes; all phases before have gone well."""
        with self.next() as serving:
            work = Work(serving)
            for earlier in PHASES[: PHASES.index(phase)]:
                earlier(work)
            thread = threading.Thread(target=self.interrupted, args=(phase, work))
            thread.start()
            thread.join(part * self.seconds[phase.__name__])
            self.kill(serving)
            thread.join()

    def interrupted(self, phase: Callable[[Work], None], work: Work) -> None:
        with contextlib.suppress(Exception):  # whatever it is that a client says of an account that is gone
            phase(work)

    def next(self) -> Serving:
        """Start an account on what the last left, and look at what that is."""
        serving = Serving(self.state)
        own = {serving.process.pid, *(child.pid for child in psutil.Process(serving.process.pid).children(True))}
        assert marked(str(self.state)) - own == set()
        assert [process for process in self.family if lives(process)] == []
        assert {path.name for path in self.state.iterdir()} <= ENTRIES
        assert [path for name in EMPTY for path in (self.state / name).glob("*")] == []
        assert [*self.state.rglob("*.partial"), *(self.state / "images").glob(".build-*")] == []
        return serving

    def kill(self, serving: Serving) -> None:
        """Kill an account. Of the one before, it has said what was lost."""
        self.family = psutil.Process(serving.process.pid).children(recursive=True)
        said = serving.end(signal.SIGKILL)
        assert (f"(process {self.owner}) was killed" in said) == bool(self.owner)
        assert all(f"training job {name}" in said for name in self.ran)
        self.owner = serving.process.pid
        self.ran = [path.name for path in (self.state / "jobs").glob("*/*")]


def drill(state: Path, moments: int, seed: int) -> None:
    """Kill accounts on one folder at moments of every phase, as often each; one that is killed while it starts says nothing."""
    dice = random.Random(seed)
    killings = Killings(state)
    killings.measure()
    for number in range(moments):
        which = number % (len(PHASES) + 1)
        if which == len(PHASES):
            killings.kill_in_start(dice.random())
            killings.ran = []  # it may have removed their folders
        else:
            killings.kill_in(PHASES[which], dice.random())
    killings.next().end()


@pytest.fixture(autouse=True)
def no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for an account that is gone."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


@pytest.mark.soak  # starts six accounts; test_survival.py kills one
def test_an_account_starts_after_one_that_was_killed_at_a_moment_of_each_phase(tmp_path: Path) -> None:
    drill(tmp_path / "state", len(PHASES) + 1, seed=0)


@pytest.mark.soak
def test_an_account_starts_after_one_that_was_killed_at_any_of_50_moments(tmp_path: Path) -> None:
    drill(tmp_path / "state", 50, seed=1)
