"""The picture of ``watch``: at least 80 columns and 24 lines, of one colour or several."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from training_jobs.cli.cost_text import cost_line
from training_jobs.cli.output import duration, figures
from training_jobs.client.cost import machine_times
from training_jobs.client.hosts import host_groups

if TYPE_CHECKING:
    from training_jobs.cli.watch_state import Watched
    from training_jobs.client.executions import StateVisit

_BARS = "▁▂▃▄▅▆▇█"
_COLORS = {
    "SUCCEEDED": "green",
    "Completed": "green",
    "RUNNING": "cyan",
    "InProgress": "cyan",
    "Stopping": "yellow",
    "Stopped": "yellow",
}
_SPARK_WIDTH = 32
_HEADING, _GAP = 10, 2  # columns of a row's heading, and after it
_MOST_METRICS, _MOST_GROUPS = 6, 4


def picture(watched: Watched, prices: Mapping[str, float], *, width: int, height: int) -> RenderableType:
    """Return what is watched, as rich prints it.

    Args:
        watched: What is watched.
        prices: Dollars an hour by type of machine.
        width: How many columns it may have.
        height: How many lines it may have.
    """
    table = Table.grid(padding=(0, _GAP))
    table.add_column(style="dim", no_wrap=True, min_width=_HEADING)
    table.add_column(no_wrap=True, overflow="ellipsis")
    rows = list(_rows(watched, prices, width - _HEADING - _GAP))
    for heading, text in rows:
        table.add_row(heading, text)
    # None where there is no room: a picture higher than the terminal would scroll its first row away.
    room = max(height - len(rows) - 1, 0)
    lines = [line for line in watched.lines if line.message.strip()][-room:] if room else []
    longest = max((len(line.host) for line in lines), default=0)
    shown = [Text(f"{line.host:<{longest}}  {line.message}", no_wrap=True, overflow="ellipsis") for line in lines]
    # The terminal echoes Ctrl-C where the picture ends; in a full line it would begin another, and move the picture.
    return Group(table, Text(""), Padding(Group(*shown), (0, len("^C"), 0, 0))) if shown else table


def save_svg(watched: Watched, prices: Mapping[str, float], file: Path) -> None:
    """Write the picture as an SVG file of 80 columns and 24 lines at most.

    Args:
        watched: What is watched.
        prices: Dollars an hour by type of machine.
        file: The file.
    """
    console = Console(record=True, width=80, height=24, file=io.StringIO(), force_terminal=True)
    console.print(picture(watched, prices, width=80, height=24))
    console.save_svg(str(file), title="training-jobs watch")


def sparkline(values: Sequence[float], width: int) -> str:
    """Return bars of values' heights.

    Args:
        values: The values; more of them than ``width`` are drawn by the last of each stretch, and those not finite as a dot.
        width: How many bars at most.
    """
    count = min(len(values), width)
    drawn = [values[(index + 1) * len(values) // count - 1] for index in range(count)]
    finite = [value for value in drawn if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    return "".join(_bar(value, low, high) for value in drawn)


def _bar(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return "·"
    # Of halves, since the difference of two very large numbers is infinite.
    share = (value / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.5
    return _BARS[round(share * (len(_BARS) - 1))]


def _rows(watched: Watched, prices: Mapping[str, float], room: int) -> Iterable[tuple[str, Text]]:
    if watched.lost is not None:
        yield "connection", Text(f"lost, trying again: {watched.lost}", style="bold red")
    if watched.execution is not None:
        status = watched.execution["status"]
        yield "execution", _status(status, f"{duration(watched.seconds)}  {watched.execution['name']}")
        yield "states", _states(watched.states, room)
        for state in watched.states:
            if state.errors:
                yield "  retried", Text(f"{state.name} x{len(state.errors)}: {state.errors[-1]}", style="yellow")
            for failure in state.failures:
                if watched.job is None or not failure.startswith(f"{watched.job['TrainingJobName']} "):
                    yield "  before", Text(" ".join(failure.split()), style="yellow")
    job = watched.job
    if job is None:
        return
    yield "job", Text(job["TrainingJobName"])  # alone: of 63 characters, it is whole in 80 columns
    yield "status", _status(job["TrainingJobStatus"])
    if job.get("FailureReason"):
        yield "why", Text(" ".join(job["FailureReason"].split()), style="red")
    yield "phases", Text.from_markup(_phases(job))
    yield from _groups(job, watched.groups, watched.utilization)
    yield "machines", Text(cost_line(machine_times(job), prices))
    width = max((len(name) for name in watched.metrics), default=0)
    for name, values in [*watched.metrics.items()][:_MOST_METRICS]:
        line = Text(f"{name:<{width}}  ")
        line.append(sparkline([*values], _SPARK_WIDTH).ljust(_SPARK_WIDTH), style="cyan")
        yield "metric", line.append(f"  {figures(values[-1], 6)}", style="bold")


def _status(status: str, rest: str = "") -> Text:
    """The status first, since a long name is cut."""
    shown = Text(status, style=f"bold {_COLORS.get(status, 'red')}")
    return shown.append(f"  {rest}", style="not bold default") if rest else shown


def _states(states: Sequence[StateVisit], room: int) -> Text:
    """The last states that there is room for."""
    names = [f"{state.name} x{state.times}" if state.times > 1 else state.name for state in states]
    first = 0
    while first < len(names) - 1 and len(" > ".join(names[first:])) + (len("... > ") if first else 0) > room:
        first += 1
    line = Text("... > " if first else "", style="dim")
    for number in range(first, len(names)):
        line.append(" > " if number > first else "", style="dim")
        line.append(names[number], style="not dim" if states[number].over else "not dim bold cyan")
    return line


def _phases(job: Mapping[str, Any]) -> str:
    parts = []
    for phase in job.get("SecondaryStatusTransitions", []):
        if phase["Status"] == job["TrainingJobStatus"]:  # Completed, Failed and Stopped are no phases
            continue
        end = phase.get("EndTime")
        name = escape(phase["Status"])
        parts.append(f"{name} {duration(end - phase['StartTime'])}" if end else f"[bold cyan]{name}[/]")
    return ", ".join(parts)


def _groups(
    job: Mapping[str, Any], hosts_in_log: Mapping[str, str], used: Mapping[str, Mapping[str, float]]
) -> Iterable[tuple[str, Text]]:
    groups = host_groups(job, hosts_in_log)
    for number, group in enumerate(groups):
        if number == _MOST_GROUPS:
            yield "hosts", Text(f"and {len(groups) - _MOST_GROUPS} more groups")
            return
        names = group.hosts
        several = f"{group.count} hosts" if not names else f"{names[0]} and {len(names) - 1} more"
        hosts = names[0] if len(names) == 1 else several
        line = Text(f"{group.name or 'all'} {group.instance_type}  {hosts}")
        known = [used[host] for host in names if host in used]
        for member, what in (("cpu", "CPU"), ("gpu", "GPU")):
            if any(member in it for it in known):
                line.append(f"  {what} {fmean(it[member] for it in known if member in it):.0%}", style="bold")
        yield "hosts", line
