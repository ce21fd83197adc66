"""The time, or the money, that all attempts of an execution may take together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from cdk_sagemaker_training.core.checks import seconds_of
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.facts.instance_types import check_training_instance_type
from cdk_sagemaker_training.jobs.instance_group import machines_of
from cdk_sagemaker_training.lifecycle.attempt import Attempt, Seam
from cdk_sagemaker_training.lifecycle.feature import Feature
from cdk_sagemaker_training.lifecycle.states import DATA, fail, status_is
from cdk_sagemaker_training.props.prop import LITERAL, Prop, kind
from cdk_sagemaker_training.props.prop_types import Value, check_fields

if TYPE_CHECKING:
    from aws_cdk import Duration

    from cdk_sagemaker_training.lifecycle.plan import Plan

NEARLY_USED = "Training Budget Nearly Used"  # the event's detail type
BUDGETS_NEARLY_USED = "BudgetsNearlyUsed"  # the metric
_BUDGET, _WARNED = f"{DATA}.Budget", f"{DATA}.Warned"
_LEFT = f"{_BUDGET}.SecondsLeft"


@kind("Budget(hours=48)")
@dataclass(frozen=True)
class Budget(Value, Feature):
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

    prop: ClassVar[str] = "budget"
    bounds_runs: ClassVar[bool] = True

    hours: Annotated[float | None, Prop(known=LITERAL, example="48")] = None
    dollars: Annotated[float | None, Prop(known=LITERAL, example="500")] = None
    prices: Annotated[Mapping[str, float] | None, Prop(known=LITERAL, example="{'ml.g5.xlarge': 1.41}")] = None
    least: Annotated[Duration | int, Prop(known=LITERAL, example="600")] = 600
    nearly_used: Annotated[float, LITERAL] = 0.8

    def __post_init__(self) -> None:
        check_fields(self)
        if self.hours is None and self.dollars is None:
            raise must("hours of a Budget", "be set unless dollars is", "Budget(hours=24)", repr(self))
        if self.dollars is not None and not self.prices:
            raise must(
                "prices", "be set where dollars is", "{'ml.g5.xlarge': 1.41}", f"{self.prices!r} with {self.dollars}"
            )
        numbers = {"hours": self.hours, "dollars": self.dollars, "least": seconds_of("least", self.least)}
        numbers |= {f"prices[{name!r}]": price for name, price in (self.prices or {}).items()}
        for name in self.prices or {}:
            check_training_instance_type(name, "prices")
        if not 0 < self.nearly_used < 1:
            raise must("nearly_used", "be a share between 0 and 1", "0.8", f"{self.nearly_used}")
        for name, number in numbers.items():
            if number is not None and number <= 0:
                raise must(name, "be a number above 0", "24", f"{number}")

    def seconds(self, requests: Sequence[Mapping[str, Any]]) -> int:
        """Return the seconds for which jobs may run.

        Args:
            requests: The rendered requests of the jobs that may run.

        Raises:
            ValueError: A type has no price, a type or count is known to the execution only, or less than ``least`` results.
        """
        limits = [] if self.hours is None else [self.hours * 3_600]
        if self.dollars is not None:
            limits.append(self.dollars / max(self._hourly(request["ResourceConfig"]) for request in requests) * 3_600)
        seconds, least = int(min(limits)), seconds_of("least", self.least)
        if seconds < least:
            rule = f"be at least one attempt of {least} seconds"
            raise must("budget", rule, "Budget(hours=24)", f"{seconds} seconds of {self!r}")
        return seconds

    def _hourly(self, config: Mapping[str, Any]) -> float:
        """Dollars of an hour of a job's machines; of several types the dearest."""
        prices = [self._price(group) for group in machines_of(config)]
        return max(prices) if config.get("InstancePreferences") else sum(prices)

    def _price(self, group: Mapping[str, Any]) -> float:
        kind, count = group.get("InstanceType"), group.get("InstanceCount")
        if kind is None or count is None or is_unresolved(kind) or is_unresolved(count):
            rule = "be left out where an execution's input has the machines"
            raise must("dollars", rule, "Budget(hours=24)", f"{self.dollars}")
        if kind not in (self.prices or {}):
            raise must("prices", "have each type of the job", f"{{{kind!r}: 1.41}}", repr(self.prices))
        return float((self.prices or {})[kind]) * int(count)

    def events(self) -> Mapping[str, str]:
        """Return that of a budget that is nearly used."""
        return {"Budget": NEARLY_USED}

    def check(self, plan: Plan) -> None:
        """Check that it has room for an attempt of the one job.

        Raises:
            ValueError: The job makes several requests, how long one runs is not known, or what ``seconds`` raises.
        """
        if len(plan.requests) > 1:
            rule, got = "be left out of a job that makes several requests", f"{len(plan.requests)} of job with {self!r}"
            raise must("budget", rule, "one compiled ahead of time", got)
        if is_unresolved(plan.jobs.max_runtime_seconds):
            raise must("max_runtime", "be known at synth where a budget is given", "Duration.hours(6)", "a token")
        self.seconds(plan.all_requests)

    def data(self, plan: Plan) -> Mapping[str, Any]:
        """Return what is left, and the limit of the next attempt; ``Warned`` until the event has been put."""
        seconds = self.seconds(plan.all_requests)
        left = {"SecondsLeft": seconds, "Limit": min(seconds, plan.jobs.max_runtime_seconds)}
        return {"Budget": left, **({"Warned": False} if plan.notifies else {})}

    def request(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a request whose job runs at most for what is left."""
        condition = {
            name: value for name, value in request["StoppingCondition"].items() if name != "MaxRuntimeInSeconds"
        }
        return {**request, "StoppingCondition": {**condition, "MaxRuntimeInSeconds.$": f"{_BUDGET}.Limit"}}

    def billed(self, following: str, of: str = "") -> Mapping[str, Any]:
        """Return the states that subtract from the budget what the described job is billed for."""
        job = f"{DATA}.Job"
        members = {f"TakeBilled{of}": "BillableTimeInSeconds", f"TakeTrained{of}": "TrainingTimeInSeconds"}
        return {
            f"WhatIsBilled{of}": {
                "Type": "Choice",
                "Choices": [
                    {"Variable": f"{job}.{member}", "IsPresent": True, "Next": name} for name, member in members.items()
                ],
                "Default": following,
            },
            **{name: _subtracted(f"{job}.{member}", following) for name, member in members.items()},
        }

    def states(self, attempt: Attempt) -> None:
        """Count what jobs were billed for, and begin no attempt that the budget has no room for."""
        least, longest = seconds_of("least", self.least), attempt.plan.jobs.max_runtime_seconds
        too_little = {"Variable": _LEFT, "NumericLessThan": least}
        out_of_time = [
            status_is("Stopped"),
            {"Variable": f"{DATA}.Job.SecondaryStatus", "StringEquals": "MaxRuntimeExceeded"},
            {"Variable": f"{_BUDGET}.Limit", "NumericLessThan": longest},
            too_little,
        ]
        attempt.ends("Any", {"And": out_of_time, "Next": "BudgetUsed"})
        left = {"Type": "Pass", "InputPath": _BUDGET, "ResultPath": f"{DATA}.Job.Budget", "Next": Seam.OVER}
        attempt.before(Seam.OVER, "WhatIsBilled", {**self.billed("BudgetLeft"), "BudgetLeft": left})
        seconds = self.seconds(attempt.plan.all_requests)
        attempt.states["BudgetUsed"] = fail(
            "TrainingBudgetUsed",
            f"{{}}: the budget of {seconds} seconds is used up: {{}} are left, and an attempt needs {least}",
            "Budget.SecondsLeft",
        )
        attempt.before(
            Seam.AGAIN,
            "IsBudgetLeft",
            {
                "IsBudgetLeft": {
                    "Type": "Choice",
                    "Choices": [
                        {**too_little, "Next": "BudgetUsed"},
                        *self._nearly_used(attempt, seconds),
                        {"Variable": _LEFT, "NumericLessThan": longest, "Next": "LimitToBudget"},
                    ],
                    "Default": Seam.AGAIN,
                },
                "LimitToBudget": {
                    "Type": "Pass",
                    "Parameters": {"SecondsLeft.$": _LEFT, "Limit.$": _LEFT},
                    "ResultPath": _BUDGET,
                    "Next": Seam.AGAIN,
                },
            },
        )

    def _nearly_used(self, attempt: Attempt, seconds: int) -> Iterator[dict[str, Any]]:
        """Yield the rule that leads to the event, where events are wanted."""
        detail = {"SecondsLeft.$": _LEFT, "Seconds": seconds}
        name = attempt.event("TellBudget", NEARLY_USED, detail, "IsBudgetLeft", result=_WARNED)
        if name == "TellBudget":
            nearly = {"Variable": _LEFT, "NumericLessThan": int(seconds * (1 - self.nearly_used))}
            # It is true or false until the event is put, of which it is the answer then.
            first = {"Variable": _WARNED, "IsBoolean": True}
            yield {"And": [nearly, first], "Next": attempt.counts(name, BUDGETS_NEARLY_USED, id="CountBudget")}


def _subtracted(seconds: str, following: str) -> dict[str, Any]:
    """A state that subtracts seconds from the budget: the text of a negative number is made one, and added."""
    negative = f"States.StringToJson(States.Format('-{{}}', {seconds}))"
    return {
        "Type": "Pass",
        "Parameters": {
            "SecondsLeft.$": f"States.MathAdd({_LEFT}, {negative})",
            "Limit.$": f"{_BUDGET}.Limit",
        },
        "ResultPath": _BUDGET,
        "Next": following,
    }
