"""The messages of an alarm's state change, to its SNS topics and to the default event bus.

Source: "Amazon SNS notification of an alarm" and "CloudWatch Alarm State Change" in AWS's documentation.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC
from functools import cache
from typing import Any

from moto.sns.models import sns_backends

from sagemaker_local_account.aws.cloudwatch import alarms
from sagemaker_local_account.aws.events import bus
from sagemaker_local_account.aws.log_failures import log_failure
from sagemaker_local_account.core.service_models import loader

_log = logging.getLogger(__name__)

_LONGEST_SUBJECT = 100


def send(alarm: Any, former: dict[str, Any], state: dict[str, Any]) -> None:
    """Sends the event and the notifications of a state change.

    Args:
        alarm: moto's.
        former: the former state: value, reason, reasonData and timestamp.
        state: the new state.
    """
    _log.info("alarm %s: %s -> %s: %s", alarm.name, former["value"], state["value"], state["reason"])
    bus.put_event(alarm.alarm_arn, "aws.cloudwatch", "CloudWatch Alarm State Change", _detail(alarm, former, state))
    if not alarm.actions_enabled:
        return
    actions = {
        alarms.ALARM: alarm.alarm_actions,
        alarms.OK: alarm.ok_actions,
        alarms.INSUFFICIENT_DATA: alarm.insufficient_data_actions,
    }
    for topic in actions[state["value"]]:
        _publish(topic, alarm, former, state)


def _publish(topic: str, alarm: Any, former: dict[str, Any], state: dict[str, Any]) -> None:
    _, _, _, region, account, *_ = topic.split(":")
    message = _notification(alarm, former, state)
    subject = f'{state["value"]}: "{alarm.name}" in {message["Region"]}'[:_LONGEST_SUBJECT]
    try:
        sns_backends[account][region].publish(json.dumps(message), topic, subject=subject)
    except Exception as error:
        log_failure(_log, error, "alarm %s: not published to %s", alarm.name, topic)


def _notification(alarm: Any, former: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    _, _, _, region, account, *_ = alarm.alarm_arn.split(":")
    queries = _queries(alarm)
    return {
        "AlarmName": alarm.name,
        "AlarmDescription": alarm.description,
        "AWSAccountId": account,
        "AlarmConfigurationUpdatedTimestamp": alarms.stamp(alarm.configuration_updated_timestamp.replace(tzinfo=UTC)),
        "NewStateValue": state["value"],
        "NewStateReason": state["reason"],
        "StateChangeTime": state["timestamp"],
        "Region": _region_in_words(region),
        "AlarmArn": alarm.alarm_arn,
        "OldStateValue": former["value"],
        "OKActions": alarm.ok_actions,
        "AlarmActions": alarm.alarm_actions,
        "InsufficientDataActions": alarm.insufficient_data_actions,
        "Trigger": {
            **({} if alarm.metric_data_queries else _watched(alarm)),
            "Period": next(query["MetricStat"]["Period"] for query in queries if "MetricStat" in query),
            "EvaluationPeriods": alarm.evaluation_periods,
            **({"DatapointsToAlarm": alarm.datapoints_to_alarm} if alarm.datapoints_to_alarm else {}),
            "ComparisonOperator": alarm.comparison_operator,
            "Threshold": alarm.threshold,
            "TreatMissingData": alarm.treat_missing_data or "missing",
            "EvaluateLowSampleCountPercentile": "",
            **({"Metrics": queries} if alarm.metric_data_queries else {}),
        },
    }


def _watched(alarm: Any) -> dict[str, Any]:
    """The members of a trigger that name the one metric of an alarm."""
    return {
        "MetricName": alarm.metric_name,
        "Namespace": alarm.namespace,
        "StatisticType": "Statistic",
        "Statistic": alarm.statistic.upper(),
        "Unit": alarm.unit,
        "Dimensions": _dimensions(alarm),
    }


def _dimensions(of: Any) -> list[dict[str, str]]:
    return [{"value": dimension.value, "name": dimension.name} for dimension in of.dimensions]


def _queries(alarm: Any) -> list[dict[str, Any]]:
    """The metric math of an alarm, as in the message to a topic (arabold/aws-to-slack 98); of an alarm on one metric that."""
    return [
        {
            "Id": query.id,
            **({} if query.label is None else {"Label": query.label}),
            **(_stat(query.metric_stat) if query.metric_stat else {"Expression": query.expression}),
            "ReturnData": query.return_data is not False,
        }
        for query in alarm.metric_data_queries or ()
    ] or [{"Id": "m1", **_metric_stat(alarm, alarm.period, alarm.statistic), "ReturnData": True}]


def _stat(stat: Any) -> dict[str, Any]:
    return _metric_stat(stat.metric, stat.period, stat.stat)


def _metric_stat(of: Any, period: Any, statistic: str) -> dict[str, Any]:
    metric = {"Dimensions": _dimensions(of), "MetricName": of.metric_name, "Namespace": of.namespace}
    return {"MetricStat": {"Metric": metric, "Period": int(period), "Stat": statistic}}


def _detail(alarm: Any, former: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    configuration: dict[str, Any] = {"metrics": [_of_event(query) for query in _queries(alarm)]}
    if alarm.description:
        configuration["description"] = alarm.description
    return {"alarmName": alarm.name, "configuration": configuration, "previousState": former, "state": state}


def _of_event(query: dict[str, Any]) -> dict[str, Any]:
    """A metric of a message to a topic, as it is in an event ("State change for a metric math alarm")."""
    made = {f"{name[0].lower()}{name[1:]}": value for name, value in query.items()}
    if "metricStat" in made:
        metric = made["metricStat"]["Metric"]
        made["metricStat"] = {
            "metric": {
                "dimensions": {one["name"]: one["value"] for one in metric["Dimensions"]},
                "name": metric["MetricName"],
                "namespace": metric["Namespace"],
            },
            "period": made["metricStat"]["Period"],
            "stat": made["metricStat"]["Stat"],
        }
    return made


@cache
def _region_in_words(region: str) -> str:
    """The region's name, such as `US East (N. Virginia)`."""
    for partition in loader().load_data("endpoints")["partitions"]:
        if region in partition["regions"]:
            return str(partition["regions"][region]["description"])
    return region
