"""Files in folders that a job can write to, reached without ever following a link.

A job may put a link in the place of any of its files and folders, at any moment. A path that the account opened as a whole could
then be any file of the person who runs the account. So each path is opened part by part, each part by the descriptor of the one
before and without following links (openat(2), O_NOFOLLOW), from a folder that no job can replace.
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
# Not to wait for the other end of a pipe that a job has put in a file's place.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 200  # folders within each other; each takes a descriptor while it is walked


class UnsafePath(OSError):
    """A path leads out of its folder, or a link or another thing stands where a folder should be."""


def parts_of(path: str) -> tuple[str, ...]:
    """The parts of a relative path. Raises UnsafePath for one that is empty or may lead elsewhere: ``..``, ``//``, NUL."""
    parts = tuple(path.split("/"))
    for part in parts:
        if part in ("", ".", "..") or "\0" in part:
            raise UnsafePath(errno.EINVAL, f"a path must stay in its folder, like 'images/1.png', got {path!r}")
    return parts


class JobFolder:
    """The folder ``path`` below ``root``; a job can write to it, and to all of ``path``, but cannot replace ``root`` itself."""

    def __init__(self, root: Path, path: str = "") -> None:
        self._root = root
        self._parts = parts_of(path) if path else ()

    def __str__(self) -> str:
        return "/".join((str(self._root), *self._parts))

    def make(self) -> None:
        """Make the folder, and those above it, where they are not there yet."""
        with self._opened(self._parts, create=True):
            pass

    def walk(self) -> Iterator[tuple[str, os.stat_result]]:
        """What is below the folder, in the order of the names, each folder before what it holds; links as such.

        Nothing where the folder is not there. What goes meanwhile is left out. Raises UnsafePath where a link or a file is in the
        place of the folder, and where folders lie within each other more than 200 times.
        """
        try:
            with self._opened(self._parts) as descriptor:
                yield from _walk(descriptor, "", 0)
        except FileNotFoundError:
            return

    def files(self) -> dict[str, os.stat_result]:
        """The regular files below the folder, by their paths."""
        return {path: status for path, status in self.walk() if stat.S_ISREG(status.st_mode)}

    def open(self, path: str) -> BinaryIO:
        """A regular file for reading. Raises FileNotFoundError where there is none, be there a link, a pipe or a folder."""
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
        """Of a file, or of a link itself. Raises FileNotFoundError where there is none."""
        *above, name = parts_of(path)
        with self._opened([*self._parts, *above]) as folder:
            return os.stat(name, dir_fd=folder, follow_symlinks=False)

    def read_link(self, path: str) -> str:
        """Where a link points, as text. Raises OSError where it is none, or no more."""
        *above, name = parts_of(path)
        with self._opened([*self._parts, *above]) as folder:
            return os.readlink(name, dir_fd=folder)

    def create(self, path: str) -> BinaryIO:
        """A new file for writing, in place of a file or link of that name; folders above it are made.

        Raises IsADirectoryError where a folder has the name, and UnsafePath where something else is in the place of a folder.
        """
        *above, name = parts_of(path)
        with self._opened([*self._parts, *above], create=True) as folder:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
            return os.fdopen(os.open(name, _WRITE, 0o666, dir_fd=folder), "wb")

    def rename(self, path: str, name: str) -> None:
        """Give a file another name in its folder, at once in place of the file or link that has the name."""
        *above, former = parts_of(path)
        with self._opened([*self._parts, *above]) as folder:
            os.replace(former, name, src_dir_fd=folder, dst_dir_fd=folder)

    def remove(self, path: str) -> None:
        """Remove a file or a link. Raises FileNotFoundError where there is none."""
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
            raise UnsafePath(errno.ENOTDIR, f"a link or a file is in the place of the folder {path!r}") from error
        raise


def _walk(descriptor: int, within: str, depth: int) -> Iterator[tuple[str, os.stat_result]]:
    if depth > _DEEPEST:
        raise UnsafePath(errno.ENAMETOOLONG, f"folders must lie within each other at most {_DEEPEST} times")
    with os.scandir(descriptor) as scanned:
        entries = sorted(scanned, key=lambda entry: entry.name)
    for entry in entries:
        path = f"{within}{entry.name}"
        try:
            status = os.stat(entry.name, dir_fd=descriptor, follow_symlinks=False)
            inner = _open_folder(entry.name, descriptor, path) if stat.S_ISDIR(status.st_mode) else None
        except (FileNotFoundError, UnsafePath):  # it went, or changed, since it was listed
            continue
        yield path, status
        if inner is not None:
            try:
                yield from _walk(inner, f"{path}/", depth + 1)
            finally:
                os.close(inner)
