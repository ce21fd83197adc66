"""Why a job has no machines yet: its training plan has not started, or there is no capacity."""

from __future__ import annotations

import re
from collections.abc import Mapping
from time import monotonic
from typing import Any

from .faults import Capacity, Faults, ScheduledPlan
from .plan import groups_of

_ACCELERATED = re.compile(r"ml\.(p|g|trn)\d")


class NoCapacity(Exception):
    """There are no machines, and the job does not wait for any."""


class Pending:
    """What one job waits for, and how long it has waited for capacity.

    By the service model (StoppingCondition.MaxPendingTimeInSeconds): time before the start of the job's plan does not count,
    and the limit "has no effect on jobs that request CPU-only instance types".
    """

    def __init__(self, request: Mapping[str, Any], faults: Faults) -> None:
        self._name: str = request["TrainingJobName"]
        self._plan: str = request["ResourceConfig"].get("TrainingPlanArn", "")
        self._types = [instance_type for _, instance_type, _ in groups_of(request)]
        self._limit: int | None = request["StoppingCondition"].get("MaxPendingTimeInSeconds")
        if not any(map(_ACCELERATED.match, self._types)):
            self._limit = None
        self._faults = faults
        self._looked = monotonic()
        self._waited = 0.0

    def reason(self) -> str | None:
        """What the job waits for now; None where there are machines. Raises NoCapacity where it waits no longer than this."""
        passed, self._looked = monotonic() - self._looked, monotonic()
        if any(fault.plan == self._plan for fault in self._faults.of(ScheduledPlan, job=self._name)):
            return f"Waiting for the start of the training plan {self._plan}"
        for instance_type in self._types:
            if self._faults.take_one(Capacity, job=self._name, instance_type=instance_type):
                if self._limit is None:
                    raise NoCapacity
                self._waited += passed
                return f"Waiting for capacity of {instance_type}"
        return None

    @property
    def over(self) -> bool:
        """Whether the job has waited for capacity as long as MaxPendingTimeInSeconds says."""
        return self._limit is not None and self._waited >= self._limit
