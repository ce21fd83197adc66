"""Rules by which a job that is of no use is stopped: it has gone silent, or a metric of it is out of bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aws_cdk import Stack
from aws_cdk import aws_iam as iam

from cdk_sagemaker_training.core.checks import check_text, seconds_of
from cdk_sagemaker_training.props.prop_types import check_fields
from cdk_sagemaker_training.workflow.retries import retry

if TYPE_CHECKING:
    from aws_cdk import Duration

# Where jobs log, and where SageMaker puts the metrics that it reads from the log (guide, "Monitor and analyze training jobs using
# Amazon CloudWatch metrics", "Amazon SageMaker AI metrics in Amazon CloudWatch").
_LOG_GROUP = _NAMESPACE = "/aws/sagemaker/TrainingJobs"
_LEAST_SILENCE = 3_600
_MOST_READINGS = 10
_MOST_LIMITS = 5
# CloudWatch takes periods of 300 seconds of what is up to 63 days old, and averages the readings in each (GetMetricData).
_PERIOD = 300
# How what a silent job is stopped for begins.
SILENT = "no host has logged a line for"


@dataclass(frozen=True)
class Silence:
    """Stops a job of which no host has logged a line for a time, as one that hangs.

    Args:
        after: The time without a line, a Duration or in seconds, at least an hour: CloudWatch Logs' lastIngestionTime "typically
            updates in less than an hour after ingestion" (API, LogStream). The first 50 hosts are listened to.

    Raises:
        ValueError: The time is shorter.
    """

    after: Duration | int = 7_200

    def __post_init__(self) -> None:
        check_fields(self)
        if seconds_of("after", self.after) < _LEAST_SILENCE:
            raise ValueError(
                f"after must be at least {_LEAST_SILENCE} seconds, since CloudWatch Logs may know of a line as late, like "
                f"Duration.hours(2), got {seconds_of('after', self.after)} seconds"
            )


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

    metric: str
    above: float | None = None
    below: float | None = None
    readings: int = 1

    def __post_init__(self) -> None:
        check_fields(self)
        check_text("metric", self.metric, "loss")
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


StopRule = Silence | MetricLimit


def check_stop_rules(rules: Sequence[StopRule], metrics: Mapping[str, Any] | None) -> None:
    """Check the rules of a workflow.

    Args:
        rules: The prop ``stop_when``.
        metrics: The prop ``metric_definitions``.

    Raises:
        ValueError: A metric is not defined, or there are more rules than look-ups should cost.
    """
    limits = [rule for rule in rules if isinstance(rule, MetricLimit)]
    for rule in limits:
        if rule.metric not in (metrics or {}):
            raise ValueError(
                "metric of a MetricLimit must be a name in metric_definitions, like {'loss': 'loss=([0-9.]+)'}, got "
                f"{rule.metric!r} of {sorted(metrics or {})}"
            )
    if len(limits) > _MOST_LIMITS or len(rules) - len(limits) > 1:
        raise ValueError(
            f"stop_when must be at most one Silence and {_MOST_LIMITS} MetricLimits, like [Silence(Duration.hours(2))], got "
            f"{list(rules)!r}"
        )


class WatchStates:
    """The states of the poller that look at a training job, and stop one that a rule says is of no use.

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

    @property
    def events(self) -> int:
        """The most events of a look."""
        return (13 if self._silence else 0) + 7 * len(self._limits) + 2

    def first(self) -> dict[str, Any]:
        """Return the members with which an execution of the poller begins."""
        return {"Stop": {"Because": ""}, "Silence": {"Heard": "", "Seconds": 0}}

    def kept(self) -> dict[str, Any]:
        """Return the members with which another state keeps them."""
        return {"Stop.$": "$.Stop", "Silence.$": "$.Silence"}

    def rule(self) -> dict[str, Any]:
        """Return the rule of a Choice that looks at a job that trains."""
        training = {"Variable": "$.Job.Secondary", "StringEquals": "Training"}
        return {"And": [training, {"Variable": "$.Stop.Because", "StringEquals": ""}], "Next": self._chain()[0]}

    def states(self, partition: str, after: Mapping[str, Any]) -> dict[str, Any]:
        """Return the states.

        Args:
            partition: Partition of ARNs.
            after: The state that follows on a look, `Looked`.
        """
        aws = f"arn:{partition}:states:::aws-sdk"
        following = dict(zip(self._chain(), [*self._chain()[1:], "Looked"], strict=True))
        states: dict[str, Any] = {}
        if self._silence is not None:
            states |= self._listening(self._silence, aws, following["Listen"])
        for number, limit in enumerate(self._limits):
            states |= _reading(limit, number, aws, following[f"Read{number}"])
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
        if self._limits:
            # CloudWatch's metrics have no resource ("Actions, resources, and condition keys for Amazon CloudWatch").
            yield iam.PolicyStatement(actions=["cloudwatch:GetMetricData"], resources=["*"])

    def _chain(self) -> list[str]:
        return [*(["Listen"] if self._silence else []), *(f"Read{number}" for number in range(len(self._limits)))]

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
    metric = {
        "Namespace": _NAMESPACE,
        "MetricName": limit.metric,
        "Dimensions": [{"Name": "TrainingJobName", "Value.$": "$.JobName"}],
    }
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
            "Parameters": {
                "MetricDataQueries": [
                    {"Id": "m", "MetricStat": {"Metric": metric, "Period": _PERIOD, "Stat": "Average"}}
                ],
                "StartTime.$": "$$.Execution.StartTime",
                "EndTime.$": "$$.State.EnteredTime",
                "ScanBy": "TimestampDescending",
                "MaxDatapoints": limit.readings,
            },
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


def _because(text: str) -> dict[str, Any]:
    return {"Type": "Pass", "Result": {"Because": text}, "ResultPath": "$.Stop", "Next": "Stop"}
