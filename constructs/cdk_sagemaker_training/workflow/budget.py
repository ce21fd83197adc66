"""The time, or the money, that all attempts of an execution may take together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cdk_sagemaker_training.core.checks import seconds_of
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.facts.instance_types import check_training_instance_type
from cdk_sagemaker_training.jobs.instance_group import machines_of
from cdk_sagemaker_training.props.prop import LITERAL, Prop, kind
from cdk_sagemaker_training.props.prop_types import check_fields
from cdk_sagemaker_training.workflow.notifying import BUDGET_NEARLY_USED, put_event

if TYPE_CHECKING:
    from aws_cdk import Duration


@kind("Budget(hours=48)")
@dataclass(frozen=True)
class Budget:
    """What all attempts of an execution may take together: hours for which jobs run, or dollars that they cost.

    An attempt runs at most for what is left. What counts is BillableTimeInSeconds, by which AWS bills each machine of a job (API,
    DescribeTrainingJob): a spot job's is less than the time that it runs. The 120 seconds in which a stopped job saves its
    checkpoints, and its upload, come on top (API, StoppingCondition).

    Args:
        hours: Hours for which jobs run, whatever the number of machines. None: no limit but ``dollars``.
        dollars: Dollars that the machines cost. None: no limit but ``hours``.
        prices: Dollars of an hour of one machine, by type, as of AWS's page "Amazon SageMaker AI pricing" for the region.
            ``dollars`` needs the price of each type; of several, in ``InstancePreference`` or alternatives, the dearest counts.
        least: No attempt begins with less than this left, a Duration or in seconds.
        nearly_used: The share of the budget, between 0 and 1, that makes an event for the topics of ``notify`` once attempts
            have used it and another begins. What the attempt that runs has used so far is not known.

    Raises:
        ValueError: There is neither limit, a number is not above 0, ``nearly_used`` is not below 1, or ``dollars`` has no
            ``prices``.
    """

    hours: Annotated[float | None, Prop(known=LITERAL, example="48")] = None
    dollars: Annotated[float | None, Prop(known=LITERAL, example="500")] = None
    prices: Annotated[Mapping[str, float] | None, Prop(known=LITERAL, example="{'ml.g5.xlarge': 1.41}")] = None
    least: Annotated[Duration | int, Prop(known=LITERAL, example="600")] = 600
    nearly_used: Annotated[float, LITERAL] = 0.8

    def __post_init__(self) -> None:
        check_fields(self)
        if self.hours is None and self.dollars is None:
            raise ValueError(f"hours of a Budget must be set unless dollars is, like Budget(hours=24), got {self!r}")
        if self.dollars is not None and not self.prices:
            raise ValueError(
                f"prices must be set where dollars is, like {{'ml.g5.xlarge': 1.41}}, got {self.prices!r} with {self.dollars}"
            )
        numbers = {"hours": self.hours, "dollars": self.dollars, "least": seconds_of("least", self.least)}
        numbers |= {f"prices[{name!r}]": price for name, price in (self.prices or {}).items()}
        for name in self.prices or {}:
            check_training_instance_type(name, "prices")
        if not 0 < self.nearly_used < 1:
            raise ValueError(f"nearly_used must be a share between 0 and 1, like 0.8, got {self.nearly_used}")
        for name, number in numbers.items():
            if number is not None and number <= 0:
                raise ValueError(f"{name} must be a number above 0, like 24, got {number}")

    def seconds(self, requests: Sequence[Mapping[str, Any]]) -> int:
        """Return the seconds for which jobs may run.

        Args:
            requests: The rendered requests of the jobs that may run.

        Raises:
            ValueError: A type has no price, a type or count is known to the execution only, or less than ``least`` results.
        """
        limits = [] if self.hours is None else [self.hours * 3_600]
        if self.dollars is not None:
            limits.append(self.dollars / max(self._hourly(one["ResourceConfig"]) for one in requests) * 3_600)
        seconds, least = int(min(limits)), seconds_of("least", self.least)
        if seconds < least:
            raise ValueError(
                f"budget must be at least one attempt of {least} seconds, like Budget(hours=24), got {seconds} seconds "
                f"of {self!r}"
            )
        return seconds

    def _hourly(self, config: Mapping[str, Any]) -> float:
        """Dollars of an hour of a job's machines; of several types the dearest."""
        prices = [self._price(group) for group in machines_of(config)]
        return max(prices) if config.get("InstancePreferences") else sum(prices)

    def _price(self, group: Mapping[str, Any]) -> float:
        kind, count = group.get("InstanceType"), group.get("InstanceCount")
        if kind is None or count is None or is_unresolved(kind) or is_unresolved(count):
            raise ValueError(
                "dollars must be left out where an execution's input has the machines, like Budget(hours=24), "
                f"got {self.dollars}"
            )
        if kind not in (self.prices or {}):
            raise ValueError(f"prices must have each type of the job, like {{{kind!r}: 1.41}}, got {self.prices!r}")
        return float((self.prices or {})[kind]) * int(count)


class BudgetStates:
    """The states that count what attempts take, and begin none that the budget has no room for.

    What is left is in `$.Training.Budget`, and in ``Budget`` of the execution's output: ``SecondsLeft``.
    """

    def __init__(
        self,
        budget: Budget,
        requests: Sequence[Mapping[str, Any]],
        max_runtime: int,
        own: str,
        event_partition: str | None = None,
    ) -> None:
        """Prepare the states.

        Args:
            budget: The budget.
            requests: The rendered requests of the jobs that may run.
            max_runtime: The most seconds that a job runs.
            own: JSONPath of the workflow's own data.
            event_partition: Partition of the event bus that gets an event once the budget is nearly used; None for none.

        Raises:
            ValueError: The budget is less than an attempt's least, or its machines have no price.
        """
        self._seconds = budget.seconds(requests)
        self._least = seconds_of("least", budget.least)
        self._longest = max_runtime
        self._nearly = int(self._seconds * (1 - budget.nearly_used))
        self._event_partition = event_partition
        self._own, self._budget, self._warned = own, f"{own}.Budget", f"{own}.Warned"

    def first(self) -> dict[str, Any]:
        """Return the member of the workflow's own data with which an execution begins."""
        budget = {"Budget": {"SecondsLeft": self._seconds, "Limit": min(self._seconds, self._longest)}}
        return {**budget, "Warned": False} if self._event_partition else budget

    def kept(self) -> dict[str, Any]:
        """Return the member with which another state keeps it."""
        budget = {"Budget.$": self._budget}
        return {**budget, "Warned.$": self._warned} if self._event_partition else budget

    def limited(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return a request whose job runs at most for what is left.

        Args:
            request: The rendered request.
        """
        condition = {
            name: value for name, value in request["StoppingCondition"].items() if name != "MaxRuntimeInSeconds"
        }
        return {**request, "StoppingCondition": {**condition, "MaxRuntimeInSeconds.$": f"{self._budget}.Limit"}}

    def taking(self, following: str, of: str = "") -> dict[str, Any]:
        """Return the states from `WhatIsBilled`, which take from the budget what the described job is billed for.

        Args:
            following: The state after them.
            of: What their names end with, where there are several.
        """
        job = f"{self._own}.Job"
        billed = {f"TakeBilled{of}": "BillableTimeInSeconds", f"TakeTrained{of}": "TrainingTimeInSeconds"}
        return {
            f"WhatIsBilled{of}": {
                "Type": "Choice",
                "Choices": [
                    {"Variable": f"{job}.{member}", "IsPresent": True, "Next": name} for name, member in billed.items()
                ],
                "Default": following,
            },
            **{name: self._taken(f"{job}.{member}", following) for name, member in billed.items()},
        }

    def states(self, ends: Sequence[Mapping[str, Any]], stopped: Mapping[str, Any]) -> dict[str, Any]:
        """Return the states from `WhatIsBilled`, which follows on a job's end.

        Args:
            ends: The rules of a Choice that follow on a job's end.
            stopped: The condition that the job was stopped.
        """
        job, left = f"{self._own}.Job", f"{self._budget}.SecondsLeft"
        out_of_time = [
            stopped,
            {"Variable": f"{job}.SecondaryStatus", "StringEquals": "MaxRuntimeExceeded"},
            {"Variable": f"{self._budget}.Limit", "NumericLessThan": self._longest},
            self._too_little,
        ]
        return {
            **self.taking("BudgetLeft"),
            "BudgetLeft": {
                "Type": "Pass",
                "InputPath": self._budget,
                "ResultPath": f"{job}.Budget",
                "Next": "HowItEnded",
            },
            "HowItEnded": {
                "Type": "Choice",
                "Choices": [{"And": out_of_time, "Next": "BudgetUsed"}, *ends],
                "Default": "Stopped",
            },
            "BudgetUsed": {
                "Type": "Fail",
                "Error": "TrainingBudgetUsed",
                "CausePath": (
                    f"States.Format('{{}}: the budget of {self._seconds} seconds is used up: {{}} are left, and an attempt needs "
                    f"{self._least}', {self._own}.JobName, {left})"
                ),
            },
        }

    def before_attempt(self) -> dict[str, Any]:
        """Return the states from `IsBudgetLeft`, which precedes another attempt."""
        left = f"{self._budget}.SecondsLeft"
        return {
            "IsBudgetLeft": {
                "Type": "Choice",
                "Choices": [
                    {**self._too_little, "Next": "BudgetUsed"},
                    *self._is_nearly_used(left),
                    {"Variable": left, "NumericLessThan": self._longest, "Next": "LimitToBudget"},
                ],
                "Default": "NextAttempt",
            },
            **self._telling(left),
            "LimitToBudget": {
                "Type": "Pass",
                "Parameters": {"SecondsLeft.$": left, "Limit.$": left},
                "ResultPath": self._budget,
                "Next": "NextAttempt",
            },
        }

    @property
    def _too_little(self) -> dict[str, Any]:
        return {"Variable": f"{self._budget}.SecondsLeft", "NumericLessThan": self._least}

    def _is_nearly_used(self, left: str) -> list[dict[str, Any]]:
        if not self._event_partition:
            return []
        # It is true or false until the event is put, of which it is the answer then.
        first = {"Variable": self._warned, "IsBoolean": True}
        return [{"And": [{"Variable": left, "NumericLessThan": self._nearly}, first], "Next": "TellBudget"}]

    def _telling(self, left: str) -> dict[str, Any]:
        if not self._event_partition:
            return {}
        detail = {
            "Execution.$": "$$.Execution.Id",
            "JobName.$": f"{self._own}.JobName",
            "Attempt.$": f"{self._own}.Attempt",
            "SecondsLeft.$": left,
            "Seconds": self._seconds,
        }
        event = put_event(self._event_partition, BUDGET_NEARLY_USED, detail, self._own, "IsBudgetLeft")
        event["ResultPath"] = event["Catch"][0]["ResultPath"] = self._warned
        return {"TellBudget": event}

    def _taken(self, seconds: str, following: str) -> dict[str, Any]:
        """A state that takes seconds from the budget. There is no subtraction: the text of a negative number is made one."""
        negative = f"States.StringToJson(States.Format('-{{}}', {seconds}))"
        return {
            "Type": "Pass",
            "Parameters": {
                "SecondsLeft.$": f"States.MathAdd({self._budget}.SecondsLeft, {negative})",
                "Limit.$": f"{self._budget}.Limit",
            },
            "ResultPath": self._budget,
            "Next": following,
        }
