"""The command ``watch``: a live picture on a terminal, plain lines elsewhere, and the last picture of what is over."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from training_jobs.cli.context import Target, connect
from training_jobs.cli.errors import INTERRUPTED, JOB_FAILED, connection_lost, one_line
from training_jobs.cli.output import figures

if TYPE_CHECKING:
    from training_jobs.cli.watch_state import Watched
    from training_jobs.client.account import Account
    from training_jobs.client.executions import Execution

_BELOW = 3  # lines


def watch(
    context: typer.Context,
    name: Target = None,
    price: Annotated[
        list[str] | None, typer.Option(metavar="TYPE=DOLLARS", help="Dollars an hour of a machine.")
    ] = None,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two polls.")] = 2.0,
    svg: Annotated[Path | None, typer.Option(help="Also write the last picture to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each change.")] = False,
) -> None:
    """Watch a job: states, hosts, phases, metrics, time and cost, and the last log lines. It goes on after Ctrl-C."""
    from training_jobs.cli.cost_text import prices_of
    from training_jobs.client.jobs import Job
    from training_jobs.client.names import find

    account = connect(context)
    prices = prices_of(price)
    found = find(account, name)
    execution = None if isinstance(found, Job) else found
    raise typer.Exit(
        watch_to_the_end(account, found.name, execution=execution, prices=prices, every=every, svg=svg, as_json=as_json)
    )


def watch_to_the_end(
    account: Account,
    name: str,
    *,
    execution: Execution | None,
    prices: dict[str, float] | None = None,
    every: float = 2.0,
    svg: Path | None = None,
    as_json: bool = False,
) -> int:
    """Show a job until it is over.

    Args:
        account: The account.
        name: The execution's name, or the job's.
        execution: The execution; None for a job that is watched alone.
        prices: Dollars an hour by type of machine.
        every: Seconds between two polls.
        svg: A file for the last picture.
        as_json: Print a line of JSON for each change, on a terminal as well.

    Returns:
        The exit code: 0, or that of a job that failed or was stopped.
    """
    from training_jobs.cli.watch_state import Watched

    watched = Watched(account, execution=execution, job=None if execution is not None else account.job(name))
    try:
        if as_json:
            _print_json_lines(watched, every)
        elif sys.stdout.isatty():
            _draw(watched, prices or {}, every)
        else:
            _print_lines(watched, every)
    except KeyboardInterrupt:
        come_back(name)
    if svg is not None:
        from training_jobs.cli.watch_view import save_svg

        save_svg(watched, prices or {}, svg)
    if watched.failed:
        typer.echo(f"training-jobs: {watched.failed}", err=True)
        return JOB_FAILED
    return 0


def come_back(name: str) -> None:
    """Say that the job goes on, and end with the exit code of Ctrl-C.

    Args:
        name: What was watched.
    """
    typer.echo(
        f"\n{name} goes on; follow it again with `training-jobs watch {name}`, stop it with `training-jobs stop {name}`",
        err=True,
    )
    raise typer.Exit(INTERRUPTED) from None


def _draw(watched: Watched, prices: dict[str, float], every: float) -> None:
    from rich.console import Console
    from rich.live import Live

    from training_jobs.cli.watch_view import picture

    console = Console()
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for _ in _looks(watched, every):
            # Of the console's size at each look, so that it follows a resize; less what is printed after the end, and the prompt.
            live.update(picture(watched, prices, width=console.width, height=console.height - _BELOW), refresh=True)


def _print_lines(watched: Watched, every: float) -> None:
    shown = ""
    for _ in _looks(watched, every):
        if not shown:
            shown = watched.headline
            typer.echo(shown)
        for line in watched.new_lines:
            typer.echo(f"{line.host}  {line.message}")
        # After the lines, which were printed before the state changed.
        if watched.headline != shown:
            shown = watched.headline
            typer.echo(shown)
        sys.stdout.flush()
    for name, values in watched.metrics.items():
        typer.echo(f"{name} {figures(values[-1], 6)}")


def _print_json_lines(watched: Watched, every: float) -> None:
    shown = ""
    for _ in _looks(watched, every):
        if watched.headline != shown or watched.new_lines:
            shown = watched.headline
            change = {
                "execution": watched.execution and watched.execution["status"],
                "job": watched.job and watched.job["TrainingJobName"],
                "phase": watched.job and watched.job["SecondaryStatus"],
                "seconds": watched.seconds,
                "utilization": watched.utilization,
                "metrics": {name: values[-1] for name, values in watched.metrics.items()},
                "lines": [{"host": line.host, "message": line.message} for line in watched.new_lines],
                "lost": watched.lost,
            }
            print(json.dumps(change), flush=True)


def _looks(watched: Watched, every: float) -> Iterator[None]:
    """Look again and again, until what is watched is over; what is seen then comes too."""
    while True:
        _refresh(watched)
        yield
        if watched.over:
            return
        time.sleep(every)


def _refresh(watched: Watched) -> None:
    """Poll; a lost connection is shown, and the next poll tries again."""
    try:
        watched.refresh()
    except Exception as error:
        if not watched.seen or not connection_lost(error):
            raise
        watched.lost = one_line(error)
        watched.new_lines = []
