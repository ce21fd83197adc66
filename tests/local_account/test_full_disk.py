"""An account whose folder is on a disk that is full: what it refuses, and how it goes on when there is room again."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from account_process import COMMAND, Serving
from botocore.exceptions import ClientError, WaiterError
from cdk_stacks import WAITING, WITH_A_FUNCTION
from shell_jobs import BUCKET, ShellJobs, channel
from test_alarms import until

from sagemaker_local_account.images import docker

DISK = 64 << 20
LARGE = b"x" * (12 << 20)  # an object that moto does not keep in memory
ALONE = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")

pytestmark = pytest.mark.soak  # fills a disk


class Disk:
    """The disk of an account, which is in a mount namespace: a tmpfs, seen by way of its process."""

    def __init__(self, serving: Serving) -> None:
        self.folder = Path(f"/proc/{serving.process.pid}/root{serving.state}")
        self._filler = self.folder / "filler"

    @contextmanager
    def full(self, but: int = 0) -> Iterator[None]:
        """Full, but for some bytes."""
        with self._filler.open("wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(1 << 20))
            except OSError:
                filler.truncate(max(0, filler.tell() - but))
        try:
            yield
        finally:
            self._filler.unlink()


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    state = tmp_path_factory.mktemp("state")
    within = (*ALONE, f'mount -t tmpfs -o size={DISK} none {state} && exec "$0" "$@"')
    with Serving(state, within=within) as serving:
        yield serving
        # Of a log that could not be written either.
        assert "Logging error" not in serving.end(signal.SIGTERM)


@pytest.fixture(scope="module")
def disk(serving: Serving) -> Disk:
    return Disk(serving)


@pytest.fixture(scope="module")
def jobs(serving: Serving, disk: Disk) -> ShellJobs:
    jobs = ShellJobs(serving.exports, disk.folder)
    jobs.s3.put_object(Bucket=BUCKET, Key="data/large", Body=LARGE)
    return jobs


def test_an_object_that_does_not_fit_is_refused_by_the_name_of_the_disk_and_is_not_there(
    jobs: ShellJobs, disk: Disk, serving: Serving
) -> None:
    with disk.full(), pytest.raises(ClientError, match=f"the disk of .* {serving.state} is full") as refused:
        jobs.s3.put_object(Bucket=BUCKET, Key="new", Body=LARGE)
    assert refused.value.response["ResponseMetadata"]["RetryAttempts"] == 0
    with pytest.raises(ClientError, match="Not Found"):
        jobs.s3.head_object(Bucket=BUCKET, Key="new")


def test_an_object_that_could_not_be_replaced_is_as_it_was(jobs: ShellJobs, disk: Disk) -> None:
    with disk.full():
        with pytest.raises(ClientError, match="is full"):
            jobs.s3.put_object(Bucket=BUCKET, Key="data/large", Body=LARGE[::-1] + b"y")
        assert jobs.s3.get_object(Bucket=BUCKET, Key="data/large")["Body"].read() == LARGE


@pytest.mark.parametrize(("name", "but"), [("no-room-for-its-configuration", 0), ("no-room-for-its-data", 6 << 20)])
def test_a_job_without_room_fails_by_the_name_of_the_disk(
    jobs: ShellJobs, disk: Disk, serving: Serving, name: str, but: int
) -> None:
    with disk.full(but):
        jobs.create(name, "true", InputDataConfig=[channel("data", f"s3://{BUCKET}/data/")])
        reason = jobs.statuses([name])[0]
    assert reason.startswith("ClientError: Data download failed:")
    assert f"Insufficient disk space: the disk of {serving.state}/jobs/us-east-1 is full" in reason


def test_a_job_that_fills_the_disk_leaves_the_account_and_another_job_alone(jobs: ShellJobs) -> None:
    jobs.create("other", "trap 'exit 0' TERM; echo on; while true; do sleep 0.1; done")
    until(lambda: jobs.said("other"))  # else the disk may be full before it has begun
    jobs.create("greedy", "cat /dev/zero > /opt/ml/model/model")
    # By its own error, or by the limit on what a job may take of the disk, whichever is first.
    assert jobs.statuses(["greedy"])[0].startswith(("AlgorithmError: ", "ClientError: "))
    jobs.sagemaker.stop_training_job(TrainingJobName="other")
    assert jobs.statuses(["other"]) == ["Stopped"]


def test_a_stack_without_room_for_its_function_is_rolled_back_with_the_reason(
    jobs: ShellJobs, disk: Disk, serving: Serving
) -> None:
    stacks = jobs.client("cloudformation")
    with disk.full():
        stacks.create_stack(StackName="full", TemplateBody=json.dumps(WITH_A_FUNCTION), Capabilities=["CAPABILITY_IAM"])
        with pytest.raises(WaiterError, match="ROLLBACK"):
            stacks.get_waiter("stack_create_complete").wait(StackName="full", WaiterConfig=WAITING)
    events = stacks.describe_stack_events(StackName="full")["StackEvents"]
    reasons = [event["ResourceStatusReason"] for event in events if "ResourceStatusReason" in event]
    assert any(f"the disk of {serving.state}/functions is full" in reason for reason in reasons)


def test_an_image_without_room_is_not_built_and_the_disk_is_named(
    jobs: ShellJobs, disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "Dockerfile").write_text("FROM python:3.11\nCOPY large /large\n")
    (tmp_path / "large").write_bytes(LARGE)
    monkeypatch.setenv("SAGEMAKER_LOCAL_ACCOUNT_STATE", str(disk.folder))
    before = sorted((disk.folder / "images").iterdir())
    with disk.full():
        assert docker.main(["build", "-t", "large", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "No space left on device" in said
    assert f"{disk.folder}/images/" in said
    assert sorted((disk.folder / "images").iterdir()) == before
    assert docker.main(["build", "-t", "large", str(tmp_path)]) == 0


@pytest.mark.soak  # starts two accounts
def test_an_account_does_not_start_on_a_full_disk_and_says_why_and_does_when_there_is_room(tmp_path: Path) -> None:
    fill = f"mount -t tmpfs -o size=8m none {tmp_path}; head -c 9m /dev/zero > {tmp_path}/x"
    start = f'"$0" --state {tmp_path}/state run -- echo started'
    done = subprocess.run(
        [*ALONE, f"{fill}; {start}; echo $?; rm {tmp_path}/x; {start}", COMMAND], capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["1", "started"]
    assert f"local-account: the state folder {tmp_path}/state cannot be used: " in done.stderr
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_when_there_is_room_again_jobs_run(jobs: ShellJobs) -> None:
    data = channel("data", f"s3://{BUCKET}/data/")
    jobs.create("room", "cp /opt/ml/input/data/data/large /opt/ml/model/", InputDataConfig=[data])
    assert jobs.statuses(["room"]) == ["Completed"]
