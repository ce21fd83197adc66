"""Virtual environments with packages of the tests' own: hard links to them, so that nothing is unpacked and compiled again."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution
from pathlib import Path

from packaging.requirements import Requirement

from sagemaker_local_account.core.site_packages import own_folders
from sagemaker_local_account.images import packages

own_package = packages.in_folders(own_folders())


def make(folder: Path, linked: Iterable[Distribution]) -> Path:
    """Make an environment without pip; its folder of programs."""
    venv.EnvBuilder(clear=True, symlinks=True).create(folder)
    for package in linked:
        for file in package.files or ():
            _link(os.path.normpath(package.locate_file(file)), folder)
    return folder / "bin"


def _link(source: str, folder: Path) -> None:
    target = os.path.join(folder, os.path.relpath(source, sys.prefix))
    os.makedirs(os.path.dirname(target), exist_ok=True)
    command = packages.with_python(Path(source), folder) if os.path.dirname(source) == f"{sys.prefix}/bin" else None
    if command is not None:
        Path(target).write_bytes(command)
        os.chmod(target, 0o755)
    elif os.path.exists(source) and not os.path.exists(target):
        try:
            os.link(source, target)
        except OSError:  # another file system
            shutil.copy2(source, target)


def install(programs: Path, *arguments: str, **environment: str) -> None:
    """`pip install` into an environment, by the pip of the tests' own. Python compiles what it imports, in place of all."""
    command = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install", "--quiet", "--no-compile"]
    subprocess.run([*command, *arguments], env={**os.environ, **environment}, check=True)


def of_requirements(cache: Path, requirements: Path) -> Path:
    """The programs of an environment with exactly what a file lists, each package as ``NAME==VERSION``.

    It is made once for each text of the file and each state of the tests' own environment, and kept in ``cache``.
    """
    lines = (line.partition("#")[0].strip() for line in requirements.read_text().splitlines())
    wanted = [Requirement(line) for line in lines if line]
    linked = {one.name: found for one in wanted if (found := _the_same(one)) is not None}
    home = cache / f"{requirements.stem}-{_key(wanted, linked)}"
    with home.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            shutil.rmtree(home, ignore_errors=True)
            programs = make(home, linked.values())
            install(programs, "--no-deps", *(str(one) for one in wanted if one.name not in linked))
            (home / "complete").touch()
    return home / "bin"


def _the_same(wanted: Requirement) -> Distribution | None:
    found = own_package(wanted.name)
    return found if found is not None and wanted.specifier.contains(found.version) else None


def _key(wanted: Iterable[Requirement], linked: Mapping[str, Distribution]) -> str:
    text = [sys.prefix, sys.version, [str(one) for one in wanted], sorted(linked)]
    return hashlib.sha256(json.dumps(text).encode()).hexdigest()[:12]
