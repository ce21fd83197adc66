"""How commands print: JSON, tables, durations."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import typer


def print_json(value: Any) -> None:
    """Print a value as JSON; times are ISO 8601.

    Args:
        value: What json.dumps takes, and times.
    """
    typer.echo(json.dumps(value, indent=2, default=_text))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print left-aligned columns, without colours or lines, so that ``awk`` can read them.

    Args:
        headings: Of the columns.
        rows: Their texts.
    """
    table = [list(headings), *(list(row) for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(headings))]
    for row in table:
        typer.echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


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
