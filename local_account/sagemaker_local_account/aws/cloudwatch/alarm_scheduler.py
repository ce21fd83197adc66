"""CloudWatch's alarms: moto stores them and never evaluates them.

An alarm is evaluated when data of its metric arrive, and each second for missing data. State changes are published to SNS topics
and put on the default event bus. Properties of an alarm that are not evaluated are rejected by name when it is created.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from moto.cloudwatch.exceptions import InvalidParameterValue, ValidationError
from moto.cloudwatch.models import (
    Alarm,
    CloudWatchBackend,
    MetricAggregatedDatum,
    MetricDatumBase,
    cloudwatch_backends,
)
from moto.cloudwatch.responses import CloudWatchResponse
from moto.core.responses import ActionResult
from moto.sqs.models import sqs_backends
from typing_extensions import override

from sagemaker_local_account.aws.cloudwatch import alarm_messages, alarms
from sagemaker_local_account.aws.cloudwatch.alarms import COMPARISONS, MISSING, STATISTICS, Datum, Rule
from sagemaker_local_account.core.clock import CLOCK
from sagemaker_local_account.core.patches import patch

_log = logging.getLogger(__name__)

_EVERY_SECONDS = 1.0
QUEUES_EVERY_SECONDS = 60.0  # as SQS sends its metrics ("Monitoring Amazon SQS queues using CloudWatch")
_KEPT_SERIES = 20_000  # data per metric; AWS's evaluation range is at most a day, or a week with periods of an hour

Metric = tuple[str, str, frozenset[tuple[str, str]]]


class Term(NamedTuple):
    """One of the metrics whose sum an alarm watches, with its statistic, and its period in seconds."""

    metric: Metric
    statistic: str
    period: int
    unit: str | None


# The properties of alarms that are not supported, by the parameter of moto's put_metric_alarm.
_NOT_EVALUATED = {
    "extended_statistic": "ExtendedStatistic (percentiles)",
    "evaluate_low_sample_count_percentile": "EvaluateLowSampleCountPercentile",
    "threshold_metric_id": "ThresholdMetricId (anomaly detection)",
    "rule": "AlarmRule (composite alarms)",
}
# What an alarm keeps that is put again.
_KEPT = ("state_value", "state_reason", "state_reason_data", "state_updated_timestamp", "state_transitioned_timestamp")
# That an alarm with Metrics does not have (API, PutMetricAlarm).
_OF_ONE_METRIC = ("namespace", "metric_name", "dimensions", "period", "unit", "statistic")


def install() -> None:
    """Patches moto's CloudWatch; to be called before its first use in an account."""
    patch(cloudwatch_backends, "backend", Backend)
    patch(CloudWatchResponse, "get_metric_data", _with_messages, "self")


def _with_messages(self: CloudWatchResponse) -> ActionResult:
    """GetMetricData, with the list of messages that AWS always has (test_cloudwatch.py: test_get_metric_data_stats)."""
    found = _moto_get_metric_data(self)
    return ActionResult({**found.result, "Messages": []})


_moto_get_metric_data = CloudWatchResponse.get_metric_data


class AlarmScheduler:
    """A thread that evaluates every alarm each second, and puts the metrics of queues each minute."""

    def __init__(self) -> None:
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="alarms", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        counted = CLOCK.monotonic()
        while not self._closed.wait(_EVERY_SECONDS):
            if CLOCK.monotonic() - counted >= QUEUES_EVERY_SECONDS:
                counted = CLOCK.monotonic()
                _count_messages()
            for regions in [*cloudwatch_backends.values()]:
                for backend in [*regions.values()]:
                    backend.evaluate_all()

    def close(self) -> None:
        """Ends the thread."""
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
        # Reentrant: an alarm's action may put data in the same thread.
        self._lock = threading.RLock()
        self._series: dict[Metric, list[tuple[Any, Datum]]] = defaultdict(list)
        self._asked = threading.local()

    def put_metric_alarm(self, name: str, **details: Any) -> Alarm:
        """Creates an alarm, or updates one, which keeps its state. New alarms are in INSUFFICIENT_DATA, moto's in OK."""
        _refuse_what_is_not_evaluated(name, details)
        with self._lock:
            former = self.alarms.get(name)
            alarm: Alarm = super().put_metric_alarm(name=name, **details)
            alarm.metric_data_queries = alarm.metric_data_queries or None  # of one metric DescribeAlarms has no Metrics
            alarm.state_value = alarms.INSUFFICIENT_DATA
            vars(alarm)["state_reason_data"] = None  # moto's is an empty object, which AWS leaves out
            vars(alarm)["state_transitioned_timestamp"] = alarm.state_updated_timestamp
            if former is not None:
                alarm.history = former.history
                for member in _KEPT:
                    setattr(alarm, member, getattr(former, member))
            self._evaluate(alarm)
        return alarm

    @override
    def put_metric_data(self, namespace: str, metric_data: list[dict[str, Any]]) -> None:
        with self._lock:
            known = len(self.metric_data)
            super().put_metric_data(namespace, metric_data)
            changed = {self._remember(datum) for datum in self.metric_data[known:]}
            for alarm in [*self.alarms.values()]:
                if any(term.metric in changed for term in _terms(alarm)):
                    self._evaluate(alarm)

    @override
    def get_all_metrics(self) -> list[MetricDatumBase]:
        """All data, with times in UTC; those of moto's own metrics have no zone, which it cannot compare with a call's."""
        found: list[MetricDatumBase] = super().get_all_metrics()
        for datum in found:
            datum.timestamp = _in_utc(datum.timestamp)
        asked = getattr(self._asked, "metric", None)
        return [it for it in found if asked in (None, _metric(it.namespace, it.name, it.dimensions))]

    @contextmanager
    def _only(self, namespace: str, name: str, dimensions: list[dict[str, str]]) -> Iterator[None]:
        """One metric's data alone; moto's are those of any namespace, and without dimensions of any."""
        self._asked.metric = namespace, name, frozenset((it["Name"], it.get("Value", "")) for it in dimensions)
        try:
            yield
        finally:
            self._asked.metric = None

    @override
    def get_metric_data(
        self, queries: list[dict[str, Any]], start_time: datetime, end_time: datetime, **options: Any
    ) -> list[dict[str, Any]]:
        """The metrics, and of metric math what adds a number to one, or takes it away, in the order of the queries."""
        found: dict[str, dict[str, Any]] = {}
        for number, query in enumerate(queries, start=1):
            if "MetricStat" in query:
                metric = query["MetricStat"]["Metric"]
                for name in ("Namespace", "MetricName"):
                    if not metric.get(name):  # in the words in which AWS asks for MetricStat, which moto has
                        member = f"MetricDataQueries.member.{number}.MetricStat.Metric.{name}"
                        raise ValidationError(f"The parameter {member} is required.\n")
                named = {"Label": _label(query["MetricStat"], queries), **query, "ReturnData": True}
                with self._only(metric["Namespace"], metric["MetricName"], metric.get("Dimensions", [])):
                    [found[query["Id"]]] = super().get_metric_data(
                        [named], _in_utc(start_time), _in_utc(end_time), **options
                    )
        for query in queries:
            if "Expression" in query:
                of, added = _shift(query["Expression"])
                if of not in found:
                    raise InvalidParameterValue(f"{query['Expression']!r} names no metric of {sorted(found)}")
                values = [value + added for value in found[of]["values"]]
                found[query["Id"]] = {
                    **found[of],
                    "id": query["Id"],
                    "label": query.get("Label") or query["Id"],
                    "values": values,
                }
        return [found[query["Id"]] for query in queries if query.get("ReturnData", True)]

    @override
    def get_metric_statistics(
        self,
        namespace: str,
        metric_name: str,
        start_time: datetime,
        end_time: datetime,
        period: int,
        stats: list[str],
        dimensions: list[dict[str, str]],
        unit: str | None = None,
    ) -> list[Any]:
        start, end = _in_utc(start_time), _in_utc(end_time)
        with self._only(namespace, metric_name, dimensions or []):
            return list(
                super().get_metric_statistics(namespace, metric_name, start, end, period, stats, dimensions, unit)
            )

    @override
    def delete_alarms(self, alarm_names: list[str]) -> None:
        for alarm in [*self.alarms.values()]:
            if alarm.name in alarm_names:
                self.tagger.delete_all_tags_for_resource(alarm.alarm_arn)
        super().delete_alarms(alarm_names)

    def set_alarm_state(self, alarm_name: str, reason: str, reason_data: str, state_value: str) -> None:
        """SetAlarmState: the alarm's actions are performed; the next evaluation sets the state again."""
        with self._lock:
            former = _state_of(self.alarms[alarm_name]) if alarm_name in self.alarms else None
            super().set_alarm_state(alarm_name, reason, reason_data, state_value)
            if former is not None and former["value"] != state_value:
                changed: Any = self.alarms[alarm_name]
                changed.state_transitioned_timestamp = changed.state_updated_timestamp
                alarm_messages.send(self.alarms[alarm_name], former, _state_of(self.alarms[alarm_name]))

    def evaluate_all(self) -> None:
        """Evaluates all alarms."""
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
            self._update_state(alarm)
        except Exception:  # PutMetricData does not fail
            _log.exception("alarm %s was not evaluated", alarm.name)

    def _update_state(self, alarm: Alarm) -> None:
        now, terms = CLOCK.now(), _terms(alarm)
        rule = _rule(alarm, terms[0].period)
        earliest = now - alarms.reach(rule)
        series = [
            (
                term.statistic,
                [
                    datum
                    for unit, datum in self._series.get(term.metric, ())
                    if datum.time > earliest and term.unit in (None, unit)
                ],
            )
            for term in terms
        ]
        evaluation = alarms.evaluate(rule, series, now)
        if evaluation is None or evaluation.state == alarm.state_value:
            return
        former = _state_of(alarm)
        alarm.update_state(evaluation.reason, evaluation.data_json, evaluation.state)
        vars(alarm)["state_transitioned_timestamp"] = alarm.state_updated_timestamp
        alarm_messages.send(alarm, former, _state_of(alarm))


def _count_messages() -> None:
    """Puts SQS's metric ApproximateNumberOfMessagesVisible of each queue, which alarms on dead-letter queues use."""
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


def _label(stat: dict[str, Any], queries: list[dict[str, Any]]) -> str:
    """The label of a query that has none: the metric's name, and what the queries differ in (test_label_generation)."""
    all_stats = [query["MetricStat"] for query in queries if "MetricStat" in query]
    differ = [str(stat[name]) for name in ("Stat", "Period") if len({str(it[name]) for it in all_stats}) > 1]
    return " ".join([stat["Metric"]["MetricName"], *differ])


def _shift(expression: str) -> tuple[str, float]:
    """The id of the metric that an expression adds a number to, and the number."""
    found = re.fullmatch(r"(?P<id>[a-z]\w*)(?: *(?P<sign>[+-]) *(?P<number>[0-9.]+(?:e[+-]?[0-9]+)?))?", expression)
    if found is None:
        raise InvalidParameterValue(
            "of metric math the local account evaluates an id, and an id plus or minus a number, like 'm + 0.01', got "
            f"{expression!r}"
        )
    return found["id"], float(f"{found['sign'] or '+'}{found['number'] or 0}")


def _refuse_what_is_not_evaluated(name: str, details: dict[str, Any]) -> None:
    for member, what in _NOT_EVALUATED.items():
        if details.get(member):
            raise InvalidParameterValue(
                f"alarm {name}: the local account does not support {what}; it supports alarms on one metric with Statistic, and "
                "on a sum of several"
            )
    if queries := details.get("metric_data_queries"):
        if beside := [member for member in _OF_ONE_METRIC if details.get(member)]:
            raise InvalidParameterValue(f"alarm {name}: Metrics stand in place of {', '.join(beside)}, not beside")
        _refuse_other_math(name, queries)
        stats = [query.metric_stat for query in queries if query.metric_stat]
        details = {**details, "statistic": stats[0].stat, "period": stats[0].period}
    for member, what, known in (
        ("comparison_operator", "ComparisonOperator", COMPARISONS),
        ("statistic", "Statistic", STATISTICS),
    ):
        if details.get(member) not in known:
            raise InvalidParameterValue(
                f"alarm {name}: {what} must be one of {', '.join(known)} in the local account, got {details.get(member)!r}"
            )
    if (details.get("treat_missing_data") or "missing") not in MISSING:
        raise InvalidParameterValue(
            f"alarm {name}: TreatMissingData must be one of {', '.join(MISSING)}, got {details['treat_missing_data']!r}"
        )
    for member, what in (("period", "Period"), ("evaluation_periods", "EvaluationPeriods"), ("threshold", "Threshold")):
        if details.get(member) is None:
            raise InvalidParameterValue(f"alarm {name}: {what} is missing; an alarm on one metric requires it")
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


def _refuse_other_math(name: str, queries: list[Any]) -> None:
    """Rejects metric math that is no sum of metrics, each once, with one statistic and period."""
    stats = {query.id: query.metric_stat for query in queries if query.metric_stat}
    watched = [query for query in queries if query.return_data in (None, True)]
    ids = [] if len(watched) != 1 else _summed(watched[0])
    kinds = {(stat.stat, stat.period) for stat in stats.values()}
    if not ids or sorted(ids) != sorted(stats) or len(kinds) != 1 or len(queries) > len(stats) + 1:
        text = ", ".join(query.expression or query.id for query in queries)
        raise InvalidParameterValue(
            f"alarm {name}: of metric math the local account evaluates a sum of metrics with one Stat and Period, of which alone "
            f"ReturnData is true, like 'm1 + m2', got {text!r}"
        )


def _summed(query: Any) -> list[str]:
    """The ids of the metrics whose sum an alarm watches."""
    return [query.id] if query.expression is None else re.split(r" *\+ *", query.expression.strip())


def _terms(alarm: Alarm) -> list[Term]:
    """The metrics whose sum an alarm watches."""
    stats = [query.metric_stat for query in alarm.metric_data_queries or () if query.metric_stat]
    return [_term(stat.metric, stat.stat, stat.period, stat.unit) for stat in stats] or [
        _term(alarm, alarm.statistic, alarm.period, alarm.unit)
    ]


def _term(of: Any, statistic: str, period: Any, unit: str | None) -> Term:
    return Term(_metric(of.namespace, of.metric_name, of.dimensions), statistic, int(period), unit)


def _rule(alarm: Alarm, period: int) -> Rule:
    return Rule(
        statistic=alarm.statistic,
        period=timedelta(seconds=period),
        evaluation_periods=alarm.evaluation_periods,
        datapoints_to_alarm=alarm.datapoints_to_alarm or alarm.evaluation_periods,
        comparison=alarm.comparison_operator,
        threshold=alarm.threshold,
        missing=alarm.treat_missing_data or "missing",
        unit=alarm.unit,
    )


def _metric(namespace: str, name: str, dimensions: Any) -> Metric:
    return namespace, name, frozenset((dimension.name, dimension.value) for dimension in dimensions)


def _datum(datum: Any) -> Datum:
    # Clients and hosts have the machine's clock.
    time = _in_utc(datum.timestamp) + timedelta(seconds=CLOCK.ahead)
    if isinstance(datum, MetricAggregatedDatum):
        return Datum(time, datum.sum, datum.min, datum.max, datum.sample_count)
    return Datum(time, datum.value, datum.value, datum.value, 1)


def _in_utc(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _state_of(alarm: Alarm) -> dict[str, Any]:
    return {
        "value": alarm.state_value,
        "reason": alarm.state_reason,
        **({"reasonData": alarm.state_reason_data} if alarm.state_reason_data else {}),
        "timestamp": alarms.stamp(alarm.state_updated_timestamp.replace(tzinfo=UTC)),
    }
