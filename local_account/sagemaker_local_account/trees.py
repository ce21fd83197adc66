"""The files of an image: a folder on this machine, in which paths and links mean what they mean in the image."""

from __future__ import annotations

import hashlib
import os
import posixpath
import shutil
from collections.abc import Callable
from pathlib import Path

from .references import ImageError

_MOST_LINKS = 40  # as Linux follows them


def locate(root: Path, path: str) -> Path:
    """Where a path of the image lies on this machine, links followed. Neither ``..`` nor a link leads out."""
    at: list[str] = []
    rest = path.split("/")[::-1]
    links = 0
    while rest:
        part = rest.pop()
        if part == "..":
            at = at[:-1]
        elif part not in ("", "."):
            found = root.joinpath(*at, part)
            if not found.is_symlink():
                at.append(part)
                continue
            links += 1
            if links > _MOST_LINKS:
                raise ImageError(f"{path} is a link that leads in a circle")
            target = os.readlink(found)
            at = [] if target.startswith("/") else at
            rest += target.split("/")[::-1]
    return root.joinpath(*at)


def copy_file(source: Path, root: Path, path: str, mode: int | None = None) -> None:
    """Put a file, or a link as it is, at a path of the image, in place of what is there."""
    folder = locate(root, posixpath.dirname(path))
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / posixpath.basename(path)
    if target.is_symlink() or target.is_file():  # which may be one that cannot be written to
        target.unlink()
    shutil.copy2(source, target, follow_symlinks=False)
    if mode is not None and not target.is_symlink():
        target.chmod(mode)


def copy_folder(
    folder: Path, root: Path, path: str, mode: int | None = None, *, ignored: Callable[[str], bool] = lambda path: False
) -> None:
    """Put what is in a folder at a path of the image, into the folder that is there. ``ignored`` gets paths within ``folder``."""
    _make_folder(locate(root, path), mode)
    for at, folders, files in os.walk(folder):
        inside = Path(at).relative_to(folder)
        for name in sorted([*folders, *files]):
            within, source = str(inside / name), Path(at, name)
            if ignored(within):
                continue
            if source.is_dir() and not source.is_symlink():
                _make_folder(locate(root, f"{path}/{within}"), mode)
            else:
                copy_file(source, root, f"{path}/{within}", mode)


def _make_folder(folder: Path, mode: int | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if mode is not None:
        folder.chmod(mode)


def digest(folder: Path) -> str:
    """A hash of the files in a folder, or of one file: their paths, modes and content, not their times."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")) if folder.is_dir() else [folder]:
        kind, content = "folder", b""
        if path.is_symlink():
            kind, content = "link", os.fsencode(os.readlink(path))
        elif path.is_file():
            kind, content = f"{path.stat().st_mode:o}", hashlib.sha256(path.read_bytes()).digest()
        found.update(b"%s\0%s\0%d\0" % (os.fsencode(path.relative_to(folder)), kind.encode(), len(content)) + content)
    return found.hexdigest()
