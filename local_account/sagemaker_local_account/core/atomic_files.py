"""Atomic file writes, and errors of a full disk.

A file is written under a temporary name in its folder, synced to the disk, and renamed (rename(2)). A process that is killed
meanwhile leaves a file that ends in ``.partial``, which the next account on the folder removes.
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
    """Replaces a file atomically.

    Args:
        path: the file, which need not exist.
        text: its content.
        mode: its permissions.

    Raises:
        OSError: it could not be written; ``path`` is unchanged.
    """
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
    """Removes the temporary files of killed writers; no other process may be writing into the folder."""
    for path in folder.glob(f".*{_SUFFIX}"):
        path.unlink(missing_ok=True)


def is_disk_full(error: BaseException) -> bool:
    """Whether an error is ENOSPC or EDQUOT, but of unshare(2), whose ENOSPC is a limit of namespaces."""
    if "unshare" in str(error):
        return False
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    # shutil.copytree reports several errors as texts only, and so does the supervisor of a pod.
    return any(os.strerror(number) in str(error) for number in (errno.ENOSPC, errno.EDQUOT))


@contextlib.contextmanager
def naming_full_disk(folder: Path) -> Iterator[None]:
    """Adds the folder to an error of a full disk: an error of write(2) names no file."""
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise OSError(errno.ENOSPC, f"the disk of {folder} is full: {error}") from error
        raise
