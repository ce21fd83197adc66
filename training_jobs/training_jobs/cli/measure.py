"""The command ``measure``: what a training script takes on this machine, for ``plan``."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def measure(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(help="The training script; further arguments are its own.")],
    to: Annotated[Path, typer.Option(help="The file for the measurement, which `plan` reads.")] = Path("measured.json"),
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds for each number of worker processes.")] = 10.0,
    steps: Annotated[int, typer.Option(min=1, help="The most steps that are timed.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure preparation by 1 to all CPUs, batches, a step and memory of a PyTorch script, which is not changed.

    It runs on this machine up to its first loop over a DataLoader, or over data_service.read_batches. Needs torch.
    """
    from training_jobs.facts.instance_facts import accelerator_names
    from training_jobs.training_code import SCRIPTS, training_code

    if not script.is_file():
        raise typer.BadParameter(f"must be a file, like train.py, got {str(script)!r}", param_hint="SCRIPT")
    if importlib.util.find_spec("torch") is None:
        raise typer.BadParameter("measure needs torch, which this Python does not have: pip install torch")
    code = training_code()
    command = [sys.executable, f"{SCRIPTS}/measure.py", "--seconds", f"{seconds:g}", "--steps", str(steps)]
    command += ["--to", str(to), "--accelerators", ",".join(accelerator_names()), *(["--json"] if as_json else [])]
    path = os.pathsep.join(part for part in (str(code), os.environ.get("PYTHONPATH")) if part)
    os.execve(sys.executable, [*command, str(script), *context.args], {**os.environ, "PYTHONPATH": path})
