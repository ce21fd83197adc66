"""File access in folders that a job can write to, without following links.

A job may replace any of its files and folders by a link at any moment, so that a path opened as a whole could be any file of the
user who runs the account. Each path is therefore opened component by component, relative to the descriptor of the one before and
without following links (openat(2), O_NOFOLLOW), starting at a folder that jobs cannot replace.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO would block.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 200  # levels of folders; each takes a descriptor during the walk


class UnsafePath(OSError):
    """A path leaves its folder, or one of its folders is a link or a file."""


def parts_of(path: str) -> tuple[str, ...]:
    """Returns the components of a relative path.

    Raises:
        UnsafePath: the path is empty or has a component ``..``, ``.``, "" or with NUL.
    """
    parts = tuple(path.split("/"))
    for part in parts:
        if part in ("", ".", "..") or "\0" in part:
            raise UnsafePath(errno.EINVAL, f"a path must stay in its folder, like 'images/1.png', got {path!r}")
    return parts


class JobFolder:
    """The folder ``path`` below ``root``: a job can write to it and to the folders of ``path``, but cannot replace ``root``."""

    def __init__(self, root: Path, path: str = "") -> None:
        self._root = root
        self._parts = parts_of(path) if path else ()

    def __str__(self) -> str:
        return "/".join((str(self._root), *self._parts))

    def make(self) -> None:
        """Makes the folder and those above it."""
        with self._opened(self._parts, create=True):
            pass

    def walk(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yields what is below the folder, sorted by name, each folder before its content; links are not followed.

        A missing folder yields nothing; entries that disappear meanwhile are left out.

        Raises:
            UnsafePath: the folder is a link or a file, or there are more than 200 levels of folders.
        """
        try:
            with self._opened(self._parts) as descriptor:
                yield from _walk(descriptor, "", 0)
        except FileNotFoundError:
            return

    def files(self) -> dict[str, os.stat_result]:
        """Returns the regular files below the folder, by path."""
        return {path: status for path, status in self.walk() if stat.S_ISREG(status.st_mode)}

    def open(self, path: str) -> BinaryIO:
        """Opens a regular file for reading.

        Raises:
            FileNotFoundError: there is none, or it is a link, a pipe or a folder.
        """
        *above, name = parts_of(path)
        try:
            with self._opened([*self._parts, *above]) as folder:
                descriptor = os.open(name, _READ, dir_fd=folder)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO) or isinstance(error, UnsafePath):
                raise FileNotFoundError(errno.ENOENT, "no regular file", path) from error
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise FileNotFoundError(errno.ENOENT, "no regular file", path)
        return os.fdopen(descriptor, "rb")

    def status(self, path: str) -> os.stat_result:
        """Returns the status of a file, or of a link itself.

        Raises:
            FileNotFoundError: there is none.
        """
        *above, name = parts_of(path)
        with self._opened([*self._parts, *above]) as folder:
            return os.stat(name, dir_fd=folder, follow_symlinks=False)

    def read_link(self, path: str) -> str:
        """Returns the target of a link.

        Raises:
            OSError: there is no such link.
        """
        *above, name = parts_of(path)
        with self._opened([*self._parts, *above]) as folder:
            return os.readlink(name, dir_fd=folder)

    def create(self, path: str) -> BinaryIO:
        """Creates a file for writing, replacing a file or link of that name; folders above it are made.

        Raises:
            IsADirectoryError: a folder has the name.
            UnsafePath: one of the folders above is a link or a file.
        """
        *above, name = parts_of(path)
        with self._opened([*self._parts, *above], create=True) as folder:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
            return os.fdopen(os.open(name, _WRITE, 0o666, dir_fd=folder), "wb")

    def rename(self, path: str, name: str) -> None:
        """Renames a file within its folder, atomically replacing a file or link of the new name."""
        *above, former = parts_of(path)
        with self._opened([*self._parts, *above]) as folder:
            os.replace(former, name, src_dir_fd=folder, dst_dir_fd=folder)

    def remove(self, path: str) -> None:
        """Removes a file or a link.

        Raises:
            FileNotFoundError: there is none.
        """
        *above, name = parts_of(path)
        with self._opened([*self._parts, *above]) as folder:
            os.unlink(name, dir_fd=folder)

    @contextlib.contextmanager
    def _opened(self, parts: Sequence[str], *, create: bool = False) -> Iterator[int]:
        """The descriptor of a folder below the root."""
        descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for number, part in enumerate(parts):
                if create:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, dir_fd=descriptor)
                inner = _open_folder(part, descriptor, "/".join(parts[: number + 1]))
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)


def _open_folder(name: str, within: int, path: str) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=within)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise UnsafePath(errno.ENOTDIR, f"a link or a file is in place of the folder {path!r}") from error
        raise


def _walk(descriptor: int, within: str, depth: int) -> Iterator[tuple[str, os.stat_result]]:
    if depth > _DEEPEST:
        raise UnsafePath(errno.ENAMETOOLONG, f"folders must be nested at most {_DEEPEST} levels deep")
    with os.scandir(descriptor) as scanned:
        entries = sorted(scanned, key=lambda entry: entry.name)
    for entry in entries:
        path = f"{within}{entry.name}"
        try:
            status = os.stat(entry.name, dir_fd=descriptor, follow_symlinks=False)
            inner = _open_folder(entry.name, descriptor, path) if stat.S_ISDIR(status.st_mode) else None
        except (FileNotFoundError, UnsafePath):  # removed or replaced since it was listed
            continue
        yield path, status
        if inner is not None:
            try:
                yield from _walk(inner, f"{path}/", depth + 1)
            finally:
                os.close(inner)
