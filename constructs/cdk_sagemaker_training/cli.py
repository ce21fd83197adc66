"""The command ``training-jobs``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cdk_sagemaker_training.packaged import copy_training_code

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Training code for SageMaker jobs, ready to edit.")


@app.callback()
def _training_jobs() -> None:
    """Keeps ``init`` a subcommand while it is the only one."""


@app.command()
def init(
    kind: Annotated[str, typer.Argument(help="The kind of job, like 'heterogeneous'.")],
    directory: Annotated[Path, typer.Argument(help="A new folder.")],
) -> None:
    """Copy a kind's training code into DIRECTORY, to edit and to build an image from."""
    try:
        written = copy_training_code(kind, directory)
    except (ValueError, FileExistsError) as error:
        raise typer.BadParameter(str(error)) from error
    for path in written:
        typer.echo(path)
    typer.echo(f'\nIn your stack: TrainingImage(self, "Image", directory="{directory}", file="{kind}/Dockerfile")')
