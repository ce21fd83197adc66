"""The Python environment of an image: the account's own where that has what the image asks for, else one made for it."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

# Options of `pip install` that take a value which names no requirement.
_WITH_VALUE = (
    "-c",
    "--constraint",
    "-i",
    "--index-url",
    "--extra-index-url",
    "-f",
    "--find-links",
    "--timeout",
    "--retries",
)


class ImageError(Exception):
    """An image cannot be had; the text says which, where, and why."""


@dataclass(frozen=True)
class PipInstall:
    """One ``pip install`` of a Dockerfile: its arguments, and the file and line it stands in."""

    arguments: tuple[str, ...]
    place: str
    requirements: tuple[str, ...] | None  # in pip's words; None where only pip can tell them

    @property
    def text(self) -> str:
        return shlex.join(("pip", "install", *self.arguments))


def pip_install(words: Sequence[str], place: str, in_image: Callable[[str], Path]) -> PipInstall | None:
    """What a command installs, when it is ``pip install ...`` or ``python -m pip install ...``; None when it is not.

    ``in_image`` finds the file of a path that the command names. Raises ``ImageError`` where such a file is not there.
    """
    match [re.sub(r"\d[\d.]*$", "", words[0].rpartition("/")[2]) if words else "", *words[1:]]:
        case ["pip", "install", *arguments]:
            pass
        case ["python", "-m", "pip", "install", *arguments]:
            pass
        case _:
            return None
    found: list[str] | None = []
    placed: list[str] = []
    rest = iter(arguments)
    for word in rest:
        if word in ("-r", "--requirement", "-c", "--constraint"):
            file = in_image(next(rest, ""))
            if not file.is_file():
                raise ImageError(
                    f"{place}: pip install: no file {file.name!r} was copied into the image before this line"
                )
            placed += [word, str(file)]
            if word in ("-r", "--requirement") and found is not None:
                found += _requirements_of(file)
        elif word in _WITH_VALUE:
            placed += [word, next(rest, "")]
        elif word.startswith("-"):
            placed.append(word)
            # Of these only pip knows what they come to.
            if word in ("-e", "--editable", "--force-reinstall", "--target", "-t", "--pre"):
                found = None
        else:
            local = in_image(word) if word.startswith((".", "/")) else None
            placed.append(str(local) if local else word)
            if found is not None:
                found.append(word)
    requirements = None if found is None or not all(_is_requirement(text) for text in found) else tuple(found)
    return PipInstall(tuple(placed), place, requirements)


def python_for(base: Sequence[str], installs: Sequence[PipInstall], state: Path, say: Callable[[str], None]) -> Path:
    """The environment folder that holds what a base brings and what an image installs. Raises ``ImageError``.

    It is the account's own where that satisfies every requirement; else a virtual environment, made once and kept by what it
    is made from.
    """
    wanted = [*base]
    for install in installs:
        wanted += install.requirements or []
    if all(install.requirements is not None for install in installs) and not missing(wanted):
        return Path(sys.prefix)
    key = [sys.version, [*base], [_content(install) for install in installs]]
    folder = state / "venvs" / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            say(
                f"a virtual environment for it: the account's own has not {', '.join(missing(wanted)) or 'all that it asks for'}"
            )
            _run([sys.executable, "-m", "venv", str(folder)], "python -m venv")
            if base:
                _run([*_pip(folder), *base], f"pip install {shlex.join(base)}")
            for install in installs:
                _run([*_pip(folder), *install.arguments], f"{install.place}: {install.text}")
            (folder / "complete").touch()
    return folder


def missing(requirements: Sequence[str]) -> list[str]:
    """Those that the account's own environment does not satisfy."""
    return [text for text in requirements if not _satisfied(Requirement(text))]


def _satisfied(requirement: Requirement) -> bool:
    if requirement.marker is not None and not requirement.marker.evaluate():
        return True
    if requirement.url:
        return False
    try:
        installed = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return False
    # A version like 2.13.0+cpu is one of 2.13.0.
    return requirement.specifier.contains(installed.partition("+")[0], prereleases=True) and _has_extras(requirement)


def _has_extras(requirement: Requirement) -> bool:
    needed = importlib.metadata.requires(requirement.name) or []
    wanted = {canonicalize_name(extra) for extra in requirement.extras}
    for text in needed if wanted else []:
        part = Requirement(text)
        of_extra = part.marker is not None and any(part.marker.evaluate({"extra": extra}) for extra in wanted)
        if of_extra and not _satisfied(Requirement(text.partition(";")[0])):
            return False
    return True


def _requirements_of(file: Path) -> list[str]:
    lines = file.read_text().replace("\\\n", " ").splitlines()
    return [text for line in lines if (text := re.sub(r"(^|\s)#.*", "", line).strip())]


def _is_requirement(text: str) -> bool:
    try:
        Requirement(text)
    except InvalidRequirement:
        return False
    return True


def _content(install: PipInstall) -> list[str]:
    """The arguments, with the content of the files that they name in place of their paths."""
    return [Path(word).read_text() if os.path.isfile(word) else word for word in install.arguments]


def _pip(folder: Path) -> list[str]:
    return [str(folder / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        errors = [line for line in done.stdout.splitlines() if line.startswith("ERROR:")] or done.stdout.splitlines()[
            -5:
        ]
        raise ImageError(f"{what}: {' '.join(errors)}")
