"""What a Dockerfile's RUN installs by pip, as far as its text says."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from training_jobs.lint.commands import CHANGERS
from training_jobs.lint.dockerfile import Dockerfile, Image
from training_jobs.lint.requirements import absent_modules, absent_without

# Of `pip install`: options that take a file, or a value; those after which a package is elsewhere; a requirement.
_TAKE_FILE = ("-r", "--requirement", "-c", "--constraint")
_INDEXES = ("-i", "--index-url", "--extra-index-url", "-f", "--find-links", "--no-index", "--pre")
_TAKE_VALUE = (*_INDEXES[:5], "--timeout", "--retries", "--trusted-host")
_OTHERWISE = ("-e", "--editable", "-t", "--target", "--prefix", "--root", "-r", "--requirement=", "--python")
_REQUIREMENT = re.compile(r"[A-Za-z0-9][\w.-]*(?:\[[\w, -]+\])?\s*(?:[<>=!~][^/$\0]*)?")
_OF_PIP = re.compile(r"(?:pip|setuptools|wheel|uv)(?![\w.-])", re.IGNORECASE)
# Packages of the system that have modules of Python, beside those that pip and builds need.
_OF_PYTHON = re.compile(r"python3?-(?!pip|dev|venv|setuptools|wheel|distutils|apt|minimal|config)|py3-")


class Installs(NamedTuple):
    """What is installed by pip.

    Attributes:
        requirements: Requirements that are named.
        files: Files of requirements.
        elsewhere: Whether packages may come from another index.
    """

    requirements: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    elsewhere: bool = False

    @property
    def lines(self) -> list[str]:
        """The requirements, and the lines of the files."""
        texts = (path.read_text(errors="replace") for path in self.files)
        return [*self.requirements, *(line for text in texts for line in text.splitlines())]

    def absent(self) -> frozenset[str]:
        """Return the modules of known packages that are certainly not installed by them."""
        return frozenset.intersection(
            absent_without(self.requirements), *(absent_modules(path.parent, path.name) for path in self.files)
        )


def installs_of(dockerfile: Dockerfile) -> Installs | None:
    """Return what RUN installs by pip; None where something else may be installed too.

    Args:
        dockerfile: The Dockerfile.
    """
    names, files = list[str](), list[Path]()
    elsewhere = any(name.startswith("PIP_") for name in dockerfile.image.env)
    for run in dockerfile.runs:
        if run.words[0] in CHANGERS:
            if any(map(_OF_PYTHON.match, run.words)):
                return None
            continue
        words = _of_pip(run.words)
        while words:
            word, *words = words
            if word in _TAKE_FILE:
                file = _requirements(dockerfile.image, words[0]) if words else None
                if file is None:
                    return None
                files += [file] if word in ("-r", "--requirement") else []
                words = words[1:]
            elif word in _TAKE_VALUE:
                elsewhere = elsewhere or word in _INDEXES
                words = words[1:]
            elif word.startswith(_INDEXES):
                elsewhere = True
            elif not word.startswith("-") or word.startswith(_OTHERWISE):
                if not _REQUIREMENT.fullmatch(word):
                    return None
                names.append(word)
        if words is None:
            return None
    return Installs(tuple(name for name in names if not _OF_PIP.match(name)), tuple(files), elsewhere)


def _of_pip(words: Sequence[str]) -> list[str] | None:
    """What follows `pip install`; None for another program."""
    words = words[words[0] == "uv" :]
    if len(words) < len(("pip", "install")) or words[0] != "pip":
        return None
    if words[1] == "install":
        return [*words[2:]]
    return [] if words[1] in ("cache", "check", "list", "--version") else None


def _requirements(image: Image, name: str) -> Path | None:
    found = {*image.named(posixpath.basename(name)).values()}
    return found.pop() if len(found) == 1 else None
