"""``training-jobs local``: the commands of ``local-account``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import typer

SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}


def local(context: typer.Context) -> None:
    """The account on this machine: `up`, `status`, `stop`, `env` and all else of `local-account`."""
    from training_jobs.client.errors import TrainingError

    # A command of its own: nothing here imports the local account, which may not be installed.
    command = Path(sys.executable).with_name("local-account")
    if not command.exists():
        raise TrainingError("the local account is not installed: `pip install 'training-jobs[local]'`")
    os.execv(command, [str(command), *context.args])
