"""Where the objects of the account's buckets lie that are too large for its memory: in files without names, in the state folder.

moto has them in the machine's folder for temporary files. Without a name a file goes when its account does (O_TMPFILE).
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from types import SimpleNamespace

from moto.s3 import models

from . import leftovers


def install(folder: Path) -> None:
    """Have moto keep large objects (over 5 MB) in ``folder``, which is cleared; a renewed call renews the folder."""
    leftovers.clear(folder)
    models.tempfile = SimpleNamespace(
        SpooledTemporaryFile=functools.partial(tempfile.SpooledTemporaryFile, dir=str(folder))
    )
