"""Schedule expressions: `rate(...)` and `cron(...)` of EventBridge's rules and EventBridge Scheduler, `at(...)` of the latter.

Source: "Setting a schedule pattern for scheduled rules" (EventBridge's guide) and "Schedule types in EventBridge Scheduler"
(Scheduler's guide). A local time that daylight saving time skips has no invocation, one that occurs twice has one (the latter).
Ranges past a field's end, such as FRI-MON, and names in lower case are read as Quartz reads them; AWS does not document them.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_UNITS = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1)}
_RATE = re.compile(r"rate\((\d+) (minute|hour|day)(s?)\)", re.ASCII)
_AT = re.compile(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)", re.ASCII)
_MONTHS = {name.upper(): number for number, name in enumerate(calendar.month_abbr) if number}
_WEEKDAYS = {name: number for number, name in enumerate(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"), start=1)}
_LAST_YEAR = 2199


class InvalidExpression(ValueError):
    """A text that is no schedule expression."""


@dataclass(frozen=True)
class Rate:
    """Invocations at a regular interval."""

    interval: timedelta

    def times(self, start: datetime) -> Iterator[datetime]:
        """Yields the times of invocations from ``start`` on, which is the first."""
        while True:
            yield start
            start += self.interval


@dataclass(frozen=True)
class At:
    """One invocation at a local time."""

    local: datetime
    zone: tzinfo

    def times(self, start: datetime) -> Iterator[datetime]:
        """Yields the time, unless it is before ``start``."""
        time = self.local.replace(tzinfo=self.zone).astimezone(UTC)
        if time >= start:
            yield time


@dataclass(frozen=True)
class Cron:
    """Invocations at local times on days of a calendar."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    on: Callable[[date], bool]
    months: tuple[int, ...]
    years: tuple[int, ...]
    zone: tzinfo

    def times(self, start: datetime) -> Iterator[datetime]:
        """Yields the times of invocations from ``start`` on."""
        first = start.astimezone(self.zone)
        for day in self._days_from(first.date()):
            for hour in self.hours:
                for minute in self.minutes:
                    time = datetime(day.year, day.month, day.day, hour, minute, tzinfo=self.zone).astimezone(UTC)
                    local = time.astimezone(self.zone)
                    if time >= start and (local.hour, local.minute) == (hour, minute):
                        yield time

    def _days_from(self, first: date) -> Iterator[date]:
        for year in self.years:
            day = max(first, date(year, 1, 1))
            while day.year == year:
                if day.month in self.months and self.on(day):
                    yield day
                day += timedelta(days=1)


Expression = Rate | At | Cron


def parsed(text: str, zone: tzinfo = UTC, *, of_scheduler: bool = False) -> Expression:
    """Returns the expression of a text.

    Args:
        text: such as "rate(5 minutes)".
        zone: the time zone of its local times.
        of_scheduler: also accepts `at(...)`, and units whose number does not agree with the value.

    Raises:
        InvalidExpression: it is none.
    """
    if match := _RATE.fullmatch(text):
        value, plural = int(match[1]), bool(match[3])
        if not 0 < value < 10**6 or (plural != (value != 1) and not of_scheduler):
            raise InvalidExpression(text)
        return Rate(value * _UNITS[match[2]])
    if of_scheduler and (match := _AT.fullmatch(text)):
        try:
            return At(datetime.fromisoformat(match[1]), zone)
        except ValueError:
            raise InvalidExpression(text) from None
    fields = text[5:-1].split() if text.startswith("cron(") and text.endswith(")") else []
    try:
        minutes, hours, days, months, weekdays, years = fields
        if (days == "?") == (weekdays == "?"):
            raise InvalidExpression(text)
        return Cron(
            _values(minutes, 0, 59),
            _values(hours, 0, 23),
            _days_of_month(days) if weekdays == "?" else _days_of_week(weekdays),
            _values(months, 1, 12, _MONTHS),
            _values(years, 1970, _LAST_YEAR),
            zone,
        )
    except ValueError:
        raise InvalidExpression(text) from None


def zone_of(name: str) -> tzinfo:
    """Returns a time zone of the IANA database.

    Raises:
        InvalidExpression: there is none of that name.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidExpression(name) from None


def _values(field: str, least: int, most: int, names: dict[str, int] | None = None) -> tuple[int, ...]:
    """The values of a field with the wildcards `,`, `-`, `*` and `/`."""
    found: set[int] = set()
    for part in field.split(","):
        whole, slash, step = part.partition("/")
        first, dash, last = whole.partition("-")
        begin = least if whole == "*" else _value(first, least, most, names)
        # With an increment, a single value is where it begins.
        end = most if whole == "*" or (slash and not dash) else _value(last, least, most, names) if dash else begin
        every = _number(step, 1, most) if slash else 1
        span = (end - begin) % (most - least + 1)
        found.update(least + (begin - least + more) % (most - least + 1) for more in range(0, span + 1, every))
    return tuple(sorted(found))


def _value(text: str, least: int, most: int, names: dict[str, int] | None) -> int:
    return names[text.upper()] if names and text.upper() in names else _number(text, least, most)


def _number(text: str, least: int, most: int) -> int:
    if not re.fullmatch(r"[0-9]{1,4}", text) or not least <= int(text) <= most:
        raise ValueError(text)
    return int(text)


def _days_of_month(field: str) -> Callable[[date], bool]:
    """Whether a day is one of the field Day-of-month."""
    if field == "L":
        return lambda day: day.day == _last(day)
    if field.endswith("W"):
        number = _number(field[:-1], 1, 31)
        return lambda day: number <= _last(day) and day == _nearest_workday(day.replace(day=number))
    numbers = _values(field, 1, 31)
    return lambda day: day.day in numbers


def _nearest_workday(day: date) -> date:
    """The working day nearest to a day, in the same month."""
    away = {6: -1, 7: 1}.get(day.isoweekday(), 0)
    nearest = day + timedelta(days=away)
    return nearest if nearest.month == day.month else day - timedelta(days=2 * away)


def _days_of_week(field: str) -> Callable[[date], bool]:
    """Whether a day is one of the field Day-of-week."""
    name, sharp, nth = field.partition("#")
    if sharp:
        weekday, week = _value(name, 1, 7, _WEEKDAYS), _number(nth, 1, 5)
        return lambda day: _weekday(day) == weekday and (day.day + 6) // 7 == week
    if field.endswith("L") and field != "L":
        weekday = _value(field[:-1], 1, 7, _WEEKDAYS)
        return lambda day: _weekday(day) == weekday and day.day + 7 > _last(day)
    weekdays = (7,) if field == "L" else _values(field, 1, 7, _WEEKDAYS)
    return lambda day: _weekday(day) in weekdays


def _weekday(day: date) -> int:
    return day.isoweekday() % 7 + 1


def _last(day: date) -> int:
    return calendar.monthrange(day.year, day.month)[1]
