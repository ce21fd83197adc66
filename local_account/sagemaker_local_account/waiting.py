"""Why a job has no machines yet: its training plan has not started, or there is no capacity."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

from .faults import Capacity, Faults, ScheduledPlan
from .plan import groups_of, preferences_of

_ACCELERATED = re.compile(r"ml\.(p|g|trn)\d")


class NoCapacity(Exception):
    """There are no machines, and the job does not wait for any."""


class Pending:
    """What one job waits for, how long it has waited for capacity, and which of its InstancePreferences it gets.

    By the service model (StoppingCondition.MaxPendingTimeInSeconds): time before the start of the job's plan does not count,
    and the limit "has no effect on jobs that request CPU-only instance types". SageMaker "launches the training job on the first
    instance type in the list that has available capacity" (ResourceConfig.InstancePreferences), for all of which together the
    limit holds; one whose plan has not started has none.
    """

    def __init__(self, request: Mapping[str, Any], faults: Faults) -> None:
        self._name: str = request["TrainingJobName"]
        resources = request["ResourceConfig"]
        self._preferences = [] if resources.get("SelectedInstanceType") else preferences_of(request)
        of_all = resources.get("TrainingPlanArn", "")
        plans = [one.get("TrainingPlanArns") or [of_all] for one in resources.get("InstancePreferences", [])]
        types = [instance_type for _, instance_type, _ in groups_of(request)]
        # What has to be had together, and the plan that reserves it.
        self._choices = [(types, of_all)]
        if self._preferences:
            self._choices = [([name], plan) for (name, _), [plan] in zip(self._preferences, plans, strict=True)]
        self._limit: int | None = request["StoppingCondition"].get("MaxPendingTimeInSeconds")
        if not any(_ACCELERATED.match(name) for names, _ in self._choices for name in names):
            self._limit = None
        self._faults = faults
        self._looked = monotonic()
        self._waited = 0.0
        self.selected: tuple[str, int] | None = None

    def reason(self) -> str | None:
        """What the job waits for now; None where there are machines. Raises NoCapacity where it waits no longer than this."""
        passed, self._looked = monotonic() - self._looked, monotonic()
        scheduled = lacking = None
        for number, (types, plan) in enumerate(self._choices):
            if any(fault.plan == plan for fault in self._faults.of(ScheduledPlan, job=self._name)):
                scheduled = scheduled or plan
            elif (lacking := self._lacking(types)) is None:
                if self._preferences:
                    self.selected = self._preferences[number]
                return None
        if scheduled is not None:
            return f"Waiting for the start of the training plan {scheduled}"
        if self._limit is None:
            raise NoCapacity
        self._waited += passed
        return f"Waiting for capacity of {lacking}"

    def _lacking(self, types: Sequence[str]) -> str | None:
        """The first of these types that there is no capacity of."""
        taken = (name for name in types if self._faults.take_one(Capacity, job=self._name, instance_type=name))
        return next(taken, None)

    @property
    def over(self) -> bool:
        """Whether the job has waited for capacity as long as MaxPendingTimeInSeconds says."""
        return self._limit is not None and self._waited >= self._limit
