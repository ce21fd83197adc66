"""The command ``check``: whether a script that is interrupted goes on where it was, and its processes train together."""

from __future__ import annotations

import importlib.util
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from training_jobs.cli.context import AsJson
from training_jobs.cli.errors import JOB_FAILED
from training_jobs.cli.output import duration, print_indented, print_json


def check(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(help="The training script; further arguments are its own.")],
    checkpoints: Annotated[Path, typer.Option(help="The folder in which it saves; new or empty.")] = Path(
        "/opt/ml/checkpoints"
    ),
    processes: Annotated[int, typer.Option(min=1, help="How many processes of it torchrun starts.")] = 1,
    interrupt: Annotated[
        bool, typer.Option("--interrupt/--no-interrupt", help="Whether to interrupt it, or to compare processes alone.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Run a script of PyTorch or Keras whole and interrupted, and say what goes on wrong; exit code 1 if anything does.

    The script is not changed. It runs three times on this machine: to its end, until after one of its checkpoints, where SIGKILL
    ends it, and from there with nothing but the checkpoints. With --processes its processes are compared too.
    It is run from a copy of its folder: data elsewhere are found by absolute paths, or by variables such as SM_CHANNEL_TRAINING.
    """
    from training_jobs.check.runs import Script, check_script

    if not script.is_file():
        raise typer.BadParameter(f"must be a file, like train.py, got {str(script)!r}", param_hint="SCRIPT")
    if not any(map(importlib.util.find_spec, ("torch", "keras"))):
        raise typer.BadParameter("check needs torch or keras, which this Python does not have: pip install torch")
    began = time.monotonic()

    def on_run(text: str) -> None:
        if not as_json:
            typer.echo(f"{duration(time.monotonic() - began)}: runs {text}", err=True)

    found = check_script(Script(script, context.args, checkpoints, processes), on_run, interrupt=interrupt)
    if as_json:
        print_json(asdict(found))
    else:
        saves = ", ".join(map(str, found.saves)) or "none"
        typer.echo(f"{found.steps} steps, checkpoints after {saves}")
        if found.interrupted is not None:
            typer.echo(f"interrupted after step {found.interrupted}, and begun again:")
        for one in found.results:
            print_indented(f"  {one.subject:<12}{one.verdict:<9}", one.text)
    if any(one.verdict == "wrong" for one in found.results):
        raise typer.Exit(JOB_FAILED)
