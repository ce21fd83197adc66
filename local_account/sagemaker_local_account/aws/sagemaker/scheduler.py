"""The machines of a training job: its instance groups and preferences, and its wait for a training plan or capacity."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sagemaker_local_account.core.clock import CLOCK
from sagemaker_local_account.faults import Capacity, Faults, ScheduledPlan

_ACCELERATED = re.compile(r"ml\.(p|g|trn)\d")


def groups_of(request: Mapping[str, Any]) -> list[tuple[str | None, str, int]]:
    """Returns the name, instance type and count of each instance group; without InstanceGroups one group named None.

    Of a job with InstancePreferences it is the selected instance type, or the first one until one is selected.
    """
    resources = request["ResourceConfig"]
    if resources.get("InstanceGroups"):
        return [
            (group["InstanceGroupName"], group["InstanceType"], group["InstanceCount"])
            for group in resources["InstanceGroups"]
        ]
    if resources.get("InstancePreferences"):
        selected = resources.get("SelectedInstanceType"), resources.get("SelectedInstanceCount")
        return [(None, *(selected if selected[0] else preferences_of(request)[0]))]
    return [(None, resources["InstanceType"], resources["InstanceCount"])]


def preferences_of(request: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Returns the instance type and count of each of InstancePreferences, in their order."""
    resources = request["ResourceConfig"]
    return [
        (one["InstanceType"], one.get("InstanceCount") or resources.get("InstanceCount"))
        for one in resources.get("InstancePreferences") or []
    ]


class NoCapacity(Exception):
    """There is no capacity, and the job has no MaxPendingTimeInSeconds to wait for it."""


class CapacityWait:
    """A pending job's wait for its training plan or for capacity.

    By the service model (StoppingCondition.MaxPendingTimeInSeconds): time before the start of the job's plan does not count,
    and the limit "has no effect on jobs that request CPU-only instance types". SageMaker "launches the training job on the first
    instance type in the list that has available capacity" (ResourceConfig.InstancePreferences); the limit applies to all of them
    together, and a plan that has not started has no capacity.

    ``selected`` is the selected instance type and count of a job with InstancePreferences, None until then.
    """

    def __init__(self, request: Mapping[str, Any], faults: Faults) -> None:
        self._name: str = request["TrainingJobName"]
        resources = request["ResourceConfig"]
        self._preferences = [] if resources.get("SelectedInstanceType") else preferences_of(request)
        of_all = resources.get("TrainingPlanArn", "")
        plans = [one.get("TrainingPlanArns") or [of_all] for one in resources.get("InstancePreferences", [])]
        types = [instance_type for _, instance_type, _ in groups_of(request)]
        # The instance types that are needed together, and the training plan that reserves them.
        self._choices = [(types, of_all)]
        if self._preferences:
            self._choices = [([name], plan) for (name, _), [plan] in zip(self._preferences, plans, strict=True)]
        self._limit: int | None = request["StoppingCondition"].get("MaxPendingTimeInSeconds")
        if not any(_ACCELERATED.match(name) for names, _ in self._choices for name in names):
            self._limit = None
        self._faults = faults
        self._checked = CLOCK.monotonic()
        self._waited = 0.0
        self.selected: tuple[str, int] | None = None

    def reason(self) -> str | None:
        """Returns what the job waits for, or None where it can start.

        Raises:
            NoCapacity: there is no capacity, and the job does not wait for it.
        """
        now = CLOCK.monotonic()
        passed, self._checked = now - self._checked, now
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
        """The first of the instance types without capacity."""
        taken = (name for name in types if self._faults.consume_first(Capacity, job=self._name, instance_type=name))
        return next(taken, None)

    @property
    def over(self) -> bool:
        """Whether the job has waited for capacity for MaxPendingTimeInSeconds."""
        return self._limit is not None and self._waited >= self._limit
