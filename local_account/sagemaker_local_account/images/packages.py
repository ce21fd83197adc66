"""Links packages of the account's own environment into an image's environment, with their dependencies.

Only commands are copied, so that packages such as PyTorch are on the disk once.
"""

from __future__ import annotations

import csv
import functools
import importlib.metadata
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import Distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_SHOWN = "none: shown by the local account"
Find = Callable[[str], Distribution | None]


def in_folders(folders: Sequence[str]) -> Find:
    """Returns a function that finds an installed package by name in the first of the folders that has it."""

    def find(name: str) -> Distribution | None:
        return next(iter(Distribution.discover(name=name, path=[*folders])), None)

    return find


def installed_in(folder: str) -> list[Distribution]:
    """Returns the packages in a site-packages folder."""
    return [*Distribution.discover(path=[folder])]


@functools.cache
def requires(metadata: str) -> tuple[Requirement, ...]:
    """Returns the requirements of an installed package, by the path of its metadata."""
    return tuple(Requirement(text) for text in importlib.metadata.PathDistribution(Path(metadata)).requires or [])


def applies(requirement: Requirement, extras: Iterable[str]) -> bool:
    """Whether a package's requirement applies on this machine and with the given extras."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def closure(wanted: Iterable[Requirement], find: Find, alone: Iterable[str] = ()) -> dict[str, Distribution]:
    """Returns the installed packages of requirements with their transitive dependencies, by name.

    Args:
        wanted: the requirements.
        find: finds an installed package by name.
        alone: packages without their dependencies, as after `pip install --no-deps`.
    """
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    without = {canonicalize_name(name) for name in alone}
    rest = [(one.name, frozenset(map(canonicalize_name, one.extras))) for one in wanted if applies(one, ())]
    while rest:
        name, extras = rest.pop()
        name = canonicalize_name(name)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        package = found.get(name) or find(name)
        if package is None:
            continue
        found[name] = package
        if name not in without:
            needs = requires(str(metadata_of(package)))
            rest += [(one.name, frozenset(map(canonicalize_name, one.extras))) for one in needs if applies(one, extras)]
    return found


def metadata_of(package: Distribution) -> Path:
    """Returns the folder of an installed package's metadata."""
    assert isinstance(package, importlib.metadata.PathDistribution)
    return Path(str(package._path))


def show(folders: Sequence[str], packages: Path) -> list[Path]:
    """Writes the metadata of all packages of folders into a site-packages folder, where an installer takes them for installed.

    Args:
        folders: site-packages folders; the first that has a package counts.
        packages: the site-packages folder of an environment without them.

    Returns:
        The folders of metadata, for `hide`.
    """
    shown: dict[Path, None] = {}
    for origin in (path for folder in folders for path in sorted(Path(folder).glob("*.dist-info"))):
        copy = packages / origin.name
        if not copy.exists() and (origin / "METADATA").is_file():
            copy.mkdir()
            shutil.copyfile(origin / "METADATA", copy / "METADATA")
            (copy / "INSTALLER").write_text(_SHOWN)
            # An installer that needs another version removes what is recorded.
            recorded = ("METADATA", "INSTALLER", "RECORD")
            (copy / "RECORD").write_text("".join(f"{origin.name}/{name},,\n" for name in recorded))
            shown[copy] = None
    return [*shown]


def hide(shown: Iterable[Path]) -> None:
    """Removes what `show` wrote, except of packages that were installed in the meantime."""
    for folder in shown:
        installer = folder / "INSTALLER"
        if installer.is_file() and installer.read_text() == _SHOWN:
            shutil.rmtree(folder)


def _files(package: Distribution) -> list[tuple[str, ...]]:
    # `Distribution.files` takes a fifth of a second for PyTorch.
    record = package.read_text("RECORD")
    if record is None:
        return [path.parts for path in package.files or []]
    return [tuple(row[0].split("/")) for row in csv.reader(record.splitlines()) if row]


def link(package: Distribution, folder: Path) -> None:
    """Links a package's modules into an environment, and copies its commands with the environment's Python.

    Args:
        package: the installed package.
        folder: the environment.
    """
    [packages] = folder.glob("lib/python*/site-packages")
    origin = metadata_of(package).parent
    files = _files(package)
    whole = {parts[:-1] for parts in files if parts[-1] == "__init__.py"}
    whole.add((metadata_of(package).name,))
    places: dict[tuple[str, ...], None] = {}
    for parts in [*files, (metadata_of(package).name,)]:
        if parts[0] == "..":
            _copy(Path(os.path.normpath(origin.joinpath(*parts))), folder)
        elif "__pycache__" not in parts:
            # Namespace packages such as zope and google are folders of several distributions.
            above = (parts[:length] for length in range(1, len(parts)))
            places[next((prefix for prefix in above if prefix in whole), parts)] = None
    for parts in places:
        _link(origin.joinpath(*parts), packages, parts)


def _link(source: Path, packages: Path, parts: tuple[str, ...]) -> None:
    target = packages.joinpath(*parts)
    # A link leads to the account's own folder, which must not change.
    below = (packages.joinpath(*parts[:length]) for length in range(1, len(parts)))
    if any(path.is_symlink() for path in below) or target.is_symlink() or not source.exists():
        return
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source)
    elif target.is_dir():
        for child in source.iterdir():
            if child.name != "__pycache__":
                _link(child, packages, (*parts, child.name))


def _copy(source: Path, folder: Path) -> None:
    """Copies a package's file outside of site-packages; a command gets the environment's Python."""
    prefix = Path(sys.prefix)
    if not source.is_file() or not source.is_relative_to(prefix):
        return
    target = folder / source.relative_to(prefix)
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    script = with_python(source, folder) if source.parent.name == "bin" else None
    if script is None:
        shutil.copy2(source, target)
    else:
        target.write_bytes(script)
        target.chmod(0o755)


def with_python(script: Path, folder: Path) -> bytes | None:
    """Returns a Python script such as `train` with the interpreter of another environment; None for other commands."""
    own = f"{sys.prefix}/bin/python".encode()
    # Through a shell: the kernel limits the length of the shebang line and splits it at spaces.
    start = b"#!/bin/sh\n'''exec' \"%s\" \"$0\" \"$@\"\n' '''\n" % os.fsencode(folder / "bin" / "python")
    with script.open("rb") as file:
        first, second, rest = file.readline(256), file.readline(), file.read()
    if first.startswith(b"#!" + own):
        return start + second + rest
    if first.startswith(b"#!/bin/sh") and second.startswith(b"'''exec'") and own in second:
        return start + rest.removeprefix(b"' '''\n")
    return None
