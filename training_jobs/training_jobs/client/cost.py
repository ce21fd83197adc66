"""What a job has used of machines, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True)
class MachineTime:
    """The time of one type of machine.

    Attributes:
        instance_type: Such as ``"ml.g5.xlarge"``.
        count: How many of them.
        seconds: Billed so far, of each: training with download and upload, without the wait for the machines.
        limit_seconds: Billed at most, of each: the job's ``max_runtime``.
    """

    instance_type: str
    count: int
    seconds: float
    limit_seconds: float


def machine_times(description: Mapping[str, Any], now: datetime | None = None) -> list[MachineTime]:
    """Return what a job has used, by type of machine.

    BillableTimeInSeconds "by the number of instances" is what is billed (API, DescribeTrainingJob); until a job has it, the time
    since TrainingStartTime stands for it.

    Args:
        description: The job, as from DescribeTrainingJob.
        now: The time until which a running job is counted. Default: now.
    """
    seconds = description.get("BillableTimeInSeconds")
    if seconds is None:
        start = description.get("TrainingStartTime")
        end = description.get("TrainingEndTime") or now or datetime.now(UTC)
        seconds = 0.0 if start is None else max((end - start).total_seconds(), 0.0)
    limit = float(description.get("StoppingCondition", {}).get("MaxRuntimeInSeconds") or 86_400)
    resources = description["ResourceConfig"]
    counts: dict[str, int] = {}
    for group in resources.get("InstanceGroups") or [resources]:
        kind = group.get("InstanceType", "")
        counts[kind] = counts.get(kind, 0) + group.get("InstanceCount", 1)
    return [MachineTime(kind, count, float(seconds), limit) for kind, count in counts.items()]


def cost_of(times: list[MachineTime], prices: Mapping[str, float]) -> tuple[float, float] | None:
    """Return dollars so far, and at most.

    Args:
        times: The machines' times.
        prices: Dollars an hour of one machine of a type, as of AWS's page "Amazon SageMaker AI pricing".

    Returns:
        Both; None where the price of a type is missing.
    """
    if any(time.instance_type not in prices for time in times):
        return None
    hourly = [(prices[time.instance_type] * time.count / 3600, time) for time in times]
    return sum(rate * time.seconds for rate, time in hourly), sum(rate * time.limit_seconds for rate, time in hourly)
