"""The commands ``stop`` and ``download``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from training_jobs.cli.context import AsJson, Target, connect, find_job
from training_jobs.cli.errors import INTERRUPTED
from training_jobs.cli.output import print_json


def stop(
    context: typer.Context,
    name: Target = None,
    wait: Annotated[bool, typer.Option(help="Wait for the last checkpoint and the model to be uploaded.")] = True,
    as_json: AsJson = False,
) -> None:
    """Stop a job and its execution, and print where its last checkpoint is."""
    job = find_job(connect(context), name)
    job.stop()
    said: dict[str, Any] = {"job": job.name}
    if wait:
        try:
            said["status"] = job.wait(2.0)["TrainingJobStatus"]
        except KeyboardInterrupt:
            typer.echo(f"\n{job.name} is being stopped; `training-jobs describe {job.name}` shows when it is", err=True)
            raise typer.Exit(INTERRUPTED) from None
        last = job.last_checkpoint()
        said["checkpoint"] = None if last is None else last.uri
        said["model"] = job.model_uri()
    if as_json:
        print_json(said)
        return
    typer.echo(f"{job.name} is {said['status']}" if wait else f"{job.name} is being stopped")
    if wait:
        typer.echo(f"last checkpoint: {said['checkpoint'] or 'none'}")
        if said["checkpoint"]:
            typer.echo(f"go on from it with `training-jobs resume {job.name}`")


def download(
    context: typer.Context,
    name: Target = None,
    directory: Annotated[Path, typer.Option("--to", help="The folder.")] = Path("."),
    checkpoints: Annotated[bool, typer.Option("--checkpoints", help="The checkpoints instead of the model.")] = False,
    as_json: AsJson = False,
) -> None:
    """Download a job's model, unpacked, or its checkpoints."""
    job = find_job(connect(context), name)
    files = job.download_checkpoints(directory) if checkpoints else job.download_model(directory)
    if as_json:
        print_json([str(file) for file in files])
        return
    for file in files:
        typer.echo(file)
