"""Costs as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import typer

from training_jobs.cli.output import duration
from training_jobs.client.cost import MachineTime, cost_of


def prices_of(given: Sequence[str] | None) -> dict[str, float]:
    """Return dollars an hour by type.

    Args:
        given: ``TYPE=DOLLARS`` each.

    Raises:
        BadParameter: One is not of that form.
    """
    return numbers_of(given, "--price", "TYPE=DOLLARS, like ml.g5.xlarge=1.408")


def numbers_of(given: Sequence[str] | None, option: str, form: str) -> dict[str, float]:
    """Return numbers by name.

    Args:
        given: ``NAME=NUMBER`` each.
        option: The option's name, for the error.
        form: Of each, with an example, for the error.

    Raises:
        BadParameter: One is not of that form.
    """
    numbers = {}
    for text in given or []:
        name, _, number = text.partition("=")
        try:
            numbers[name] = float(number)
        except ValueError:
            raise typer.BadParameter(f"must be {form}, got {text!r}", param_hint=option) from None
    return numbers


def cost_line(times: Sequence[MachineTime], prices: Mapping[str, float], *, at_most: bool = False) -> str:
    """Return machines, their time so far and at most, and dollars where the prices are known.

    Args:
        times: The machines' times.
        prices: Dollars an hour by type.
        at_most: Leave out the time so far.
    """
    machines = ", ".join(f"{it.count} x {it.instance_type}" for it in times)
    seconds, limit = (max((getattr(it, key) for it in times), default=0) for key in ("seconds", "limit_seconds"))
    cost = cost_of(list(times), prices)
    if at_most:
        return f"{machines}: {duration(limit)}{'' if cost is None else f', ${cost[1]:.2f}'}"
    dollars = "" if cost is None else f", ${cost[0]:.2f} of ${cost[1]:.2f}"
    return f"{machines}: {duration(seconds)} of {duration(limit)}{dollars}"


def cost_json(times: Sequence[MachineTime], prices: Mapping[str, float]) -> dict[str, Any]:
    """Return the same as values.

    Args:
        times: The machines' times.
        prices: Dollars an hour by type.
    """
    cost = cost_of(list(times), prices)
    dollars, most = cost if cost is not None else (None, None)
    return {"machines": [asdict(it) for it in times], "dollars": dollars, "dollars_at_most": most}
