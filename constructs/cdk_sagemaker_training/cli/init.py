"""The command ``init``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def init(
    kind: Annotated[
        str, typer.Argument(help="data-parallel, heterogeneous, compiled or model-parallel.")
    ] = "data-parallel",
    directory: Annotated[Path, typer.Argument(help="The app's folder.")] = Path("."),
) -> None:
    """Write a deployable app of a kind into DIRECTORY: app.py, cdk.json, the training code, and data to try it with."""
    from cdk_sagemaker_training.cli.apps import write_app
    from cdk_sagemaker_training.cli.doctor import tools

    try:
        written = write_app(kind, directory)
    except (ValueError, FileExistsError) as error:
        raise typer.BadParameter(str(error)) from error
    for path in written:
        typer.echo(path)
    for name, ok, detail in tools():
        if not ok:
            typer.echo(f"training-jobs: {name}: {detail}", err=True)
    within = "" if directory.resolve() == Path.cwd() else f"`cd {directory}`, then "
    typer.echo(f"\nNext: {within}`training-jobs local up`, and `training-jobs start --follow`; see README.md")
