"""The picture of benchmarks/heterogeneous.py: a step's time by setup, and throughput by data hosts."""

from __future__ import annotations

import math
from typing import Any

from pictures import COLOURS, INK, PALE, box, svg, text

BEGIN, END = "<!-- measured by benchmarks/heterogeneous.py -->", "<!-- measured -->"
BARS = (("ideal", PALE), ("here", COLOURS[0]), ("AWS", COLOURS[1]))
LEFT, WIDE, ROW = 210, 420, 16  # pixels: where bars begin, the longest, one bar's line


def draw(report: dict[str, Any]) -> str:
    parts, y = setups(report["setups"])
    more, y = growth(report["growth"], y + 40)
    return svg(LEFT + WIDE + 110, y, "a training step by setup, and throughput by data hosts", [*parts, *more])


def setups(results: list[dict[str, Any]]) -> tuple[list[str], float]:
    parts = [text(10, 22, "a training step, ms", INK, bold=True, anchor="start")]
    for number, (name, colour) in enumerate(BARS):
        parts.append(box(LEFT + number * 90, 12, 12, 12, colour))
        parts.append(text(LEFT + 18 + number * 90, 22, name, INK, anchor="start"))
    y = 36.0
    for one in results:
        seconds = (one["ideal"], one["measured"]["median"], one["published"])
        # Each workload has its own scale: that of its slowest row.
        workload = one["name"].partition(",")[0]
        longest = max(max(other["published"], other["ideal"]) for other in results if workload in other["name"])
        parts.append(text(10, y + 1.5 * ROW + 4, one["name"], INK, anchor="start"))
        for (_, colour), value in zip(BARS, seconds, strict=True):
            parts.append(box(LEFT, y, WIDE * value / longest, ROW - 3, colour))
            parts.append(text(LEFT + WIDE * value / longest + 6, y + 11, f"{1000 * value:.0f}", INK, anchor="start"))
            y += ROW
        y += 10
    return parts, y


def growth(results: list[dict[str, Any]], top: float) -> tuple[list[str], float]:
    """Both axes are logarithmic, so that linear growth is a straight line."""
    if not results:
        return [], top
    tall = 200.0
    bottom = top + tall
    lowest, highest = (math.log2(pick(one["ideal"] for one in results)) for pick in (min, max))
    last = math.log2(max(one["hosts"] for one in results)) or 1

    def place(hosts: float, rate: float) -> tuple[float, float]:
        return LEFT + WIDE * math.log2(hosts) / last, bottom - tall * (math.log2(rate) - lowest) / (
            highest - lowest or 1
        )

    parts = [text(10, top - 16, "batches/s by data hosts", INK, bold=True, anchor="start")]
    parts.append(f'<path d="M{LEFT - 12} {top} V{bottom + 12} H{LEFT + WIDE + 12}" fill="none" stroke="{INK}"/>')
    path = " L".join("{:g} {:g}".format(*place(one["hosts"], one["ideal"])) for one in results)
    parts.append(f'<path d="M{path}" fill="none" stroke="#bbbbbb" stroke-width="5"/>')
    for one in results:
        x, y = place(one["hosts"], one["measured"]["median"])
        parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="5" fill="{COLOURS[0]}"/>')
        parts.append(text(x + 10, y + 18, f"{one['measured']['median']:.1f}", INK, anchor="start"))
        parts.append(text(x, bottom + 30, str(one["hosts"]), INK))
    parts.append(text(LEFT - 20, top + 20, "grey: ideal", INK, anchor="end"))
    return parts, bottom + 44
