"""What a host may take, as values: of its type, of an option, in a control group, and of CloudWatch Logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
import pytest

from sagemaker_local_account.aws.sagemaker.host_logs import JobLogs, Metrics
from sagemaker_local_account.core.failure_reasons import OUT_OF_MEMORY
from sagemaker_local_account.core.state import REGION
from sagemaker_local_account.runtime import control_groups
from sagemaker_local_account.runtime.limits import HostLimits, Limits
from sagemaker_local_account.runtime.log_lines import parts
from sagemaker_local_account.runtime.spec import ContainerSpec, PodSpec


def test_a_host_has_no_more_than_its_instance_type_and_volume(tmp_path: Path) -> None:
    limits = Limits(memory="1000GiB", disk="1000GiB").of_host("ml.m5.large", 30, 1, tmp_path)
    assert (limits.memory, limits.disk, limits.of_type, limits.of_volume) == (8 << 30, 30 << 30, True, True)
    assert limits.memory_reason("algo-1") == OUT_OF_MEMORY
    assert "algo-1 has 30 GiB of disk (VolumeSizeInGB)" in limits.disk_reason("algo-1")


def test_a_type_that_nobody_knows_has_the_share_of_this_machine(tmp_path: Path) -> None:
    limits = Limits(memory="2GiB", disk="20GiB").of_host("ml.p9.large", None, 4, tmp_path)
    assert (limits.memory, limits.disk, limits.of_type, limits.of_volume) == (2 << 30, 5 << 30, False, False)


@pytest.mark.parametrize("text", ["half", "0%", "101%", "8GB", "-1GiB", ""])
def test_an_amount_that_is_none_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(ValueError, match=f"host_disk must be a share like '50%' or a size like '8GiB', got '{text}'"):
        Limits(disk=text)


def test_less_than_one_process_is_refused() -> None:
    with pytest.raises(ValueError, match="host_processes must be at least 1, like 4096, got 0"):
        Limits(processes=0)


def test_a_character_is_not_split_between_events() -> None:
    line = "x" + "\u20ac" * 100_000
    assert "".join(parts(line)) == line
    assert [len(part.encode()) for part in parts(line)] == [262_117, 300_001 - 262_117]


@pytest.mark.parametrize("room", range(4))
def test_a_character_of_four_bytes_is_not_split_wherever_the_event_ends(room: int) -> None:
    before = "x" * (262_118 - room)
    assert [*parts(f"{before}\U0001f600")] == [before, "\U0001f600"]


def test_requests_for_events_are_no_larger_than_the_service_takes() -> None:
    sent: list[list[dict[str, Any]]] = []

    class Logs:
        exceptions = boto3.client(
            "logs", region_name=REGION, aws_access_key_id="a", aws_secret_access_key="b"
        ).exceptions

        def put_log_events(self, logEvents: list[dict[str, Any]], **_: str) -> None:
            sent.append(logEvents)

        def __getattr__(self, name: str) -> Any:
            return lambda **_: {}

    logs = JobLogs("job", logs=Logs(), cloudwatch=None, metrics=Metrics([]))
    for _ in range(12):
        logs.line("algo-1", "x" * 262_118)
    for _ in range(25_000):
        logs.line("algo-1", "")
    logs.close()
    sizes = [(len(some), sum(len(event["message"]) + 26 for event in some)) for some in sent]
    assert sum(count for count, _ in sizes) == 25_012
    assert all(count <= 10_000 and size <= 1_048_576 for count, size in sizes)


def test_a_group_of_version_2_has_its_limits_and_is_looked_at_for_what_they_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the kernel's documents (cgroup-v2.rst): a folder stands in for a hierarchy, which a machine with version 1 lacks."""
    monkeypatch.setattr(control_groups, "_parents", lambda: dict.fromkeys(control_groups.CONTROLLERS, tmp_path))
    mkdir = Path.mkdir

    def with_files(path: Path, *args: Any, **kwargs: Any) -> None:
        mkdir(path, *args, **kwargs)
        for name in ("cgroup.procs", "memory.max"):
            (path / name).touch()

    monkeypatch.setattr(Path, "mkdir", with_files)
    limits = HostLimits(memory=1 << 20, processes=7, disk=1)
    host = ContainerSpec(
        "algo-1", None, "ml.m5.large", 1, "10.0.0.1", 0, tmp_path, tmp_path, tmp_path, {}, (), "/", limits=limits
    )
    group = control_groups.make(PodSpec("job", (host,), None, tmp_path / "jobs" / "job"))["algo-1"]
    [folder] = group.paths
    written = {name: (folder / name).read_text() for name in ("memory.max", "memory.swap.max", "pids.max")}
    assert written == {"memory.max": "1048576", "memory.swap.max": "0", "pids.max": "7"}
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 0\noom_kill 0\noom_group_kill 0\n")
    (folder / "pids.events").write_text("max 0\n")
    assert group.exceeded() is None
    (folder / "pids.events").write_text("max 3\n")
    assert group.exceeded() == "processes"
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\noom_group_kill 0\n")
    assert group.exceeded() == "memory"
