"""Of the packages of the account's own environment, those that an image would have: found by their metadata, and linked.

An image's environment lists what it may import; nothing is copied but commands, so that PyTorch is on the disk once.
"""

from __future__ import annotations

import csv
import functools
import importlib.metadata
import os
import shutil
import site
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import Distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

Find = Callable[[str], Distribution | None]


def own_folders() -> list[str]:
    """Where the account's own packages are. Not all of sys.path: what PYTHONPATH or a home folder adds is no job's."""
    return site.getsitepackages()


def in_folders(folders: Sequence[str]) -> Find:
    """Finds an installed package by its name, in the first of the folders that has it."""

    def find(name: str) -> Distribution | None:
        return next(iter(Distribution.discover(name=name, path=[*folders])), None)

    return find


def installed_in(folder: str) -> list[Distribution]:
    """The packages in a folder of packages."""
    return [*Distribution.discover(path=[folder])]


@functools.cache
def requires(metadata: str) -> tuple[Requirement, ...]:
    """What an installed package requires, by the path of its metadata."""
    return tuple(Requirement(text) for text in importlib.metadata.PathDistribution(Path(metadata)).requires or [])


def applies(requirement: Requirement, extras: Iterable[str]) -> bool:
    """Whether a package's requirement counts here, where the package is asked for with these extras."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def closure(wanted: Iterable[Requirement], find: Find, alone: Iterable[str] = ()) -> dict[str, Distribution]:
    """The installed packages that some requirements need, with all that these need in turn, by name.

    ``alone`` are names whose own requirements do not count, as after `pip install --no-deps`.
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
    """The folder of an installed package's metadata."""
    assert isinstance(package, importlib.metadata.PathDistribution)
    return Path(str(package._path))


def _files(package: Distribution) -> list[tuple[str, ...]]:
    # `Distribution.files` takes a fifth of a second for PyTorch.
    record = package.read_text("RECORD")
    if record is None:
        return [path.parts for path in package.files or []]
    return [tuple(row[0].split("/")) for row in csv.reader(record.splitlines()) if row]


def link(package: Distribution, folder: Path) -> None:
    """Have an environment show a package of the account's own: its modules by links, its commands with their own Python."""
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
            # A folder without __init__.py may have more than one package in it: zope, google.
            above = (parts[:length] for length in range(1, len(parts)))
            places[next((prefix for prefix in above if prefix in whole), parts)] = None
    for parts in places:
        _link(origin.joinpath(*parts), packages, parts)


def _link(source: Path, packages: Path, parts: tuple[str, ...]) -> None:
    target = packages.joinpath(*parts)
    # Below a link is the account's own folder, where nothing may be made.
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
    """A package's file outside of the folder of packages; a command gets the environment's Python."""
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
    """A command of the account's own, such as `train`, for another environment; None where it is no script in Python."""
    own = f"{sys.prefix}/bin/python".encode()
    # By way of a shell: the kernel cuts long first lines, and spaces in them.
    start = b"#!/bin/sh\n'''exec' \"%s\" \"$0\" \"$@\"\n' '''\n" % os.fsencode(folder / "bin" / "python")
    with script.open("rb") as file:
        first, second, rest = file.readline(256), file.readline(), file.read()
    if first.startswith(b"#!" + own):
        return start + second + rest
    if first.startswith(b"#!/bin/sh") and second.startswith(b"'''exec'") and own in second:
        return start + rest.removeprefix(b"' '''\n")
    return None
