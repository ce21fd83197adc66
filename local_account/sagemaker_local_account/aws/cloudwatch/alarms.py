"""Evaluation of a metric alarm, as a function of its data.

Source: "Alarm evaluation" and "Configuring how CloudWatch alarms treat missing data" in CloudWatch's guide. AWS's evaluation
range is some periods longer than EvaluationPeriods, here by two. Periods end at the time of the evaluation; AWS evaluates each
minute, the account when a datum arrives.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

OK, ALARM, INSUFFICIENT_DATA = "OK", "ALARM", "INSUFFICIENT_DATA"

# The periods of the evaluation range beyond EvaluationPeriods.
_FURTHER_BACK = 2

# How far a datum's timestamp may be in the future.
_CLOCK_DIFFERENCE = timedelta(seconds=1)

COMPARISONS: dict[str, tuple[Callable[[float, float], bool], str]] = {
    "GreaterThanOrEqualToThreshold": (operator.ge, "greater than or equal to"),
    "GreaterThanThreshold": (operator.gt, "greater than"),
    "LessThanOrEqualToThreshold": (operator.le, "less than or equal to"),
    "LessThanThreshold": (operator.lt, "less than"),
}

STATISTICS = ("Average", "Maximum", "Minimum", "SampleCount", "Sum")

# How a period without data is named in reasons, by TreatMissingData.
MISSING = {"breaching": "Breaching", "notBreaching": "NonBreaching", "ignore": "Ignored", "missing": "Missing"}


@dataclass(frozen=True)
class Rule:
    """The rule of an alarm: statistic, None of metric math, period, threshold, and how missing data are treated."""

    statistic: str | None
    period: timedelta
    evaluation_periods: int
    datapoints_to_alarm: int
    comparison: str
    threshold: float
    missing: str = "missing"
    unit: str | None = None

    def breaching(self, value: float) -> bool:
        """Whether a value breaches the threshold."""
        compare, _ = COMPARISONS[self.comparison]
        return compare(value, self.threshold)


@dataclass(frozen=True)
class Datum:
    """A value, or a statistic set of several values."""

    time: datetime
    total: float
    minimum: float
    maximum: float
    count: float


@dataclass(frozen=True)
class Evaluation:
    """The state of an alarm, with StateReason and StateReasonData."""

    state: str
    reason: str
    data: Mapping[str, Any]

    @property
    def data_json(self) -> str:
        """StateReasonData as JSON."""
        return json.dumps(self.data)


@dataclass(frozen=True)
class _Point:
    """The statistic of one period; ``age`` counts periods back from now, 1 for the newest."""

    age: int
    start: datetime
    value: float


def reach(rule: Rule) -> timedelta:
    """Returns the length of the evaluation range."""
    return rule.period * (rule.evaluation_periods + _FURTHER_BACK)


def evaluate(rule: Rule, series: Sequence[tuple[str, Iterable[Datum]]], now: datetime) -> Evaluation | None:
    """Evaluates an alarm.

    Args:
        rule: the alarm's rule.
        series: the statistic and the data of each metric; of several their sum counts.
        now: the time of the evaluation.

    Returns:
        The new state; None where the alarm keeps its state.
    """
    points = _points(rule, series, now)
    state = _state(rule, points)
    if state is None:
        return None
    evaluated = points[: rule.evaluation_periods]
    return Evaluation(state, _reason(rule, state, evaluated), _reason_data(rule, evaluated, now))


def _points(rule: Rule, series: Sequence[tuple[str, Iterable[Datum]]], now: datetime) -> list[_Point]:
    """The evaluation range's periods that have data, the newest first.

    A metric without data in a period counts as 0 beside one that has some ("Using metric math", Basic arithmetic functions).
    """
    values: dict[int, float] = {}
    for statistic, data in series:
        periods: dict[int, list[Datum]] = {}
        for datum in data:
            if datum.time <= now + _CLOCK_DIFFERENCE:
                periods.setdefault(1 + max(0, (now - datum.time) // rule.period), []).append(datum)
        for age, of_period in periods.items():
            values[age] = values.get(age, 0.0) + _statistic(statistic, of_period)
    last = rule.evaluation_periods + _FURTHER_BACK
    return [_Point(age, now - age * rule.period, values[age]) for age in sorted(values) if age <= last]


def _statistic(name: str, data: Sequence[Datum]) -> float:
    total, count = sum(datum.total for datum in data), sum(datum.count for datum in data)
    return {
        "Average": total / count if count else 0.0,
        "Maximum": max(datum.maximum for datum in data),
        "Minimum": min(datum.minimum for datum in data),
        "SampleCount": count,
        "Sum": total,
    }[name]


def _state(rule: Rule, points: Sequence[_Point]) -> str | None:
    evaluated = points[: rule.evaluation_periods]
    breaching = sum(rule.breaching(point.value) for point in evaluated)
    missing = rule.evaluation_periods - len(evaluated)
    if breaching >= rule.datapoints_to_alarm:
        return ALARM
    if missing and rule.missing == "breaching":
        return ALARM if breaching + missing >= rule.datapoints_to_alarm else OK
    if missing and rule.missing != "notBreaching":
        if not evaluated:
            return None if rule.missing == "ignore" else INSUFFICIENT_DATA
        if _breaching_since(rule, evaluated) >= rule.datapoints_to_alarm:
            return None if rule.missing == "ignore" else ALARM
    return OK


def _breaching_since(rule: Rule, points: Sequence[_Point]) -> int:
    """The number of periods in which all existing data are breaching.

    Such an alarm goes to ALARM with fewer data than DatapointsToAlarm ("Avoiding premature transitions to alarm state").
    """
    since = 0
    for point in points:
        if not rule.breaching(point.value):
            break
        if point.age <= rule.evaluation_periods:
            since = point.age
    return since


def _reason(rule: Rule, state: str, points: Sequence[_Point]) -> str:
    missing = rule.evaluation_periods - len(points)
    if state == INSUFFICIENT_DATA:
        return f"Insufficient Data: {_counted(missing, 'datapoint')} {'was' if missing == 1 else 'were'} unknown."
    if not points:
        return (
            f"Threshold Crossed: no datapoints were received for {_counted(missing, 'period')} and "
            f"{_counted(missing, 'missing datapoint')} {'was' if missing == 1 else 'were'} treated as "
            f"[{MISSING[rule.missing]}]."
        )
    reported = [point for point in points if rule.breaching(point.value) == (state == ALARM)] or [*points]
    values = ", ".join(f"{point.value} ({point.start:%d/%m/%y %H:%M:%S})" for point in reported)
    _, words = COMPARISONS[rule.comparison]
    verb, negation = ("was", "") if len(reported) == 1 else ("were", "")
    if state == OK:
        negation = "not "
    least = rule.datapoints_to_alarm if state == ALARM else rule.evaluation_periods - rule.datapoints_to_alarm + 1
    change = "OK -> ALARM" if state == ALARM else "ALARM -> OK"
    return (
        f"Threshold Crossed: {len(reported)} out of the last {_counted(rule.evaluation_periods, 'datapoint')} [{values}] "
        f"{verb} {negation}{words} the threshold ({rule.threshold}) (minimum {_counted(least, 'datapoint')} for {change} "
        "transition)."
    )


def _reason_data(rule: Rule, points: Sequence[_Point], now: datetime) -> dict[str, Any]:
    oldest_first = [*reversed(points)]
    evaluated: list[dict[str, Any]] = [{"timestamp": stamp(point.start), "value": point.value} for point in points]
    if not points:  # test_cloudwatch.py: test_breaching_alarm_actions
        evaluated = [{"timestamp": stamp(now - age * rule.period)} for age in range(1, rule.evaluation_periods + 1)]
    data: dict[str, Any] = {
        "version": "1.0",
        "queryDate": stamp(now),
        **({} if rule.unit is None else {"unit": rule.unit}),
        **({} if rule.statistic is None else {"statistic": rule.statistic}),
        "period": int(rule.period.total_seconds()),
        "recentDatapoints": [point.value for point in oldest_first],
        "threshold": rule.threshold,
        "evaluatedDatapoints": evaluated,
    }
    return {**data, "startDate": stamp(oldest_first[0].start)} if points else data


def stamp(time: datetime) -> str:
    """Returns a time in the format of CloudWatch's events and reasons, such as 2026-01-31T12:00:00.000+0000."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "+0000")


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
