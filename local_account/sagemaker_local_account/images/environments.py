"""The Python environment of an image: the packages of its base and those that it installs.

Packages that the account's own environment has are linked from there (`packages.py`), others are installed by uv (`uv.py`), whose
cache they are hard links to. Environments are cached by a hash of their requirements.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sagemaker_local_account.core import atomic_files
from sagemaker_local_account.core.bound_process import BoundProcess
from sagemaker_local_account.core.image_names import ImageError
from sagemaker_local_account.core.image_tree import digest, locate
from sagemaker_local_account.core.site_packages import own_folders
from sagemaker_local_account.images import packages, uv
from sagemaker_local_account.images.container_packages import imported
from sagemaker_local_account.images.pip_install import PipInstall, requirement_name, requirement_of

# Build tools, which Dockerfiles often upgrade and which jobs do not import.
_TOOLS = ("pip", "wheel")
_Install = Callable[
    [list[str], str, dict[str, str]], None
]  # arguments of uv, the line that they are for, and variables
SHARED = "SAGEMAKER_LOCAL_ACCOUNT_VENVS"
# The packages of Docker's Python images: `pip`; before 3.12 also these (docker-library/python issue 952), and in virtual
# environments such as those of AWS's containers.
# Packages whose classes change from version to version: a script has the container's, though the account may have another.
_EXACT = ("trl",)
_ALWAYS = ("pip",) if sys.version_info >= (3, 12) else ("pip", "setuptools", "wheel")


def environment_for(
    base: Sequence[str],
    listed: Sequence[str],
    installs: Sequence[PipInstall],
    root: Path,
    state: Path,
    report: Callable[[str], None],
    code: Path | None = None,
) -> Path:
    """Returns the virtual environment of an image, which is made unless it is cached.

    The cache is in the state folder, or in the folder SAGEMAKER_LOCAL_ACCOUNT_VENVS, which accounts can share. uv ends with the
    account, and an account on the same folder waits for its end.

    Args:
        base: the requirements of the base image.
        listed: further packages of the base image, of which those are included that the account has or a file imports.
        installs: the image's `pip install` commands.
        root: the image's root folder.
        state: the state folder.
        report: called with messages for the output of the build.
        code: a folder with further files of a job.

    Raises:
        ImageError: a requirement cannot be installed; the message names it and the Dockerfile's line.
    """
    imports = {name for folder in filter(None, (root, code)) for name in imported(folder)} if listed else set()
    wanted = {one.name: one for one in map(Requirement, listed)}
    there = [
        name
        for name, one in wanted.items()
        if (own := _own_package(name)) is not None
        and (name not in {*_EXACT} & imports or one.specifier.contains(own.version))
    ]
    also = [str(one) for name, one in wanted.items() if name not in there and name in imports]
    parts = _Parts(base, there, also, installs, root)
    folder = Path(os.environ.get(SHARED) or state / "venvs") / _key(parts)
    if _is_complete(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_complete(folder):
            shutil.rmtree(folder, ignore_errors=True)
            try:
                _make(folder, parts, report, functools.partial(_run, folder, keep_open=lock.fileno()))
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            atomic_files.write(folder / "complete", "")
    return folder


def _is_complete(folder: Path) -> bool:
    """Whether an environment was made to the end, and its Python is still there."""
    return (folder / "complete").exists() and (folder / "bin" / "python").exists()


@dataclass(frozen=True)
class _Parts:
    """The content of an environment: ``there`` are packages to link, ``also`` requirements whose installation may fail."""

    base: Sequence[str]
    there: Sequence[str]
    also: Sequence[str]
    installs: Sequence[PipInstall]
    root: Path


def missing(lines: Sequence[str]) -> list[str]:
    """Returns the lines of a requirements file that the account's own environment does not satisfy."""
    return [line for line in lines if (wanted := requirement_of(line)) is None or not _satisfied(wanted)]


def _satisfied(wanted: Requirement) -> bool:
    if not packages.applies(wanted, ()) or wanted.name in _TOOLS:
        return True
    found = _own_package(wanted.name)
    if found is None or not wanted.specifier.contains(found.version, prereleases=True):
        return False
    extras = {canonicalize_name(extra) for extra in wanted.extras}
    for part in packages.requires(str(packages.metadata_of(found))) if extras else ():
        if not packages.applies(part, ()) and packages.applies(part, extras):
            alone = Requirement(str(part).partition(";")[0])
            if not _satisfied(alone):
                return False
    return True


def _key(parts: _Parts) -> str:
    """The cache key: a hash of everything that the environment depends on."""
    own = [sorted(path.name for path in Path(folder).glob("*-info")) for folder in own_folders()]
    requested = [
        [install.requirements, install.constraints, install.options]
        + [digest(_own(install, parts.root, path)) for path in (*install.folders, *install.links)]
        for install in parts.installs
    ]
    text = [sys.version, own_folders(), own, [*parts.base], [*parts.there], [*parts.also], requested]
    return hashlib.sha256(json.dumps(text).encode()).hexdigest()[:16]


def _make(folder: Path, parts: _Parts, report: Callable[[str], None], install: _Install) -> None:
    venv.EnvBuilder(symlinks=True).create(folder)
    lacking = [*missing(parts.base), *parts.also]
    for each in parts.installs:
        lacking += [*missing(each.requirements), *each.folders]
    if lacking:
        report(f"installing {', '.join(lacking)} into the image's environment")
        _install_lacking(folder, parts, report, install)
    _link(folder, parts)


def _install_lacking(folder: Path, parts: _Parts, report: Callable[[str], None], install: _Install) -> None:
    """Installs with uv, which sees the metadata of the account's own packages, so that it does not install those to be linked.

    Where one of them must be of another version, uv removes its metadata and installs that one.
    """
    lines = [f"import site; site.addsitedir({path!r})" for path in own_folders()]
    [own] = folder.glob("lib/python*/site-packages")
    visible = own / "the_accounts_own.pth"  # for packages that are built without isolation
    visible.write_text("\n".join(lines))
    shown = packages.show(own_folders(), own)
    _install_base(missing(parts.base), parts.also, report, install)
    for each in (one for one in parts.installs if one.requirements or one.folders):
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            arguments, variables = _arguments(each, parts.root, Path(scratch))
            install(arguments, each.place, variables)
    packages.hide(shown)
    visible.unlink()


def _install_base(base: Sequence[str], also: Sequence[str], report: Callable[[str], None], install: _Install) -> None:
    """Installs ``base`` and ``also``; a requirement of ``also`` that cannot be installed is noted."""
    try:
        if base or also:
            install([*base, *also], "FROM", {})
        return
    except ImageError:
        if not also:
            raise
    if base:
        install([*base], "FROM", {})
    for line in also:
        try:
            install([line], "FROM", {})
        except ImageError as error:
            report(f"{error}; AWS's container has it, and in the local account a job that imports it fails")


def _link(folder: Path, parts: _Parts) -> None:
    """Links the packages of the account's own environment that belong to it."""
    [own] = folder.glob("lib/python*/site-packages")
    installed = {canonicalize_name(one.name) for one in packages.installed_in(str(own))}
    find = packages.in_folders([str(own), *own_folders()])
    found = packages.closure(map(Requirement, [*_ALWAYS, *installed, *parts.base, *parts.there]), find)
    for install in parts.installs:
        wanted = [one for line in install.requirements if (one := requirement_of(line)) is not None]
        alone = [one.name for one in wanted] if "--no-deps" in install.options else []
        found |= packages.closure(wanted, find, alone)
    for name, package in sorted(found.items()):
        if name not in installed:
            packages.link(package, folder)


def _arguments(install: PipInstall, root: Path, scratch: Path) -> tuple[list[str], dict[str, str]]:
    """The arguments and variables of uv; requirements files are written into ``scratch``."""
    names = filter(None, map(requirement_name, install.requirements))
    arguments, variables = uv.options(install.options, [*names])
    for option, lines in (("-r", install.requirements), ("-c", install.constraints)):
        if lines:
            (scratch / option).write_text("\n".join(lines))
            arguments += [option, str(scratch / option)]
    for path in install.links:
        arguments += ["--find-links", str(_own(install, root, path))]
    for number, path in enumerate(install.folders):
        source = _own(install, root, path)
        if source.is_dir():  # a copy: building leaves files behind
            arguments.append(str(shutil.copytree(source, scratch / str(number), symlinks=True)))
        else:
            arguments.append(str(source))
    return arguments, variables


def _own(install: PipInstall, root: Path, path: str) -> Path:
    found = locate(root, path)
    if not found.exists():
        raise ImageError(
            f"{install.place}: pip install: {path} is not in the image; copy it first, like 'COPY . {path}'"
        )
    return found


def _run(folder: Path, arguments: list[str], place: str, variables: dict[str, str], *, keep_open: int) -> None:
    command, environment = uv.command(folder / "bin" / "python")
    with BoundProcess(
        [*command, *arguments],
        keep_open=keep_open,
        text=True,
        env={key: value for key, value in (environment | variables).items() if key not in ("PYTHONPATH", "PYTHONHOME")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        done = process.run()
    if done.returncode:
        raise ImageError(f"{place}: {uv.failure(done.stdout)}")


def _own_package(name: str) -> Distribution | None:
    return packages.in_folders(own_folders())(name)
