"""What a job has used of machines and what that costs, and what share of a host is in use, from what AWS returns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from training_jobs.client.cost import MachineTime, cost_of, machine_times
from training_jobs.client.utilization import shares

BEGAN = datetime(2026, 1, 31, tzinfo=UTC)
TWO_GPUS = {"InstanceType": "ml.g5.xlarge", "InstanceCount": 2}


def job(**members: Any) -> dict[str, Any]:
    return {"ResourceConfig": TWO_GPUS, "StoppingCondition": {"MaxRuntimeInSeconds": 7_200}, **members}


@pytest.mark.parametrize(
    ("members", "seconds"),
    [
        ({}, 0),
        ({"TrainingStartTime": BEGAN}, 600),
        ({"TrainingStartTime": BEGAN, "TrainingEndTime": BEGAN + timedelta(seconds=60)}, 60),
        ({"TrainingStartTime": BEGAN, "BillableTimeInSeconds": 45}, 45),
        ({"TrainingStartTime": BEGAN + timedelta(hours=1)}, 0),  # by a clock that is behind AWS's
    ],
)
def test_what_is_billed_counts_and_until_it_is_known_the_time_since_the_start(
    members: dict[str, Any], seconds: float
) -> None:
    now = BEGAN + timedelta(seconds=600)
    assert machine_times(job(**members), now) == [MachineTime("ml.g5.xlarge", 2, seconds, 7_200)]


def test_groups_of_the_same_type_count_together() -> None:
    groups = [{"InstanceType": "ml.c5.xlarge", "InstanceCount": 3}, TWO_GPUS, TWO_GPUS]
    times = machine_times(job(ResourceConfig={"InstanceGroups": groups}, BillableTimeInSeconds=1_800))
    assert times == [MachineTime("ml.c5.xlarge", 3, 1_800, 7_200), MachineTime("ml.g5.xlarge", 4, 1_800, 7_200)]
    assert cost_of(times, {"ml.c5.xlarge": 0.2, "ml.g5.xlarge": 1.5}) == (pytest.approx(3.3), pytest.approx(13.2))
    assert cost_of(times, {"ml.g5.xlarge": 1.5}) is None


def test_a_job_without_a_limit_may_run_for_a_day() -> None:
    [time] = machine_times(job(StoppingCondition={}))
    assert time.limit_seconds == 86_400


def test_the_sums_over_a_hosts_cpus_and_gpus_are_shares_of_all_of_them() -> None:
    percent = {
        "CPUUtilization": 9_600.0,
        "GPUUtilization": 400.0,
        "GPUMemoryUtilization": 200.0,
        "MemoryUtilization": 25.0,
        "DiskUtilization": 10.0,
    }
    # 96 vCPUs and 8 GPUs.
    assert shares("ml.p4d.24xlarge", percent) == {
        "cpu": 1.0,
        "gpu": 0.5,
        "gpu_memory": 0.25,
        "memory": 0.25,
        "disk": 0.1,
    }
    assert shares("ml.m5.large", {"CPUUtilization": 50.0}) == {"cpu": 0.25}
