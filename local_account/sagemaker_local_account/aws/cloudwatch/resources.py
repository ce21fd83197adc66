"""CloudWatch's alarms in CloudFormation, which moto lacks."""

from __future__ import annotations

from typing import Any

from moto.cloudformation.exceptions import ValidationError
from moto.cloudwatch.models import Dimension, Metric, MetricDataQuery, MetricStat, cloudwatch_backends
from typing_extensions import override

from sagemaker_local_account.aws.resource_base import Properties, ResourceBase, is_true
from sagemaker_local_account.aws.resource_types import ServiceResources, real


def _queries(metrics: list[dict[str, Any]]) -> list[MetricDataQuery]:
    """The property Metrics as moto has it of PutMetricAlarm."""
    return [
        MetricDataQuery(
            query["Id"],
            query.get("Label"),
            query.get("Period"),
            None if "ReturnData" not in query else is_true(query["ReturnData"]),
            query.get("Expression"),
            _stat(query["MetricStat"]) if "MetricStat" in query else None,
        )
        for query in metrics
    ]


def _stat(stat: dict[str, Any]) -> MetricStat:
    metric = stat["Metric"]
    dimensions = [Dimension(one["Name"], one["Value"]) for one in metric.get("Dimensions", ())]
    of = Metric(metric["MetricName"], metric["Namespace"], dimensions)
    return MetricStat(of, int(stat["Period"]), stat["Stat"], stat.get("Unit"))


# The properties of an alarm: the parameter of moto's put_metric_alarm, and the conversion of the template's value.
_ALARM: dict[str, tuple[str, Any]] = {
    "ActionsEnabled": ("actions_enabled", is_true),
    "AlarmActions": ("alarm_actions", list),
    "AlarmDescription": ("description", str),
    "ComparisonOperator": ("comparison_operator", str),
    "DatapointsToAlarm": ("datapoints_to_alarm", int),
    "Dimensions": ("dimensions", list),
    "EvaluateLowSampleCountPercentile": ("evaluate_low_sample_count_percentile", str),
    "EvaluationPeriods": ("evaluation_periods", int),
    "ExtendedStatistic": ("extended_statistic", str),
    "InsufficientDataActions": ("insufficient_data_actions", list),
    "MetricName": ("metric_name", str),
    "Metrics": ("metric_data_queries", _queries),
    "Namespace": ("namespace", str),
    "OKActions": ("ok_actions", list),
    "Period": ("period", int),
    "Statistic": ("statistic", str),
    "Tags": ("tags", list),
    "Threshold": ("threshold", float),
    "ThresholdMetricId": ("threshold_metric_id", str),
    "TreatMissingData": ("treat_missing_data", str),
    "Unit": ("unit", str),
}

_EVERY_ALARM: dict[str, Any] = {
    "actions_enabled": True,
    "alarm_actions": [],
    "comparison_operator": None,
    "description": None,
    "dimensions": [],
    "evaluation_periods": None,
    "metric_name": None,
    "namespace": None,
    "period": None,
    "statistic": None,
    "threshold": None,
}


class MetricAlarm(ResourceBase):
    """AWS::CloudWatch::Alarm."""

    @override
    def create(self) -> None:
        self.physical_resource_id = self.properties.get("AlarmName", self.physical_resource_id)
        if self.physical_resource_id in self._backend.alarms:
            raise ValidationError(message=f"{self.physical_resource_id} already exists")
        self._put()

    @override
    def update(self, former: Properties) -> None:
        if self.properties.get("AlarmName") != former.get("AlarmName"):
            raise NotImplementedError
        self._put()

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        self._backend.delete_alarms([self.physical_resource_id])

    @override
    def attributes(self) -> dict[str, str]:
        return {"Arn": self._backend.alarms[self.physical_resource_id].alarm_arn}

    def _put(self) -> None:
        values = {member: of(self.properties[name]) for name, (member, of) in _ALARM.items() if name in self.properties}
        self._backend.put_metric_alarm(name=self.physical_resource_id, **{**_EVERY_ALARM, **values})

    @property
    def _backend(self) -> Any:
        return cloudwatch_backends[self.account_id][self.region_name]


RESOURCES = ServiceResources(
    types={
        "AWS::CloudWatch::Alarm": real(
            "evaluated when data of its metric arrive and each second; state changes go to SNS topics and the default event bus; "
            "metric math other than a sum of metrics, percentiles, anomaly detection and actions other than topics are rejected",
            "ActionsEnabled AlarmActions AlarmDescription AlarmName ComparisonOperator DatapointsToAlarm Dimensions "
            "EvaluateLowSampleCountPercentile EvaluationPeriods ExtendedStatistic InsufficientDataActions MetricName Metrics "
            "Namespace OKActions Period Statistic Tags Threshold ThresholdMetricId TreatMissingData Unit",
            made_by=MetricAlarm,
        ),
        "AWS::CloudWatch::Dashboard": real("stored; there is no console", "DashboardBody DashboardName"),
    },
)
