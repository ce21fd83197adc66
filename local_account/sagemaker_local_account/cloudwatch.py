"""CloudWatch's alarms, which go off: moto remembers them, and never looks at a metric.

An alarm is evaluated when data of its metric come and each second besides, since data can also stay away. Its changes
of state are published to SNS topics and announced on the default bus, as AWS documents the two messages. What of an
alarm is not evaluated here is refused when the alarm is made, by name.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

from moto.cloudwatch.exceptions import InvalidParameterValue
from moto.cloudwatch.models import (
    Alarm,
    CloudWatchBackend,
    MetricAggregatedDatum,
    MetricDatumBase,
    cloudwatch_backends,
)
from moto.sqs.models import sqs_backends

from . import alarm_messages, alarms
from .alarms import COMPARISONS, MISSING, STATISTICS, Datum, Rule
from .patches import patch

_log = logging.getLogger(__name__)

_EVERY_SECONDS = 1.0
QUEUES_EVERY_SECONDS = 60.0  # as SQS sends its metrics ("Monitoring Amazon SQS queues using CloudWatch")
_KEPT_SERIES = 20_000  # data of one metric; an alarm of AWS looks back a day, or a week with periods of an hour

Metric = tuple[str, str, frozenset[tuple[str, str]]]

# What an alarm may have on AWS and may not here, by the parameter of moto's put_metric_alarm.
_NOT_EVALUATED = {
    "metric_data_queries": "Metrics (metric math)",
    "extended_statistic": "ExtendedStatistic (percentiles)",
    "evaluate_low_sample_count_percentile": "EvaluateLowSampleCountPercentile",
    "threshold_metric_id": "ThresholdMetricId (anomaly detection)",
    "rule": "AlarmRule (composite alarms)",
}


def install() -> None:
    """Make moto's CloudWatch this account's; call it before its first use in an account."""
    patch(cloudwatch_backends, "backend", Backend)


class Clock:
    """Evaluates every alarm each second, and counts the messages of queues each minute, until it is closed."""

    def __init__(self) -> None:
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="alarms", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        counted = time.monotonic()
        while not self._closed.wait(_EVERY_SECONDS):
            if time.monotonic() - counted >= QUEUES_EVERY_SECONDS:
                counted = time.monotonic()
                _count_messages()
            for regions in [*cloudwatch_backends.values()]:
                for backend in [*regions.values()]:
                    backend.evaluate_all()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()


class Backend(CloudWatchBackend):
    """moto's CloudWatch with alarms that are evaluated."""

    @property
    def _url_module(self) -> Any:
        # moto derives this from the class's own module.
        import moto.cloudwatch.urls

        return moto.cloudwatch.urls

    def __init__(self, region_name: str, account_id: str) -> None:
        super().__init__(region_name, account_id)
        # An action can start what puts data in the same thread.
        self._lock = threading.RLock()
        self._series: dict[Metric, list[tuple[Any, Datum]]] = defaultdict(list)

    def put_metric_alarm(self, name: str, **details: Any) -> Alarm:
        """Make an alarm, or change one, whose state stays. moto's alarms begin as OK, AWS's as INSUFFICIENT_DATA."""
        _refuse_what_is_not_evaluated(name, details)
        with self._lock:
            former = self.alarms.get(name)
            alarm: Alarm = super().put_metric_alarm(name=name, **details)
            alarm.state_value = alarms.INSUFFICIENT_DATA
            if former is not None:
                alarm.history = former.history
                for member in ("state_value", "state_reason", "state_reason_data", "state_updated_timestamp"):
                    setattr(alarm, member, getattr(former, member))
            self._evaluate(alarm)
        return alarm

    def put_metric_data(self, namespace: str, metric_data: list[dict[str, Any]]) -> None:
        with self._lock:
            known = len(self.metric_data)
            super().put_metric_data(namespace, metric_data)
            changed = {self._remember(datum) for datum in self.metric_data[known:]}
            for alarm in [*self.alarms.values()]:
                if _metric(alarm.namespace, alarm.metric_name, alarm.dimensions) in changed:
                    self._evaluate(alarm)

    def set_alarm_state(self, alarm_name: str, reason: str, reason_data: str, state_value: str) -> None:
        """SetAlarmState: the actions are taken, and the next evaluation puts the state right again."""
        with self._lock:
            former = _state_of(self.alarms[alarm_name]) if alarm_name in self.alarms else None
            super().set_alarm_state(alarm_name, reason, reason_data, state_value)
            if former is not None and former["value"] != state_value:
                alarm_messages.send(self.alarms[alarm_name], former, _state_of(self.alarms[alarm_name]))

    def evaluate_all(self) -> None:
        with self._lock:
            for alarm in [*self.alarms.values()]:
                self._evaluate(alarm)

    def _remember(self, datum: MetricDatumBase) -> Metric:
        metric = _metric(datum.namespace, datum.name, datum.dimensions)
        series = self._series[metric]
        series.append((datum.unit, _datum(datum)))
        del series[:-_KEPT_SERIES]
        return metric

    def _evaluate(self, alarm: Alarm) -> None:
        try:
            self._judge(alarm)
        except Exception:  # whoever put the data shall not hear of it
            _log.exception("alarm %s was not evaluated", alarm.name)

    def _judge(self, alarm: Alarm) -> None:
        now = datetime.now(UTC)
        rule = _rule(alarm)
        earliest = now - alarms.reach(rule)
        series = self._series.get(_metric(alarm.namespace, alarm.metric_name, alarm.dimensions), ())
        data = [datum for unit, datum in series if datum.time > earliest and alarm.unit in (None, unit)]
        verdict = alarms.judge(rule, data, now)
        if verdict is None or verdict.state == alarm.state_value:
            return
        former = _state_of(alarm)
        alarm.update_state(verdict.reason, verdict.data_json, verdict.state)
        alarm_messages.send(alarm, former, _state_of(alarm))


def _count_messages() -> None:
    """What SQS sends to CloudWatch of each queue, of which here is the metric that alarms on dead letters take."""
    for account, regions in [*sqs_backends.items()]:
        for region, backend in [*regions.items()]:
            for queue in [*backend.queues.values()]:
                metric = {
                    "MetricName": "ApproximateNumberOfMessagesVisible",
                    "Value": float(queue.approximate_number_of_messages),
                    "Unit": "Count",
                    "Dimensions": [{"Name": "QueueName", "Value": queue.name}],
                    "Timestamp": datetime.now(UTC),
                }
                cloudwatch_backends[account][region].put_metric_data("AWS/SQS", [metric])


def _refuse_what_is_not_evaluated(name: str, details: dict[str, Any]) -> None:
    for member, what in _NOT_EVALUATED.items():
        if details.get(member):
            raise InvalidParameterValue(
                f"alarm {name}: the local account does not evaluate {what}; it evaluates alarms on one metric with Statistic"
            )
    for member, what, known in (
        ("comparison_operator", "ComparisonOperator", COMPARISONS),
        ("statistic", "Statistic", STATISTICS),
    ):
        if details.get(member) not in known:
            raise InvalidParameterValue(
                f"alarm {name}: the local account evaluates {what} {', '.join(known)}, got {details.get(member)!r}"
            )
    if (details.get("treat_missing_data") or "missing") not in MISSING:
        raise InvalidParameterValue(
            f"alarm {name}: TreatMissingData must be one of {', '.join(MISSING)}, got {details['treat_missing_data']!r}"
        )
    for member, what in (("period", "Period"), ("evaluation_periods", "EvaluationPeriods"), ("threshold", "Threshold")):
        if details.get(member) is None:
            raise InvalidParameterValue(f"alarm {name}: {what} is missing; an alarm on one metric needs it")
    if details["period"] not in (10, 20, 30) and details["period"] % 60:
        raise InvalidParameterValue(
            f"alarm {name}: Period must be 10, 20, 30 or a multiple of 60, got {details['period']}"
        )
    for member in ("alarm_actions", "ok_actions", "insufficient_data_actions"):
        for arn in details.get(member) or []:
            if ":sns:" not in arn:
                raise InvalidParameterValue(
                    f"alarm {name}: the actions of an alarm must be SNS topics in the local account, "
                    f"like arn:aws:sns:us-east-1:123456789012:mine, got {arn!r}"
                )


def _rule(alarm: Alarm) -> Rule:
    return Rule(
        statistic=alarm.statistic,
        period=timedelta(seconds=alarm.period),
        evaluation_periods=alarm.evaluation_periods,
        datapoints_to_alarm=alarm.datapoints_to_alarm or alarm.evaluation_periods,
        comparison=alarm.comparison_operator,
        threshold=alarm.threshold,
        missing=alarm.treat_missing_data or "missing",
    )


def _metric(namespace: str, name: str, dimensions: Any) -> Metric:
    return namespace, name, frozenset((dimension.name, dimension.value) for dimension in dimensions)


def _datum(datum: Any) -> Datum:
    time = datum.timestamp if datum.timestamp.tzinfo else datum.timestamp.replace(tzinfo=UTC)
    if isinstance(datum, MetricAggregatedDatum):
        return Datum(time, datum.sum, datum.min, datum.max, datum.sample_count)
    return Datum(time, datum.value, datum.value, datum.value, 1)


def _state_of(alarm: Alarm) -> dict[str, Any]:
    return {
        "value": alarm.state_value,
        "reason": alarm.state_reason,
        "reasonData": alarm.state_reason_data,
        "timestamp": alarms.stamp(alarm.state_updated_timestamp.replace(tzinfo=UTC)),
    }
