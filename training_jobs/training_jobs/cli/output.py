"""How commands print: JSON, tables, durations."""

from __future__ import annotations

import json
import math
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import typer

_GAP = "  "
_LEAST_WIDTH = 12  # of a name that is cut


def print_json(value: Any) -> None:
    """Print a value as JSON; times are ISO 8601.

    Args:
        value: What json.dumps takes, and times.
    """
    typer.echo(json.dumps(value, indent=2, default=_text))


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, cut: str = "", leave_out: Sequence[str] = ()
) -> None:
    """Print left-aligned columns, without colours or lines, so that ``awk`` can read them.

    A terminal that is too narrow gets a line that says what it lacks; a pipe or a file gets all of it.

    Args:
        headings: Of the columns.
        rows: Their texts.
        cut: The heading of the column whose texts are cut in the middle where a terminal is too narrow, to what can be pasted.
        leave_out: The headings of the columns that are left out first, in this order.
    """
    columns = list(zip(headings, *rows, strict=True))
    room = _room()
    missing = []
    for heading in leave_out:
        if room is not None and _width(columns) > room:
            columns = [column for column in columns if column[0] != heading]
            missing.append(heading)
    if room is not None and (too_wide := _width(columns) - room) > 0:
        columns = [_cut(column, too_wide) if column[0] == cut else column for column in columns]
    widths = [max(map(len, column)) for column in columns]
    for row in zip(*columns, strict=True):
        typer.echo(_GAP.join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    if missing:
        typer.echo(f"left out for {room} columns: {', '.join(missing)}; a wider terminal, a pipe and --json have them")


def print_indented(begin: str, text: str) -> None:
    """Print a text behind what begins its first line, wrapped where a terminal is too narrow; a pipe gets the lines as they are.

    Args:
        begin: What stands before the first line, and is blank before the others.
        text: The text.
    """
    room = _room()
    if room is None:
        typer.echo(begin + text)
        return
    width = max(room - len(begin), _LEAST_WIDTH)
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, width) or [""]]
    typer.echo(begin + f"\n{' ' * len(begin)}".join(lines))


def _room() -> int | None:
    """The columns of the terminal; None for a pipe or a file."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _width(columns: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, column)) for column in columns) + len(_GAP) * (len(columns) - 1)


def _cut(column: Sequence[str], too_wide: int) -> tuple[str, ...]:
    from training_jobs.client.names import elided

    width = max(max(map(len, column)) - too_wide, _LEAST_WIDTH)
    return tuple(elided(text, width) for text in column)


def duration(seconds: float | timedelta) -> str:
    """Return a duration such as ``1 h 02 min``, ``3 min 20 s`` or ``12 s``.

    Args:
        seconds: Its length.
    """
    total = int(seconds.total_seconds() if isinstance(seconds, timedelta) else seconds)
    hours, minutes = total // 3600, total % 3600 // 60
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {total % 60:02} s" if minutes else f"{total} s"


def figures(value: float, digits: int = 4) -> str:
    """Return a number of some digits that count, without an exponent, such as ``11,850`` and ``0.0012``.

    Args:
        value: The number.
        digits: How many.
    """
    rounded = float(f"{value:.{digits}g}")
    if not math.isfinite(rounded):
        return str(rounded)
    decimals = max(digits - 1 - math.floor(math.log10(abs(rounded))), 0) if rounded else 0
    text = f"{rounded:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def clock(time: datetime) -> str:
    """Return a time of day of this machine's time zone, such as ``14:03:59``.

    Args:
        time: The time, with its zone.
    """
    return time.astimezone().strftime("%H:%M:%S")


def _text(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
