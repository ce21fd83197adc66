"""Rules that stop a training job which makes no progress, and the function that checks them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from aws_cdk import CfnResource, Stack
from aws_cdk import aws_iam as iam

from cdk_sagemaker_training.core.checks import not_empty, seconds_of
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.lifecycle.attempt import FAILED_ATTEMPTS, Attempt
from cdk_sagemaker_training.lifecycle.causes import Cause
from cdk_sagemaker_training.lifecycle.feature import Feature
from cdk_sagemaker_training.lifecycle.polling import Watch
from cdk_sagemaker_training.lifecycle.states import DATA, fail, status_is
from cdk_sagemaker_training.props.prop import LITERAL, Prop, kind
from cdk_sagemaker_training.props.prop_types import Value, check_fields
from cdk_sagemaker_training.resources.handler_function import stack_function

if TYPE_CHECKING:
    from aws_cdk import Duration

    from cdk_sagemaker_training.lifecycle.plan import Plan

_FUNCTION_ID = "SageMakerTrainingRulesHandler"
_WHY = "the log streams of jobs are named after them, their log group is that of all training jobs, and metrics have no resource"
_LOG_GROUP = "/aws/sagemaker/TrainingJobs"
_LEAST_SILENCE = 3_600
_LEAST_PATIENCE = 600
_MOST_READINGS = 10
_MOST_LIMITS = 5
# How what a silent job is stopped for begins.
SILENT = "no host has logged a line for"


_METRIC = Prop(known=LITERAL, rule=not_empty, example="'loss'")


@kind("Silence(Duration.hours(2))")
@dataclass(frozen=True)
class Silence(Value):
    """Stops a job of which no host has logged a line for a time, as one that hangs.

    Args:
        after: The time without a line, a Duration or in seconds, at least an hour: CloudWatch Logs' lastIngestionTime "typically
            updates in less than an hour after ingestion" (API, LogStream). The first 50 hosts count.

    Raises:
        ValueError: The time is shorter.
    """

    after: Annotated[Duration | int, Prop(known=LITERAL, example="Duration.hours(2)")] = 7_200

    def __post_init__(self) -> None:
        check_fields(self)
        if seconds_of("after", self.after) < _LEAST_SILENCE:
            rule = f"be at least {_LEAST_SILENCE} seconds, since CloudWatch Logs may know of a line as late"
            raise must("after", rule, "Duration.hours(2)", f"{seconds_of('after', self.after)} seconds")

    def rendered(self) -> dict[str, Any]:
        """Return the rule as the function takes it."""
        seconds = seconds_of("after", self.after)
        return {"Kind": "Silence", "Seconds": seconds, "Because": f"{SILENT} {seconds} seconds"}


@kind("MetricLimit('loss', above=10.0, readings=3)")
@dataclass(frozen=True)
class MetricLimit(Value):
    """Stops a job of which a metric is out of bounds, such as a loss that diverges.

    CloudWatch takes no NaN and no infinity (API, MetricDatum), so a metric that is NaN has no readings: ``Silence`` does not see
    it, and a script had better fail.

    Args:
        metric: A name in ``metric_definitions``.
        above: Readings above this are out of bounds; None for no such bound.
        below: Readings below this are out of bounds; None for no such bound.
        readings: How many readings in a row must be, 1 to 10. A reading is the average of five minutes; those of the last day
            count.

    Raises:
        ValueError: There is no bound, or a number is out of its range.
    """

    metric: Annotated[str, _METRIC]
    above: Annotated[float | None, Prop(known=LITERAL, example="10.0")] = None
    below: Annotated[float | None, Prop(known=LITERAL, example="0.0")] = None
    readings: Annotated[int, Prop(known=LITERAL, example="3")] = 1

    def __post_init__(self) -> None:
        check_fields(self)
        if self.above is None and self.below is None:
            raise must("above", "be set unless below is", "10.0", f"{self.above!r} and {self.below!r}")
        if not 1 <= self.readings <= _MOST_READINGS:
            raise must("readings", f"be a number from 1 to {_MOST_READINGS}", "3", f"{self.readings}")

    def rendered(self) -> dict[str, Any]:
        """Return the rule as the function takes it."""
        given = {"Above": self.above, "Below": self.below}
        bounds = {name: bound for name, bound in given.items() if bound is not None}
        out = " or ".join(f"{name.lower()} {bound:g}" for name, bound in bounds.items())
        because = f"{self.metric} was {out} in {self.readings} readings"
        return {
            "Kind": "MetricLimit", "Metric": self.metric, **bounds, "Readings": self.readings, "Because": because}  # fmt: skip


@kind("Plateau('loss', patience=Duration.hours(1), min_delta=0.01)")
@dataclass(frozen=True)
class Plateau(Value):
    """Stops a job of which a metric has not improved for a time, such as a loss that falls no more, or is NaN.

    CloudWatch takes no NaN and no infinity (API, MetricDatum), so a metric that is NaN has no new readings, and does not improve.

    Args:
        metric: A name in ``metric_definitions``.
        patience: The time without an improvement, a Duration or in seconds, at least 10 minutes. It is counted while the job
            trains, before the first reading too.
        min_delta: By how much a reading must be better than the best before it. A reading is the average of five minutes.
        mode: Whether lower readings are better, ``"min"``, or higher, ``"max"``.

    Raises:
        ValueError: A number is out of its range.
    """

    metric: Annotated[str, _METRIC]
    patience: Annotated[Duration | int, LITERAL] = 3_600
    min_delta: Annotated[float, LITERAL] = 0.0
    mode: Annotated[Literal["min", "max"], LITERAL] = "min"

    def __post_init__(self) -> None:
        check_fields(self)
        if seconds_of("patience", self.patience) < _LEAST_PATIENCE:
            rule = f"be at least {_LEAST_PATIENCE} seconds, in which there are two readings"
            raise must("patience", rule, "Duration.hours(1)", f"{seconds_of('patience', self.patience)} seconds")
        if self.min_delta < 0:
            raise must("min_delta", "be a number of at least 0", "0.01", f"{self.min_delta}")

    def rendered(self) -> dict[str, Any]:
        """Return the rule as the function takes it."""
        seconds, by = seconds_of("patience", self.patience), f" by {self.min_delta:g}" if self.min_delta else ""
        return {
            "Kind": "Plateau",
            "Metric": self.metric,
            "Mode": self.mode,
            "MinDelta": self.min_delta,
            "Seconds": seconds,
            "Because": f"{self.metric} has not improved{by} for {seconds} seconds",
        }


StopRule = Silence | MetricLimit | Plateau


class StopWhen(Feature):
    """Stops a job by rules, which the poller checks."""

    prop = "stop_when"
    not_queued = "a service job has no status that rules read"

    def __init__(self, rules: Sequence[StopRule]) -> None:
        """Remember the prop ``stop_when``, at least one rule."""
        self.rules = rules
        self.stops_for = {Cause.SILENT} if any(isinstance(rule, Silence) for rule in rules) else ()

    def __repr__(self) -> str:
        """The prop."""
        return repr(list(self.rules))

    def check(self, plan: Plan) -> None:
        """Check the rules against the job's metrics and its longest time, and that look-ups do not cost too much."""
        metrics, max_runtime = plan.props.get("metric_definitions") or {}, plan.jobs.max_runtime_seconds
        of_metrics = [rule for rule in self.rules if isinstance(rule, MetricLimit | Plateau)]
        for rule in self.rules:
            seconds = rule.rendered().get("Seconds", 0)
            if not is_unresolved(max_runtime) and seconds >= max_runtime:
                raise must(
                    f"{'after' if isinstance(rule, Silence) else 'patience'} of a {type(rule).__name__}",
                    f"be less than max_runtime, {max_runtime} seconds, at which the job ends anyway",
                    "Duration.hours(2) with max_runtime=Duration.days(1)",
                    f"{seconds} seconds",
                )
        for of_metric in of_metrics:
            if of_metric.metric not in metrics:
                prop, got = f"metric of a {type(of_metric).__name__}", f"{of_metric.metric!r} of {sorted(metrics)}"
                raise must(prop, "be a name in metric_definitions", "{'loss': 'loss=([0-9.]+)'}", got)
        if len(of_metrics) > _MOST_LIMITS or len(self.rules) - len(of_metrics) > 1:
            rule_of_all = f"be at most one Silence and {_MOST_LIMITS} rules of metrics"
            raise must("stop_when", rule_of_all, "[Silence(Duration.hours(2))]", repr(self))

    def watch(self) -> Watch:
        """Return the rules, and the function that checks jobs against them."""
        return Watch([rule.rendered() for rule in self.rules], _function)

    def states(self, attempt: Attempt) -> None:
        """Add what follows on a job that the poller stopped."""
        because = f"{DATA}.Polled.Because"
        stopped = [status_is("Stopped"), {"Not": {"Variable": because, "StringEquals": ""}}]
        silent = {"Variable": because, "StringMatches": f"{SILENT}*"}
        for followed in attempt.following(Cause.SILENT):
            attempt.ends("Stopped", {"And": [*stopped, silent, followed.left], "Next": followed.first})
        seam = attempt.counts("StoppedByRule", FAILED_ATTEMPTS, str(Cause.STOPPED))
        attempt.ends("Stopped", {"And": stopped, "Next": seam})
        attempt.states["StoppedByRule"] = fail("TrainingJobStopped", "{}: stopped, since {}", "Polled.Because")


def _function(stack: Stack) -> CfnResource:
    """The stack's function."""
    description = "Checks training jobs against the rules that stop them"
    return stack_function(stack, _FUNCTION_ID, "watch", description, lambda: _statements(stack), _WHY).function


def _statements(stack: Stack) -> list[iam.PolicyStatement]:
    streams = stack.format_arn(service="logs", resource=f"log-group:{_LOG_GROUP}:log-stream:*")
    return [
        iam.PolicyStatement(actions=["logs:DescribeLogStreams"], resources=[streams]),
        # CloudWatch's metrics have no resource ("Actions, resources, and condition keys for Amazon CloudWatch").
        iam.PolicyStatement(actions=["cloudwatch:GetMetricData"], resources=["*"]),
    ]
