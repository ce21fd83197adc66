"""What a job takes of this machine, each way as a real job: it ends with its reason, and nothing else ends.

Each program is bounded by itself too, so that a limit that fails takes little of the machine that the test runs on.
"""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Iterator
from typing import Any

import pytest
from moto.logs.models import logs_backends
from shell_jobs import BUCKET, ShellJobs, channel

from sagemaker_local_account.account import LocalAccount
from sagemaker_local_account.aws.logs import log_events
from sagemaker_local_account.core.failure_reasons import OUT_OF_MEMORY
from sagemaker_local_account.core.state import ACCOUNT_ID, REGION
from sagemaker_local_account.runtime import control_groups
from sagemaker_local_account.runtime.limits import Limits

FORKS = """
import os, time
for _ in range(10):
    try:
        os.fork()
    except OSError:
        pass
time.sleep(100)
"""
ALLOCATES = """
import time
held = [b"x" * (16 << 20) for _ in range(48)]
time.sleep(100)
"""
FILLS = """
import time
with open("/opt/ml/checkpoints/big" if {checkpoints} else "/tmp/big", "wb") as file:
    for _ in range(200):
        file.write(b"x" * (1 << 20))
time.sleep(100)
"""
NEIGHBOUR = "neighbour"


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShellJobs]:
    limits = Limits(memory="200MiB", processes=100, disk="64MiB")
    with LocalAccount(state=tmp_path_factory.mktemp("account"), limits=limits) as account:
        jobs = ShellJobs(account.environment(), account.state)
        jobs.create(NEIGHBOUR, "sleep 1000")
        yield jobs


@pytest.fixture(autouse=True)
def _the_neighbour_goes_on(jobs: ShellJobs) -> Iterator[None]:
    yield
    assert jobs.sagemaker.describe_training_job(TrainingJobName=NEIGHBOUR)["TrainingJobStatus"] == "InProgress"


@pytest.fixture(params=["with control groups", "without"])
def groups(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Jobs that start now are bounded by the kernel, as far as this user may have it so, or looked at by the account."""
    if request.param == "without":
        monkeypatch.setattr(control_groups, "_parents", dict)
    return str(request.param).replace(" ", "-")


def reason(jobs: ShellJobs, name: str) -> str:
    ended = jobs.ended(name)
    assert ended["TrainingJobStatus"] == "Failed", ended
    return str(ended["FailureReason"])


def test_a_fork_bomb_ends_with_the_number_of_processes_it_reached(jobs: ShellJobs, groups: str) -> None:
    name = jobs.create_python(f"forks-{groups}", FORKS)
    assert reason(jobs, name) == (
        "AlgorithmError: Resource temporarily unavailable: algo-1 reached 100 processes and threads, the most that a host has "
        "on this machine (local-account --host-processes), exit code: 137"
    )


def test_a_job_out_of_memory_ends_in_aws_s_words(jobs: ShellJobs, groups: str) -> None:
    name = jobs.create_python(f"allocates-{groups}", ALLOCATES)
    assert reason(jobs, name) == f"{OUT_OF_MEMORY} On this machine algo-1 has 200 MiB (local-account --host-memory)"


def test_a_host_ends_that_waits_for_a_process_out_of_memory_in_vain(jobs: ShellJobs) -> None:
    jobs.s3.put_object(Bucket=BUCKET, Key="waits/main.py", Body=ALLOCATES.encode())
    code = [channel("code", f"s3://{BUCKET}/waits/")]
    jobs.create("waits", "python /opt/ml/input/data/code/main.py & sleep 100", InputDataConfig=code)
    assert reason(jobs, "waits").startswith(OUT_OF_MEMORY)


@pytest.mark.parametrize("checkpoints", [True, False])
def test_a_job_whose_volume_is_full_ends_for_want_of_space(jobs: ShellJobs, checkpoints: bool) -> None:
    place = "checkpoints" if checkpoints else "tmp"
    program = f"import os; os.makedirs('/opt/ml/checkpoints', exist_ok=True)\n{FILLS.format(checkpoints=checkpoints)}"
    name = jobs.create_python(f"fills-{place}", program)
    assert reason(jobs, name) == (
        "AlgorithmError: [Errno 28] No space left on device: algo-1 has 64 MiB of disk (what this machine has for it, "
        "local-account --host-disk), exit code: 137"
    )


def test_channels_that_a_volume_does_not_hold_fail_the_download(jobs: ShellJobs) -> None:
    for number in range(5):
        jobs.s3.put_object(Bucket=BUCKET, Key=f"large/{number}", Body=b"x" * (16 << 20))
    jobs.create("large", "true", InputDataConfig=[channel("large", f"s3://{BUCKET}/large/")])
    assert reason(jobs, "large").startswith(
        "ClientError: Data download failed:Insufficient disk space: algo-1 has 64 MiB"
    )


def test_the_kernel_ends_a_job_s_processes_before_the_account(jobs: ShellJobs) -> None:
    jobs.create("first", "cat /proc/self/oom_score_adj; df -k /dev/shm | tail -1")
    assert jobs.statuses(["first"]) == ["Completed"]
    [score, shared] = jobs.said("first")["algo-1"]
    assert score == "500"
    assert shared.split()[1] == str(100 * 1024), "half of its memory"


def events(jobs: ShellJobs, name: str, **which: Any) -> list[str]:
    """Of the one host of a job: the messages of a page of its log."""
    logs, group = jobs.client("logs"), "/aws/sagemaker/TrainingJobs"
    [stream] = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=f"{name}/")["logStreams"]
    page = logs.get_log_events(logGroupName=group, logStreamName=stream["logStreamName"], **which)
    return [event["message"] for event in page["events"]]


@pytest.mark.soak
def test_of_a_million_lines_the_last_are_kept(jobs: ShellJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 8 << 20
    monkeypatch.setattr(log_events, "MOST_BYTES", most)
    jobs.create("million", "seq 1000000")
    assert jobs.statuses(["million"]) == ["Completed"]
    [first] = events(jobs, "million", startFromHead=True, limit=1)
    last = events(jobs, "million", limit=3)
    assert last == ["999998", "999999", "1000000"]
    assert 10_000 < 1_000_000 - int(first) < most // 400


def test_a_line_of_ten_megabytes_comes_in_events_of_256_kilobytes(jobs: ShellJobs) -> None:
    jobs.create("long", "head -c 10000000 /dev/zero | tr '\\0' x; echo; echo after")
    assert jobs.statuses(["long"]) == ["Completed"]
    *parts, last = events(jobs, "long", startFromHead=True)
    assert last == "after"
    assert [len(part) for part in parts] == [262_118] * 38 + [10_000_000 - 38 * 262_118]


def test_output_that_is_no_text_comes_as_text(jobs: ShellJobs) -> None:
    jobs.create("binary", "head -c 1000000 /dev/urandom; echo; printf '\\377 after'")
    assert jobs.statuses(["binary"]) == ["Completed"]
    *noise, last = events(jobs, "binary", startFromHead=True)
    assert last == "\ufffd after"
    assert 300_000 < sum(map(len, noise)) < 1_000_000
    assert max(len(event.encode()) for event in noise) <= 262_118


@pytest.mark.soak  # ten thousand files
@pytest.mark.parametrize("compression", ["GZIP", "NONE"])
def test_a_model_of_ten_thousand_files_is_uploaded_whole(jobs: ShellJobs, compression: str) -> None:
    name = f"files-{compression.lower()}"
    output = {"S3OutputPath": f"s3://{BUCKET}/models", "CompressionType": compression}
    jobs.create(name, "cd /opt/ml/model; seq 10000 | split -l 1 -a 5 -d - f", OutputDataConfig=output)
    ended = jobs.ended(name, seconds=900)  # a request for each file, where they are not packed
    assert ended["TrainingJobStatus"] == "Completed", ended
    key = ended["ModelArtifacts"]["S3ModelArtifacts"].removeprefix(f"s3://{BUCKET}/")
    if compression == "GZIP":
        body = jobs.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        with tarfile.open(fileobj=io.BytesIO(body)) as archive:
            names = archive.getnames()
    else:
        pages = jobs.s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=key)
        names = [entry["Key"].removeprefix(key) for page in pages for entry in page["Contents"]]
    assert sorted(names) == [f"f{number:05}" for number in range(10_000)]


def test_a_reader_of_a_log_goes_on_where_it_was_when_the_oldest_events_go(
    jobs: ShellJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, stream = jobs.client("logs"), {"logGroupName": "read", "logStreamName": "slowly"}
    logs.create_log_group(logGroupName="read")
    logs.create_log_stream(**stream)

    def put(first: int, last: int) -> None:
        now = round(time.time() * 1000)
        lines = [{"timestamp": now, "message": f"{number:01000}"} for number in range(first, last)]
        logs.put_log_events(**stream, logEvents=lines)

    for first in range(0, 10_000, 1_000):
        put(first, first + 1_000)
    token = logs.get_log_events(**stream, startFromHead=True, limit=9_000)["nextForwardToken"]
    held = sum(getattr(other, "kept_bytes", 0) for other in streams())
    monkeypatch.setattr(log_events, "MOST_BYTES", held)
    put(10_000, 10_010)
    page = logs.get_log_events(**stream, nextToken=token, limit=10)["events"]
    assert [int(event["message"]) for event in page] == [*range(9_000, 9_010)]
    assert int(logs.get_log_events(**stream, startFromHead=True, limit=1)["events"][0]["message"]) > 0


def streams() -> list[Any]:
    """All log streams of the account."""
    groups = logs_backends[ACCOUNT_ID][REGION].groups.values()
    return [stream for group in groups for stream in group.streams.values()]
