"""Rules that stop a training job which makes no progress, and the states of the poller that check them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from aws_cdk import Stack
from aws_cdk import aws_iam as iam

from cdk_sagemaker_training.core.checks import not_empty, seconds_of
from cdk_sagemaker_training.lifecycle.attempt import FAILED_ATTEMPTS, Attempt
from cdk_sagemaker_training.lifecycle.causes import Cause
from cdk_sagemaker_training.lifecycle.feature import Feature
from cdk_sagemaker_training.lifecycle.states import DATA, fail, retry, status_is
from cdk_sagemaker_training.props.prop import LITERAL, Prop, kind
from cdk_sagemaker_training.props.prop_types import check_fields

if TYPE_CHECKING:
    from aws_cdk import Duration

    from cdk_sagemaker_training.lifecycle.plan import Plan

_LEAST_SILENCE = 3_600
_LEAST_PATIENCE = 600
# An execution of the poller ends after nine hours or more, and the next one starts from zero.
_MOST_SECONDS = 6 * 3_600
_MOST_READINGS = 10
_MOST_LIMITS = 5
# Where jobs log, and where SageMaker puts the metrics that it reads from the log (guide, "Monitor and analyze training jobs using
# Amazon CloudWatch metrics", "Amazon SageMaker AI metrics in Amazon CloudWatch").
_LOG_GROUP = _NAMESPACE = "/aws/sagemaker/TrainingJobs"
# CloudWatch takes periods of 300 seconds of what is up to 63 days old, and averages the readings in each (GetMetricData).
_PERIOD = 300
_WORST = 1e30  # a metric that is worse has not improved
# How what a silent job is stopped for begins.
SILENT = "no host has logged a line for"


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
        """Check that metrics are defined."""
        check_stop_rules(self.rules, plan.props.get("metric_definitions"))

    def watch(self) -> WatchStates:
        """Return the states of the poller."""
        return WatchStates(self.rules)

    def states(self, attempt: Attempt) -> None:
        """Add what follows on a job that the poller stopped, of which `Find` and `Create` know nothing."""
        because = f"{DATA}.Polled.Because"
        stopped = [
            status_is("Stopped"),
            {"Variable": because, "IsPresent": True},
            {"Not": {"Variable": because, "StringEquals": ""}},
        ]
        silent = {"Variable": because, "StringMatches": f"{SILENT}*"}
        for followed in attempt.following(Cause.SILENT):
            attempt.ends("Stopped", {"And": [*stopped, silent, followed.left], "Next": followed.first})
        seam = attempt.counts("StoppedByRule", FAILED_ATTEMPTS, str(Cause.STOPPED))
        attempt.ends("Stopped", {"And": stopped, "Next": seam})
        attempt.states["StoppedByRule"] = fail("TrainingJobStopped", "{}: stopped, since {}", "Polled.Because")
        attempt.polled["Because.$"] = "$.Output.Stop.Because"


class WatchStates:
    """The states of the poller that check a training job against stop rules, and stop it.

    What the job was stopped for is in `$.Stop.Because`; it is empty until then. The poller polls on until the job has ended, so
    that its last checkpoint is in S3.
    """

    def __init__(self, rules: Sequence[StopRule]) -> None:
        """Prepare the states.

        Args:
            rules: The prop ``stop_when``, at least one.
        """
        self._silence = next((rule for rule in rules if isinstance(rule, Silence)), None)
        self._limits = [rule for rule in rules if isinstance(rule, MetricLimit)]
        self._plateaus = [rule for rule in rules if isinstance(rule, Plateau)]

    @property
    def events(self) -> int:
        """The most events of a look."""
        return (13 if self._silence else 0) + 7 * len(self._limits) + 11 * len(self._plateaus) + 2

    def first(self) -> dict[str, Any]:
        """Return the members with which an execution of the poller begins."""
        return {
            "Stop": {"Because": ""},
            "Silence": {"Heard": "", "Seconds": 0},
            **{
                f"Plateau{number}": {"Best": _WORST if rule.mode == "min" else -_WORST, "Seconds": 0}
                for number, rule in enumerate(self._plateaus)
            },
        }

    def kept(self) -> dict[str, Any]:
        """Return the members with which another state keeps them."""
        names = ("Stop", "Silence", *(f"Plateau{number}" for number in range(len(self._plateaus))))
        return {f"{name}.$": f"$.{name}" for name in names}

    def rule(self) -> dict[str, Any]:
        """Return the rule of a Choice that looks at a job that trains."""
        training = {"Variable": "$.Job.Secondary", "StringEquals": "Training"}
        return {"And": [training, {"Variable": "$.Stop.Because", "StringEquals": ""}], "Next": self._chain()[0]}

    def states(self, partition: str, after: Mapping[str, Any]) -> dict[str, Any]:
        """Return the states."""
        aws = f"arn:{partition}:states:::aws-sdk"
        following = dict(zip(self._chain(), [*self._chain()[1:], "Looked"], strict=True))
        states: dict[str, Any] = {}
        if self._silence is not None:
            states |= self._listening(self._silence, aws, following["Listen"])
        for number, limit in enumerate(self._limits):
            states |= _reading(limit, number, aws, following[f"Read{number}"])
        for number, plateau in enumerate(self._plateaus):
            states |= _improving(plateau, number, aws, following[f"ReadBest{number}"])
        return {
            **states,
            "Stop": {
                "Type": "Task",
                "Resource": f"{aws}:sagemaker:stopTrainingJob",
                "Parameters": {"TrainingJobName.$": "$.JobName"},
                "ResultPath": "$.Stop.Called",
                "Retry": [retry(10)],
                "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.NotStopped", "Next": "NotStopped"}],
                "Next": "Looked",
            },
            # As of a job that has just ended; if it has not, the next look stops it.
            "NotStopped": {"Type": "Pass", "Result": {"Because": ""}, "ResultPath": "$.Stop", "Next": "Looked"},
            "Looked": dict(after),
        }

    def policies(self, stack: Stack) -> Iterator[iam.PolicyStatement]:
        """Yield the statements that the poller needs to look.

        Args:
            stack: The stack of the jobs.
        """
        if self._silence is not None:
            group = stack.format_arn(service="logs", resource=f"log-group:{_LOG_GROUP}:log-stream:*")
            yield iam.PolicyStatement(actions=["logs:DescribeLogStreams"], resources=[group])
        if self._limits or self._plateaus:
            # CloudWatch's metrics have no resource ("Actions, resources, and condition keys for Amazon CloudWatch").
            yield iam.PolicyStatement(actions=["cloudwatch:GetMetricData"], resources=["*"])

    def _chain(self) -> list[str]:
        return [
            *(["Listen"] if self._silence else []),
            *(f"Read{number}" for number in range(len(self._limits))),
            *(f"ReadBest{number}" for number in range(len(self._plateaus))),
        ]

    def _listening(self, silence: Silence, aws: str, following: str) -> dict[str, Any]:
        seconds = seconds_of("after", silence.after)
        return {
            "Listen": {
                "Type": "Task",
                "Resource": f"{aws}:cloudwatchlogs:describeLogStreams",
                "Parameters": {
                    "LogGroupName": _LOG_GROUP,
                    "LogStreamNamePrefix.$": "States.Format('{}/', $.JobName)",
                },
                "ResultSelector": {"Times.$": "States.JsonToString($.LogStreams[*].LastIngestionTime)"},
                "ResultPath": "$.Heard",
                "Retry": [retry(3, "States.TaskFailed")],
                # Not to know is no reason to stop a job.
                "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.NotHeard", "Next": following}],
                "Next": "WasHeard",
            },
            "WasHeard": {
                "Type": "Choice",
                "Choices": [{"Variable": "$.Heard.Times", "StringEqualsPath": "$.Silence.Heard", "Next": "Silent"}],
                "Default": "Heard",
            },
            "Heard": {
                "Type": "Pass",
                "Parameters": {"Heard.$": "$.Heard.Times", "Seconds": 0},
                "ResultPath": "$.Silence",
                "Next": following,
            },
            "Silent": {
                "Type": "Pass",
                "Parameters": {
                    "Heard.$": "$.Silence.Heard",
                    "Seconds.$": "States.MathAdd($.Silence.Seconds, $.Seconds)",
                },
                "ResultPath": "$.Silence",
                "Next": "IsTooLong",
            },
            "IsTooLong": {
                "Type": "Choice",
                "Choices": [
                    {"Variable": "$.Silence.Seconds", "NumericGreaterThanEquals": seconds, "Next": "StopSilent"}
                ],
                "Default": following,
            },
            "StopSilent": _because(f"{SILENT} {seconds} seconds"),
        }


def _reading(limit: MetricLimit, number: int, aws: str, following: str) -> dict[str, Any]:
    """The states that read a metric's newest values, and compare them."""
    values = f"$.Metric{number}.Results[0].Values"
    out = [
        [
            *(
                [{"Variable": f"{values}[{index}]", "NumericGreaterThan": limit.above}]
                if limit.above is not None
                else []
            ),
            *([{"Variable": f"{values}[{index}]", "NumericLessThan": limit.below}] if limit.below is not None else []),
        ]
        for index in range(limit.readings)
    ]
    return {
        f"Read{number}": {
            "Type": "Task",
            "Resource": f"{aws}:cloudwatch:getMetricData",
            "Parameters": {**_readings_of(limit.metric), "MaxDatapoints": limit.readings},
            "ResultSelector": {"Results.$": "$.MetricDataResults"},
            "ResultPath": f"$.Metric{number}",
            "Retry": [retry(3, "States.TaskFailed")],
            "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.NotRead", "Next": following}],
            "Next": f"IsOut{number}",
        },
        f"IsOut{number}": {
            "Type": "Choice",
            "Choices": [
                {
                    "And": [
                        {"Variable": f"{values}[{limit.readings - 1}]", "IsPresent": True},
                        *({"Or": bounds} if len(bounds) > 1 else bounds[0] for bounds in out),
                    ],
                    "Next": f"StopOut{number}",
                }
            ],
            "Default": following,
        },
        f"StopOut{number}": _because(limit.because),
    }


def _improving(plateau: Plateau, number: int, aws: str, following: str) -> dict[str, Any]:
    """The states that compare a metric's newest value with the best before it, and count the time since that."""
    best, found = f"$.Plateau{number}", f"$.Best{number}"
    lower = plateau.mode == "min"
    # There is no arithmetic of fractions in JSONPath's intrinsic functions, and there is in metric math.
    shifted = {"Id": "e", "Expression": f"m {'+' if lower else '-'} {plateau.min_delta!r}"}
    request = _readings_of(plateau.metric)
    better = {
        "Variable": f"{found}.Shifted[0][0]",
        "NumericLessThanPath" if lower else "NumericGreaterThanPath": f"{best}.Best",
    }
    seconds = seconds_of("patience", plateau.patience)
    return {
        f"ReadBest{number}": {
            "Type": "Task",
            "Resource": f"{aws}:cloudwatch:getMetricData",
            "Parameters": {**request, "MetricDataQueries": [*request["MetricDataQueries"], shifted]},
            "ResultSelector": {
                "Value.$": "$.MetricDataResults[?(@.Id == 'm')].Values",
                "Shifted.$": "$.MetricDataResults[?(@.Id == 'e')].Values",
            },
            "ResultPath": found,
            "Retry": [retry(3, "States.TaskFailed")],
            "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.NotRead", "Next": following}],
            "Next": f"HasImproved{number}",
        },
        f"HasImproved{number}": {
            "Type": "Choice",
            "Choices": [
                {
                    "And": [{"Variable": f"{found}.Shifted[0][0]", "IsPresent": True}, better],
                    "Next": f"Improved{number}",
                }
            ],
            "Default": f"Flat{number}",
        },
        f"Improved{number}": {
            "Type": "Pass",
            "Parameters": {"Best.$": f"{found}.Value[0][0]", "Seconds": 0},
            "ResultPath": best,
            "Next": following,
        },
        f"Flat{number}": {
            "Type": "Pass",
            "Parameters": {
                "Best.$": f"{best}.Best",
                "Seconds.$": f"States.MathAdd({best}.Seconds, $.Seconds)",
            },
            "ResultPath": best,
            "Next": f"IsPlateau{number}",
        },
        f"IsPlateau{number}": {
            "Type": "Choice",
            "Choices": [
                {"Variable": f"{best}.Seconds", "NumericGreaterThanEquals": seconds, "Next": f"StopFlat{number}"}
            ],
            "Default": following,
        },
        f"StopFlat{number}": _because(plateau.because),
    }


def _readings_of(metric: str) -> dict[str, Any]:
    """The parameters of GetMetricData for the readings of a job's metric, the newest first."""
    which = {
        "Namespace": _NAMESPACE,
        "MetricName": metric,
        "Dimensions": [{"Name": "TrainingJobName", "Value.$": "$.JobName"}],
    }
    return {
        "MetricDataQueries": [{"Id": "m", "MetricStat": {"Metric": which, "Period": _PERIOD, "Stat": "Average"}}],
        "StartTime.$": "$$.Execution.StartTime",
        "EndTime.$": "$$.State.EnteredTime",
        "ScanBy": "TimestampDescending",
    }


def _because(text: str) -> dict[str, Any]:
    return {"Type": "Pass", "Result": {"Because": text}, "ResultPath": "$.Stop", "Next": "Stop"}
