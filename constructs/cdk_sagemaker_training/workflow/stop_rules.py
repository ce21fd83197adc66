"""Rules that stop a job: its log is silent, or a metric is out of bounds or no longer improves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cdk_sagemaker_training.core.checks import not_empty, seconds_of
from cdk_sagemaker_training.props.prop import LITERAL, Prop, kind
from cdk_sagemaker_training.props.prop_types import check_fields

if TYPE_CHECKING:
    from aws_cdk import Duration

_LEAST_SILENCE = 3_600
_LEAST_PATIENCE = 600
# An execution of the poller ends after nine hours or more, and the next one starts from zero.
_MOST_SECONDS = 6 * 3_600
_MOST_READINGS = 10
_MOST_LIMITS = 5


_METRIC = Prop(known=LITERAL, rule=not_empty, example="'loss'")


@kind("Silence(Duration.hours(2))")
@dataclass(frozen=True)
class Silence:
    """Stops a job of which no host has logged a line for a time, as one that hangs.

    Args:
        after: The time without a line, a Duration or in seconds, at least an hour: CloudWatch Logs' lastIngestionTime "typically
            updates in less than an hour after ingestion" (API, LogStream). At most 6 hours. The first 50 hosts are listened to.

    Raises:
        ValueError: The time is shorter or longer.
    """

    after: Annotated[Duration | int, Prop(known=LITERAL, example="Duration.hours(2)")] = 7_200

    def __post_init__(self) -> None:
        check_fields(self)
        if seconds_of("after", self.after) < _LEAST_SILENCE:
            raise ValueError(
                f"after must be at least {_LEAST_SILENCE} seconds, since CloudWatch Logs may know of a line as late, like "
                f"Duration.hours(2), got {seconds_of('after', self.after)} seconds"
            )
        _check_most("after", self.after)


@kind("MetricLimit('loss', above=10.0, readings=3)")
@dataclass(frozen=True)
class MetricLimit:
    """Stops a job of which a metric is out of bounds, such as a loss that diverges.

    CloudWatch takes no NaN and no infinity (API, MetricDatum), so a metric that is NaN has no readings: ``Silence`` does not see
    it, and a script had better fail.

    Args:
        metric: A name in ``metric_definitions``.
        above: Readings above this are out of bounds; None for no such bound.
        below: Readings below this are out of bounds; None for no such bound.
        readings: How many readings in a row must be, 1 to 10. A reading is the average of five minutes.

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
            raise ValueError(f"above must be set unless below is, like 10.0, got {self.above!r} and {self.below!r}")
        if not 1 <= self.readings <= _MOST_READINGS:
            raise ValueError(f"readings must be a number from 1 to {_MOST_READINGS}, like 3, got {self.readings}")

    @property
    def because(self) -> str:
        """What the execution's cause says."""
        bounds = [f"above {self.above:g}"] if self.above is not None else []
        bounds += [f"below {self.below:g}"] if self.below is not None else []
        return f"{self.metric} was {' or '.join(bounds)} in {self.readings} readings"


@kind("Plateau('loss', patience=Duration.hours(1), min_delta=0.01)")
@dataclass(frozen=True)
class Plateau:
    """Stops a job of which a metric has not improved for a time, such as a loss that falls no more, or is NaN.

    CloudWatch takes no NaN and no infinity (API, MetricDatum), so a metric that is NaN has no new readings, and does not improve.

    Args:
        metric: A name in ``metric_definitions``.
        patience: The time without an improvement, a Duration or in seconds, from 10 minutes to 6 hours. It is counted while the
            job trains, before the first reading too.
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
            raise ValueError(
                f"patience must be at least {_LEAST_PATIENCE} seconds, in which there are two readings, like "
                f"Duration.hours(1), got {seconds_of('patience', self.patience)} seconds"
            )
        _check_most("patience", self.patience)
        if self.min_delta < 0:
            raise ValueError(f"min_delta must be a number of at least 0, like 0.01, got {self.min_delta}")

    @property
    def because(self) -> str:
        """What the execution's cause says."""
        by = f" by {self.min_delta:g}" if self.min_delta else ""
        return f"{self.metric} has not improved{by} for {seconds_of('patience', self.patience)} seconds"


StopRule = Silence | MetricLimit | Plateau


def _check_most(name: str, time: Duration | int) -> None:
    if seconds_of(name, time) > _MOST_SECONDS:
        raise ValueError(
            f"{name} must be at most {_MOST_SECONDS} seconds, since each execution of the state machine that polls starts "
            f"from zero, like Duration.hours(2), got {seconds_of(name, time)} seconds"
        )


def check_stop_rules(rules: Sequence[StopRule], metrics: Mapping[str, Any] | None) -> None:
    """Check the rules of a workflow.

    Args:
        rules: The prop ``stop_when``.
        metrics: The prop ``metric_definitions``.

    Raises:
        ValueError: A metric is not defined, or there are more rules than look-ups should cost.
    """
    of_metrics = [rule for rule in rules if isinstance(rule, MetricLimit | Plateau)]
    for rule in of_metrics:
        if rule.metric not in (metrics or {}):
            raise ValueError(
                f"metric of a {type(rule).__name__} must be a name in metric_definitions, like {{'loss': 'loss=([0-9.]+)'}}, got "
                f"{rule.metric!r} of {sorted(metrics or {})}"
            )
    if len(of_metrics) > _MOST_LIMITS or len(rules) - len(of_metrics) > 1:
        raise ValueError(
            f"stop_when must be at most one Silence and {_MOST_LIMITS} rules of metrics, like [Silence(Duration.hours(2))], got "
            f"{list(rules)!r}"
        )
