"""The states that check a training job against stop rules, and stop it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_iam as iam

from cdk_sagemaker_training.core.checks import seconds_of
from cdk_sagemaker_training.workflow.retries import retry
from cdk_sagemaker_training.workflow.stop_rules import MetricLimit, Plateau, Silence, StopRule

# Where jobs log, and where SageMaker puts the metrics that it reads from the log (guide, "Monitor and analyze training jobs using
# Amazon CloudWatch metrics", "Amazon SageMaker AI metrics in Amazon CloudWatch").
_LOG_GROUP = _NAMESPACE = "/aws/sagemaker/TrainingJobs"
# CloudWatch takes periods of 300 seconds of what is up to 63 days old, and averages the readings in each (GetMetricData).
_PERIOD = 300
_WORST = 1e30  # a metric that is worse has not improved
# How what a silent job is stopped for begins.
SILENT = "no host has logged a line for"


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
