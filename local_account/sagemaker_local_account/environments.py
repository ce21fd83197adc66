"""The Python environment of an image: the account's own where that has what the image asks for, else one made for it."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from . import atomic_files
from .bound_process import BoundProcess
from .pip_install import PipInstall, requirement_of
from .references import ImageError
from .trees import digest, locate

# What installs, and is nothing to a job; Dockerfiles bring it up to date as a matter of course.
_TOOLS = ("pip", "wheel")
SHARED = "SAGEMAKER_LOCAL_ACCOUNT_VENVS"


def python_for(
    base: Sequence[str], installs: Sequence[PipInstall], root: Path, state: Path, say: Callable[[str], None]
) -> Path:
    """The environment folder with what an image's base brings and what it installs; ``root`` has the image's files.

    It is the account's own where that satisfies everything. Else it is a virtual environment, made once and kept, that lies
    over the account's own: only what that lacks is installed. It is kept in the account's folder, or in the folder that
    SAGEMAKER_LOCAL_ACCOUNT_VENVS names, which accounts may share: its name is the hash of all that it is made from.

    What installs ends with the account, however that ends, and no other account begins before it has.

    Raises:
        ImageError: a requirement cannot be had; the text names it and the Dockerfile's line.
    """
    lacking = missing(base)
    wanted = [*lacking, *(text for install in installs for text in [*missing(install.requirements), *install.folders])]
    if not wanted:
        return Path(sys.prefix)
    folder = Path(os.environ.get(SHARED) or state / "venvs") / _key(base, installs, root)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            say(f"installing {', '.join(wanted)} into a virtual environment of the image's own")
            shutil.rmtree(folder, ignore_errors=True)
            try:
                _make(folder, lacking, installs, root, lock.fileno())
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            atomic_files.write(folder / "complete", "")
    return folder


def missing(lines: Sequence[str]) -> list[str]:
    """Those lines of a requirements file that the account's own environment does not satisfy."""
    return [line for line in lines if (wanted := requirement_of(line)) is None or not _satisfied(wanted)]


def _satisfied(wanted: Requirement) -> bool:
    if wanted.marker is not None and not wanted.marker.evaluate():
        return True
    if wanted.name in _TOOLS:
        return True
    found = _installed(wanted.name)
    if found is None or not wanted.specifier.contains(found.version, prereleases=True):
        return False
    extras = {canonicalize_name(extra) for extra in wanted.extras}
    for text in (found.requires or []) if extras else []:
        part = Requirement(text)
        of_extra = part.marker is not None and not part.marker.evaluate({"extra": ""})
        if of_extra and any(part.marker.evaluate({"extra": extra}) for extra in extras if part.marker):
            part.marker = None
            if not _satisfied(part):
                return False
    return True


def _installed(name: str) -> importlib.metadata.Distribution | None:
    # Not all of sys.path: what PYTHONPATH or a home folder adds is not there for a job.
    found = importlib.metadata.Distribution.discover(name=name, path=site.getsitepackages())
    return next(iter(found), None)


def _key(base: Sequence[str], installs: Sequence[PipInstall], root: Path) -> str:
    """By what an environment is found again: all that it is made from, and what it lies over."""
    own = [sorted(path.name for path in Path(folder).glob("*-info")) for folder in site.getsitepackages()]
    asked = [
        [install.requirements, install.constraints, install.options]
        + [digest(_own(install, root, path)) for path in (*install.folders, *install.links)]
        for install in installs
    ]
    return hashlib.sha256(json.dumps([sys.version, own, [*base], asked]).encode()).hexdigest()[:16]


def _make(folder: Path, base: Sequence[str], installs: Sequence[PipInstall], root: Path, held: int) -> None:
    python = folder / "bin" / "python"
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder)], "python -m venv", held)
    lines = [f"import site; site.addsitedir({path!r})" for path in site.getsitepackages()]
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "the_accounts_own.pth").write_text("\n".join(lines))
    if _installed("pip") is None:
        _run([str(python), "-m", "ensurepip"], "python -m ensurepip", held)
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--quiet"]
    if base:
        _run([*pip, *base], "FROM", held)
    for install in installs:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            _run([*pip, *_arguments(install, root, Path(scratch))], install.place, held)
    _add_scripts(folder)


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


def _add_scripts(folder: Path) -> None:
    """The account's own commands (`train`, `torchrun`, ...) once more, so that they run with this environment's Python."""
    own = f"{sys.prefix}/bin/python".encode()
    # By way of a shell: the kernel cuts long first lines, and spaces in them.
    start = b"#!/bin/sh\n'''exec' \"%s\" \"$0\" \"$@\"\n' '''\n" % os.fsencode(folder / "bin" / "python")
    for script in Path(sys.prefix, "bin").iterdir():
        copy = folder / "bin" / script.name
        if copy.exists() or script.is_symlink() or not script.is_file():
            continue
        with script.open("rb") as file:
            first, second, rest = file.readline(), file.readline(), file.read()
        if first.startswith(b"#!" + own):
            copy.write_bytes(start + second + rest)
        elif first.startswith(b"#!/bin/sh") and second.startswith(b"'''exec'") and own in second:
            copy.write_bytes(start + rest.removeprefix(b"' '''\n"))
        else:
            continue
        copy.chmod(0o755)


def _run(command: list[str], place: str, held: int) -> None:
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
