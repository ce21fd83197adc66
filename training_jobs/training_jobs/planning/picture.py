"""SVG pictures: of a plan, what a million samples cost by samples a second; of a job, what its hosts use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from training_jobs.planning.configurations import Plan, Planned
from training_jobs.planning.evidence import Evidence
from training_jobs.planning.step_time import Configuration, Machines

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 860, 420, 70, 240, 40, 50
_INK, _GRID, _FRONT, _OTHERS = "#333333", "#e2e2e2", "#c05621", "#8aa0b8"
_BARS, _BAR = 120, 400  # pixels: where the bars of utilization begin, and of 100 %
_LABEL = 15  # pixels from a label to the next, at least


def picture(plan: Plan) -> str:
    """Return the picture; the Pareto front is a line with its configurations' names.

    Args:
        plan: With at least one row.
    """
    rates = [one.samples_a_second for one in plan.rows]
    costs = [_dollars(one) for one in plan.rows]
    left, right = math.log(min(rates) / 1.15), math.log(max(rates) * 1.15)
    low, high = math.log(min(costs) / 1.15), math.log(max(costs) * 1.15)

    def place(one: Planned) -> tuple[float, float]:
        x = (math.log(one.samples_a_second) - left) / (right - left)
        y = (math.log(_dollars(one)) - low) / (high - low)
        return _LEFT + x * (_WIDTH - _LEFT - _RIGHT), _HEIGHT - _BOTTOM - y * (_HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">',
        "<title>Configurations: dollars for a million samples, by samples a second</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_LEFT, 20, "dollars for a million samples; both axes are logarithmic"),
        _text(_WIDTH - _RIGHT, _HEIGHT - 12, "samples a second", "end"),
    ]
    for value in _ticks(min(rates), max(rates)):
        x = _LEFT + (math.log(value) - left) / (right - left) * (_WIDTH - _LEFT - _RIGHT)
        parts.append(f'<path d="M{x:.1f} {_TOP} V{_HEIGHT - _BOTTOM}" stroke="{_GRID}"/>')
        parts.append(_text(x, _HEIGHT - _BOTTOM + 18, f"{value:,.6g}", "middle"))
    for value in _ticks(min(costs), max(costs)):
        y = _HEIGHT - _BOTTOM - (math.log(value) - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)
        parts.append(f'<path d="M{_LEFT} {y:.1f} H{_WIDTH - _RIGHT}" stroke="{_GRID}"/>')
        parts.append(_text(_LEFT - 6, y + 4, f"{value:,.4g}", "end"))
    for one in plan.rows:
        x, y = place(one)
        color = _FRONT if one in plan.front else _OTHERS
        name = escape(f"{configuration_text(one.configuration)}: {one.step.bound}")
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}"><title>{name}</title></circle>')
    points = [place(one) for one in plan.front]
    parts.append(
        f'<path d="M{" L".join(f"{x:.1f} {y:.1f}" for x, y in points)}" fill="none" stroke="{_FRONT}" stroke-width="1.5"/>'
    )
    lowest = math.inf
    for one, (x, y) in sorted(zip(plan.front, points, strict=True), key=lambda it: -it[1][1]):
        lowest = min(y + 4, lowest - _LABEL)
        parts.append(_text(x + 8, lowest, escape(configuration_text(one.configuration)), color=_FRONT))
    return "\n".join([*parts, "</svg>", ""])


def configuration_text(configuration: Configuration) -> str:
    """Return the machines in one line, like ``1 p4d.24xlarge + 2 c5.18xlarge, spot``.

    Args:
        configuration: The machines.
    """
    groups: Sequence[Machines | None] = (configuration.train, configuration.data)
    machines = " + ".join(f"{one.count} {one.instance_type.removeprefix('ml.')}" for one in groups if one is not None)
    return f"{machines}, spot" if configuration.spot else machines


def _dollars(one: Planned) -> float:
    return one.step_dollars / one.global_batch * 1e6


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten within a range, and at least its ends."""
    exponents = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    found = [base * 10.0**exponent for exponent in exponents for base in (1, 2, 5)]
    inside = [value for value in found if low / 1.1 <= value <= high * 1.1]
    return inside or sorted({low, high})


def _text(x: float, y: float, what: str, anchor: str = "start", color: str = _INK) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}">{what}</text>'


def utilization_picture(evidence: Evidence) -> str:
    """Return a job's hosts with bars of what each uses of its vCPUs, GPUs and their memory.

    Args:
        evidence: Of the job.
    """
    members = (("cpu", "vCPUs", _OTHERS), ("gpu", "GPUs", _FRONT), ("gpu_memory", "GPU memory", "#b279a2"))
    y, parts = 24, []
    for host in evidence.hosts:
        name = f"{host.host}, {host.group or 'all'}, {host.instance_type}"
        parts.append(_text(10, y, escape(name)))
        for member, label, color in members:
            value = getattr(host, member)
            if value is None:
                continue
            y += 18
            parts.append(_text(_BARS - 8, y, label, "end"))
            parts.append(f'<rect x="{_BARS}" y="{y - 11}" width="{_BAR}" height="13" fill="{_GRID}"/>')
            parts.append(
                f'<rect x="{_BARS}" y="{y - 11}" width="{min(value, 1) * _BAR:.1f}" height="13" fill="{color}"/>'
            )
            parts.append(_text(_BARS + _BAR + 8, y, f"{value:.0%}"))
        y += 30
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {y}" font-family="sans-serif" font-size="12">'
    title = "<title>Mean utilization of each host while the job trained</title>"
    return "\n".join([head, title, f'<rect width="640" height="{y}" fill="white"/>', *parts, "</svg>", ""])
