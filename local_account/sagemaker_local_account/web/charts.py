"""Charts of the job's page: a metric's curve, and its phases as one bar. Jinja writes them as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

WIDTH, HEIGHT, _LEFT, _TOP, _BOTTOM = 640, 170, 92, 10, 24


@dataclass(frozen=True)
class Curve:
    """A metric over the time of the job, in the units of a drawing of `WIDTH` by `HEIGHT`.

    Args:
        name: the metric's name.
        points: of the line, as SVG has them; empty for a single value, which is no curve.
        last: the last value.
        most: the greatest value.
        least: the least value; empty where it is the greatest.
        begin: when it begins, since the job was created.
        end: when it ends; empty where it begins then.
    """

    name: str
    points: str
    last: str
    most: str
    least: str
    begin: str
    end: str


@dataclass(frozen=True)
class Phase:
    """A phase of a job.

    Args:
        name: such as "Training".
        seconds: its length so far.
        share: of all phases, in percent; at least 1, so that it is seen.
        message: what the job says of it.
    """

    name: str
    seconds: float
    share: float
    message: str

    @property
    def text(self) -> str:
        """Its length as text."""
        return duration(self.seconds)


def curves(series: Mapping[str, Sequence[tuple[datetime, float]]], created: datetime) -> list[Curve]:
    """Returns the curves of metrics; values that are not finite are left out, as are metrics without others."""
    found = []
    for name, all_points in series.items():
        points = [((when - created).total_seconds(), value) for when, value in all_points if math.isfinite(value)]
        if not points:
            continue
        (start, _), (end, last) = points[0], points[-1]
        low, high = min(value for _, value in points), max(value for _, value in points)
        placed = [
            (
                _LEFT + (seconds - start) / ((end - start) or 1) * (WIDTH - _LEFT - 8),
                _TOP + (high - value) / ((high - low) or 1) * (HEIGHT - _BOTTOM - _TOP),
            )
            for seconds, value in points
        ]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed) if len(placed) > 1 else ""
        least, begins, ends = number(low) if low < high else "", duration(start), duration(end)
        found.append(Curve(name, line, number(last), number(high), least, begins, ends if ends != begins else ""))
    return found


def phases(job: Mapping[str, Any]) -> list[Phase]:
    """Returns the phases of a job that took time: Completed, Failed and Stopped are none."""
    found: list[tuple[str, float, str]] = []
    for it in job.get("SecondaryStatusTransitions", []):
        if it["Status"] != job["TrainingJobStatus"]:
            seconds = ((it.get("EndTime") or datetime.now(UTC)) - it["StartTime"]).total_seconds()
            found.append((it["Status"], max(seconds, 0.0), it.get("StatusMessage", "")))
    shares = _shares([seconds for _, seconds, _ in found])
    return [Phase(name, seconds, share, message) for (name, seconds, message), share in zip(found, shares, strict=True)]


def _shares(seconds: Iterable[float]) -> list[float]:
    given = [*seconds]
    whole = sum(given) or 1.0
    shares = [max(it / whole * 100, 1.0) for it in given]
    return [it / sum(shares) * 100 for it in shares]


def duration(seconds: float) -> str:
    """Returns a duration such as "1 h 02 min", "3 min 20 s", "12 s" or "0.4 s"."""
    total = int(seconds)
    hours, minutes = total // 3600, total % 3600 // 60
    if hours:
        return f"{hours} h {minutes:02} min"
    if minutes:
        return f"{minutes} min {total % 60:02} s"
    return f"{seconds:.1f} s" if seconds < 10 else f"{total} s"


def number(value: float) -> str:
    """Returns a number of four digits that count, without an exponent between 0.0001 and 10 million."""
    text = f"{value:.4g}"
    if "e" not in text:
        return text
    return f"{value:,.0f}" if 1 <= abs(value) < 1e7 else text
