"""Files that are written as a whole or not at all, and errors of a full disk.

A file is written under another name in its folder, synced to the disk, and renamed (rename(2): at no moment is there no file, or
part of one). Whoever is killed meanwhile leaves a file that ends in ``.partial``, which the next account removes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

_SUFFIX = ".partial"


def write(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Make ``path`` a file with this text, in place of what is there. Raises OSError, with ``path`` as it was."""
    descriptor, partial = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=_SUFFIX, dir=path.parent)
    try:
        with open(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise


def remove_partial(folder: Path) -> None:
    """Remove what writers left in a folder that were killed. Not while another process writes into it."""
    for path in folder.glob(f".*{_SUFFIX}"):
        path.unlink(missing_ok=True)


def is_disk_full(error: BaseException) -> bool:
    """Whether an error says that a disk, or a user's share of it, is full."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    # shutil.copytree tells of several errors by their texts only, and hosts are told of by text too.
    return any(os.strerror(number) in str(error) for number in (errno.ENOSPC, errno.EDQUOT))


@contextlib.contextmanager
def naming_full_disk(folder: Path) -> Iterator[None]:
    """Say of a full disk which it is: an error of write(2) names no file."""
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise OSError(errno.ENOSPC, f"the disk of {folder} is full: {error}") from error
        raise
