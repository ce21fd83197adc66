"""Charts as SVG elements inside a page: no script, no file, no outside address."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from training_jobs.cli.output import duration, figures

COLORS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#718096")
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640, 200, 92, 24  # of a chart and its margins, in units that the page scales
_ROW = 44  # of the timeline: a line of text and a bar

Points = Sequence[tuple[float, float]]


def line_chart(name: str, series: Mapping[str, Points], *, named: bool = True) -> str:
    """Return a chart of lines over seconds.

    Args:
        name: Its name.
        series: For each line's name its points, seconds and value; values that are not finite are left out.
        named: Whether its caption has the lines' names.
    """
    finite = {key: [it for it in points if math.isfinite(it[1])] for key, points in series.items()}
    shown = [it for points in finite.values() for it in points]
    if not shown:
        return f"<figure><figcaption>{escape(name)}: no values</figcaption></figure>"
    start, end = min(it[0] for it in shown), max(it[0] for it in shown)
    low, high = min(it[1] for it in shown), max(it[1] for it in shown)
    span = (high - low) or 1.0

    def place(point: tuple[float, float]) -> str:
        x = _LEFT + (point[0] - start) / ((end - start) or 1.0) * (_WIDTH - _LEFT - 8)
        y = 8 + (high - point[1]) / span * (_HEIGHT - _BOTTOM - 8)
        return f"{x:.1f},{y:.1f}"

    lines = "".join(
        f'<polyline fill="none" stroke="{COLORS[number % len(COLORS)]}" stroke-width="{_stroke(points)}" '
        f'stroke-linecap="round" points="{" ".join(map(place, [*points, points[-1]]))}"><title>{escape(key)}</title></polyline>'
        for number, (key, points) in enumerate(finite.items())
        if points
    )
    labels = (
        f'<text x="{_LEFT - 6}" y="16" text-anchor="end">{figures(high, 3)}</text>'
        + (
            f'<text x="{_LEFT - 6}" y="{_HEIGHT - _BOTTOM}" text-anchor="end">{figures(low, 3)}</text>'
            if low < high
            else ""
        )
        + f'<text x="{_LEFT}" y="{_HEIGHT - 4}">{_time(start, end - start)}</text>'
        + (
            f'<text x="{_WIDTH - 8}" y="{_HEIGHT - 4}" text-anchor="end">{_time(end, end - start)}</text>'
            if end > start
            else ""
        )
    )
    last = ", ".join(
        (f'<b class="color-{number % len(COLORS)}">{escape(key)}</b> ' if named else "")
        + f"<b>{figures(points[-1][1], 6)}</b>"
        for number, (key, points) in enumerate(finite.items())
        if points
    )
    if len(shown) == 1:  # a value is no line
        return f"<figure><figcaption>{escape(name)}: {last} at {_time(start, start)}</figcaption></figure>"
    return f"<figure><figcaption>{escape(name)}: {last}</figcaption>{_svg(_HEIGHT, lines + labels)}</figure>"


def _time(seconds: float, span: float) -> str:
    """A time of an axis, with tenths of a second on a short one."""
    return f"{seconds:.1f} s" if span < 10 else duration(seconds)


def _stroke(points: Points) -> int:
    """Of a line, or of a single point, which a line of no length with round ends draws as a dot."""
    return 2 if len(points) > 1 else 8


def timeline(phases: Sequence[tuple[str, float, float]]) -> str:
    """Return bars below each other, each below its name.

    Args:
        phases: The name of each, and its start and end in seconds.
    """
    end = max((it[2] for it in phases), default=1.0) or 1.0
    bars = []
    for row, (name, start, stop) in enumerate(phases):
        x, width, y = start / end * _WIDTH, max((stop - start) / end * _WIDTH, 2), row * _ROW
        bars.append(
            f'<text x="0" y="{y + 20}">{escape(name)}, {_time(stop - start, stop - start)}</text>'
            f'<rect x="{min(x, _WIDTH - 2):.1f}" y="{y + 27}" width="{width:.1f}" height="12" '
            f'fill="{COLORS[row % len(COLORS)]}"/>'
        )
    return f"<figure>{_svg(max(len(phases), 1) * _ROW, ''.join(bars))}</figure>"


def _svg(height: int, content: str) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">{content}</svg>'
