"""The Python environment of an image: what its base brings and what it installs, the standard library, and nothing else.

What the account's own environment has of it is linked from there (`packages.py`), the rest installed, once for each text.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import re
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

from . import atomic_files, packages
from .bound_process import BoundProcess
from .container_packages import imported
from .pip_install import PipInstall, requirement_of
from .references import ImageError
from .trees import digest, locate

# What installs, and is nothing to a job; Dockerfiles bring it up to date as a matter of course.
_TOOLS = ("pip", "wheel")
_Run = Callable[[list[str], str], None]  # a command, and the line that it is for
SHARED = "SAGEMAKER_LOCAL_ACCOUNT_VENVS"
# As in Docker's own images of Python, which have no other package but `pip`; before 3.12 also these (docker-library/python
# issue 952), and in virtual environments such as those of AWS's containers.
_ALWAYS = ("pip",) if sys.version_info >= (3, 12) else ("pip", "setuptools", "wheel")


def python_for(
    base: Sequence[str],
    listed: Sequence[str],
    installs: Sequence[PipInstall],
    root: Path,
    state: Path,
    say: Callable[[str], None],
) -> Path:
    """The environment folder with what an image's base brings and what it installs; ``root`` has the image's files.

    Of ``listed``, what the base has besides, it has what the account has and what a file of the image imports. It is
    a virtual environment, made once and kept. Only what the account's own environment lacks is installed into it. It is kept in
    the account's folder, or in the folder that SAGEMAKER_LOCAL_ACCOUNT_VENVS names, which accounts may share: its name is the
    hash of all that it is made from.

    What installs ends with the account, however that ends, and no other account begins before it has.

    Raises:
        ImageError: a requirement cannot be had; the text names it and the Dockerfile's line.
    """
    imports = imported(root) if listed else set()
    there = [name for line in listed if _own_package(name := Requirement(line).name) is not None]
    also = [line for line in listed if Requirement(line).name not in there and Requirement(line).name in imports]
    parts = _Parts(base, there, also, installs, root)
    folder = Path(os.environ.get(SHARED) or state / "venvs") / _key(parts)
    if (folder / "complete").exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            try:
                _make(folder, parts, say, functools.partial(_run, held=lock.fileno()))
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            atomic_files.write(folder / "complete", "")
    return folder


@dataclass(frozen=True)
class _Parts:
    """What an environment is made of: ``there`` are names of the account's own packages, ``also`` requirements that may fail."""

    base: Sequence[str]
    there: Sequence[str]
    also: Sequence[str]
    installs: Sequence[PipInstall]
    root: Path


def missing(lines: Sequence[str]) -> list[str]:
    """Those lines of a requirements file that the account's own environment does not satisfy."""
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
    """By what an environment is found again: all that it is made from."""
    own = [sorted(path.name for path in Path(folder).glob("*-info")) for folder in packages.own_folders()]
    asked = [
        [install.requirements, install.constraints, install.options]
        + [digest(_own(install, parts.root, path)) for path in (*install.folders, *install.links)]
        for install in parts.installs
    ]
    text = [sys.version, packages.own_folders(), own, [*parts.base], [*parts.there], [*parts.also], asked]
    return hashlib.sha256(json.dumps(text).encode()).hexdigest()[:16]


def _make(folder: Path, parts: _Parts, say: Callable[[str], None], run: _Run) -> None:
    venv.EnvBuilder(symlinks=True).create(folder)
    lacking = [*missing(parts.base), *parts.also]
    for install in parts.installs:
        lacking += [*missing(install.requirements), *install.folders]
    if lacking:
        say(f"installing {', '.join(lacking)} into the image's environment")
        _install(folder, parts, say, run)
    _link(folder, parts)


def _install(folder: Path, parts: _Parts, say: Callable[[str], None], run: _Run) -> None:
    """By pip, to which the account's own packages are there too, so that it leaves out those that will be linked."""
    lines = [f"import site; site.addsitedir({path!r})" for path in packages.own_folders()]
    [own] = folder.glob("lib/python*/site-packages")
    python = str(folder / "bin" / "python")
    (own / "the_accounts_own.pth").write_text("\n".join(lines))
    if _own_package("pip") is None:
        run([python, "-m", "ensurepip"], "python -m ensurepip")
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--quiet"]
    _install_base(pip, missing(parts.base), parts.also, say, run)
    for install in parts.installs:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            run([*pip, *_arguments(install, parts.root, Path(scratch))], install.place)
    (own / "the_accounts_own.pth").unlink()


def _install_base(
    pip: Sequence[str], base: Sequence[str], also: Sequence[str], say: Callable[[str], None], run: _Run
) -> None:
    """What a container has, and of ``also``, what the image's files import of it; what cannot be had of that is noted."""
    try:
        if base or also:
            run([*pip, *base, *also], "FROM")
        return
    except ImageError:
        if not also:
            raise
    if base:
        run([*pip, *base], "FROM")
    for line in also:
        try:
            run([*pip, line], "FROM")
        except ImageError as error:
            say(f"{error}; AWS's container has it, and here a job that imports it fails")


def _link(folder: Path, parts: _Parts) -> None:
    """Have the environment show those packages of the account's own that belong into it."""
    [own] = folder.glob("lib/python*/site-packages")
    installed = {canonicalize_name(one.name) for one in packages.installed_in(str(own))}
    find = packages.in_folders([str(own), *packages.own_folders()])
    found = packages.closure(map(Requirement, [*_ALWAYS, *installed, *parts.base, *parts.there]), find)
    for install in parts.installs:
        wanted = [one for line in install.requirements if (one := requirement_of(line)) is not None]
        alone = [one.name for one in wanted] if "--no-deps" in install.options else []
        found |= packages.closure(wanted, find, alone)
    for name, package in sorted(found.items()):
        if name not in installed:
            packages.link(package, folder)


def _arguments(install: PipInstall, root: Path, scratch: Path) -> list[str]:
    """A pip command's arguments; the files that they name are written into ``scratch``."""
    arguments = [*install.options]
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
    return arguments


def _own(install: PipInstall, root: Path, path: str) -> Path:
    found = locate(root, path)
    if not found.exists():
        raise ImageError(
            f"{install.place}: pip install: {path} is not in the image; copy it before, like 'COPY . {path}'"
        )
    return found


def _run(command: list[str], place: str, *, held: int) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    with BoundProcess(
        command,
        held=held,
        text=True,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        done = process.run()
    if done.returncode:
        lines = done.stdout.splitlines()
        said = " ".join([line for line in lines if line.startswith("ERROR:")] or lines[-5:])
        nothing = re.search(r"No matching distribution found for (\S+)", said)
        raise ImageError(f"{place}: {f'{nothing[1]} cannot be had' if nothing else 'pip install failed'}: {said}")


def _own_package(name: str) -> Distribution | None:
    return packages.in_folders(packages.own_folders())(name)
