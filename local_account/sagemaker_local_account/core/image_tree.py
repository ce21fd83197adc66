"""An image's root file system as a folder on this machine: paths and links are resolved within it."""

from __future__ import annotations

import hashlib
import os
import posixpath
import shutil
from collections.abc import Callable
from pathlib import Path

from sagemaker_local_account.core.image_names import ImageError

_MOST_LINKS = 40  # as Linux follows them


def locate(root: Path, path: str) -> Path:
    """Resolves a path of the image to this machine's path, following links; neither ``..`` nor links leave ``root``.

    Raises:
        ImageError: the path is a link to itself.
    """
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
                raise ImageError(f"{path} is a circular link")
            target = os.readlink(found)
            at = [] if target.startswith("/") else at
            rest += target.split("/")[::-1]
    return root.joinpath(*at)


def copy_file(source: Path, root: Path, path: str, mode: int | None = None) -> None:
    """Copies a file, or a link as such, to a path of the image, replacing what is there.

    Args:
        source: the file or link on this machine.
        root: the image's root folder.
        path: the path in the image; folders above it are made.
        mode: the copy's permissions; None keeps the source's.
    """
    folder = locate(root, posixpath.dirname(path))
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / posixpath.basename(path)
    if target.is_symlink() or target.is_file():  # which may be read-only
        target.unlink()
    shutil.copy2(source, target, follow_symlinks=False)
    if mode is not None and not target.is_symlink():
        target.chmod(mode)


def copy_folder(
    folder: Path, root: Path, path: str, mode: int | None = None, *, ignored: Callable[[str], bool] = lambda path: False
) -> None:
    """Copies the content of a folder into a folder of the image.

    Args:
        folder: the source on this machine.
        root: the image's root folder.
        path: the target folder in the image, which may exist.
        mode: the permissions of the copies; None keeps the sources'.
        ignored: whether a path relative to ``folder`` is left out.
    """
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
    """Returns a SHA-256 of a file, or of a folder's paths, modes and content, without times."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")) if folder.is_dir() else [folder]:
        kind, content = "folder", b""
        if path.is_symlink():
            kind, content = "link", os.fsencode(os.readlink(path))
        elif path.is_file():
            kind, content = f"{path.stat().st_mode:o}", hashlib.sha256(path.read_bytes()).digest()
        found.update(b"%s\0%s\0%d\0" % (os.fsencode(path.relative_to(folder)), kind.encode(), len(content)) + content)
    return found.hexdigest()
