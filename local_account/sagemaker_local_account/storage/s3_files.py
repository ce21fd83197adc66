"""Stores large S3 objects in unnamed files in the state folder, instead of the machine's folder for temporary files.

An unnamed file (O_TMPFILE) is removed by the kernel when the account's process ends.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from types import SimpleNamespace

from moto.s3 import models

from sagemaker_local_account.runtime import leftovers


def install(folder: Path) -> None:
    """Patches moto to store objects of more than 5 MB in a folder, which is emptied."""
    leftovers.clear(folder)
    models.tempfile = SimpleNamespace(
        SpooledTemporaryFile=functools.partial(tempfile.SpooledTemporaryFile, dir=str(folder))
    )
