"""Parses a `pip install` command of a Dockerfile."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from sagemaker_local_account.core.image_names import ImageError

# Options of `pip install` and `uv pip install` with a value, which are passed on (`uv.py`).
_WITH_VALUE = frozenset(
    [
        "-i",
        "--index-url",
        "--extra-index-url",
        "-f",
        "--find-links",
        "--timeout",
        "--retries",
        "--trusted-host",
        "--proxy",
        "--cert",
        "--client-cert",
        "--cache-dir",
        "--progress-bar",
        "--no-binary",
        "--only-binary",
        "--upgrade-strategy",
        "--root-user-action",
        "--exists-action",
        "--src",
        "--log",
        "-C",
        "--config-settings",
        "--global-option",
        "--use-feature",
        "--use-deprecated",
        "--keyring-provider",
        "--resume-retries",
        "-p",
        "--python",
        "--index",
        "--default-index",
        "--index-strategy",
        "--torch-backend",
        "--prerelease",
        "--resolution",
        "--link-mode",
        "--exclude-newer",
        "-P",
        "--upgrade-package",
        "--reinstall-package",
        "--allow-insecure-host",
    ]
)
# Not supported: packages of a job are in its environment, for this machine's Python.
_REFUSED = frozenset(
    ["-t", "--target", "--prefix", "--root", "--platform", "--python-version", "--abi", "--implementation", "--dry-run"]
)
_OF_ANOTHER_INSTALLER = frozenset(["--system", "--user", "--break-system-packages"])
_ELSEWHERE = re.compile(r"[a-z+]+://|git@|.+ @ ")


@dataclass(frozen=True)
class PipInstall:
    """A `pip install` command, with the content of its requirements files, which a later COPY could replace.

    Args:
        place: the Dockerfile's name and line, such as "Dockerfile:7".
        requirements: the requirements, also those of files.
        constraints: the lines of constraints files.
        folders: paths in the image of packages to install.
        links: paths in the image for `--find-links`.
        options: further options.
    """

    place: str
    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: dict[str, Any]) -> PipInstall:
        """Returns the command from its `dataclasses.asdict`, also from JSON."""
        return cls(values.pop("place"), **{key: tuple(value) for key, value in values.items()})


def requirement_of(line: str) -> Requirement | None:
    """Parses a line of a requirements file; None for a URL."""
    text = re.split(r"\s+--", line)[0]
    return None if _ELSEWHERE.match(text) else Requirement(text)


def requirement_name(line: str) -> str:
    """Returns the normalized name of a requirement's package; "" for a URL."""
    found = requirement_of(line)
    return canonicalize_name(found.name) if found else ""


def pip_install(words: Sequence[str], place: str, workdir: str, find: Callable[[str], Path]) -> PipInstall | None:
    """Parses `pip install ...`, `python -m pip install ...` and `uv pip install ...`.

    Args:
        words: the command.
        place: the Dockerfile's name and line, for messages.
        workdir: the current WORKDIR.
        find: returns this machine's path for a path of the image.

    Returns:
        The command; None for others.

    Raises:
        ImageError: a file is not in the image, a requirement is invalid, or an option is not supported.
    """
    program = [re.sub(r"[\d.]+$", "", posixpath.basename(word)) if n == 0 else word for n, word in enumerate(words)]
    for start in (["pip"], ["python", "-m", "pip"], ["uv", "pip"]):
        if program[: len(start)] == start:
            rest = program[len(start) :]
            early = (
                [word for word in rest[: rest.index("install")] if word.startswith("-")] if "install" in rest else None
            )
            if early is not None and rest[len(early)] == "install":
                reader = _Reader(place, workdir, find)
                reader.arguments([*early, *rest[len(early) + 1 :]])
                return reader.result()
    return None


class _Reader:
    """Collects the arguments of a command and of its requirements files."""

    def __init__(self, place: str, workdir: str, find: Callable[[str], Path]) -> None:
        self._place = place
        self._workdir = workdir
        self._find = find
        self._requirements: list[str] = []
        self._constraints: list[str] = []
        self._folders: list[str] = []
        self._links: list[str] = []
        self._options: list[str] = []

    def result(self) -> PipInstall:
        found = (self._requirements, self._constraints, self._folders, self._links, self._options)
        return PipInstall(self._place, *map(tuple, found))

    def arguments(self, words: Sequence[str], file: str = "") -> None:
        """Parses arguments; ``file`` is the requirements file that contains them, to which paths are relative."""
        rest = iter(words)
        for word in rest:
            if not word.startswith("-"):
                self._requirement(word)
                continue
            option, equals, value = word.partition("=") if word.startswith("--") else (word[:2], word[2:], word[2:])
            if option in ("-r", "--requirement", "-c", "--constraint"):
                path = posixpath.join(posixpath.dirname(file) or self._workdir, value if equals else next(rest, ""))
                self._file(path, constraints=option in ("-c", "--constraint"))
            elif option in ("-e", "--editable"):
                self._requirement(value if equals else next(rest, ""))
            elif option in _REFUSED:
                raise ImageError(f"{self._place}: pip install {option} is not supported by the local account")
            elif option in _WITH_VALUE:
                self._option(option, value if equals else next(rest, ""))
            elif word not in _OF_ANOTHER_INSTALLER:
                self._options.append(word)

    def _option(self, option: str, value: str) -> None:
        path = posixpath.join(self._workdir, value)
        if option in ("-f", "--find-links") and "://" not in value and self._find(path).exists():
            self._links.append(path)
        else:
            self._options += [option, value]

    def _file(self, path: str, *, constraints: bool) -> None:
        file = self._find(path)
        if not file.is_file():
            raise ImageError(
                f"{self._place}: pip install: no file {path!r} is in the image at this line; copy it first, like "
                f"'COPY {posixpath.basename(path)} {posixpath.dirname(path)}/'"
            )
        for line in file.read_text(encoding="utf-8-sig").replace("\\\n", " ").splitlines():
            text = re.sub(r"(^|\s)#.*", "", line).strip()
            if text.startswith("-"):
                self.arguments(shlex.split(text), path)
            elif text and constraints:
                self._constraints.append(text)
            elif text:
                self._requirement(text)

    def _requirement(self, text: str) -> None:
        path = posixpath.join(self._workdir, text.removeprefix("file://"))
        path = re.sub(r"\[[\w, -]*\]$", "", path)
        if text.startswith((".", "/", "file:")) or (text.endswith((".whl", ".tar.gz")) and "://" not in text):
            if not self._find(path).exists():
                raise ImageError(f"{self._place}: pip install: no file {path!r} is in the image at this line")
            self._folders.append(posixpath.normpath(path))
            return
        try:
            requirement_of(text)
        except InvalidRequirement:
            raise ImageError(
                f"{self._place}: pip install: {text!r} is not a requirement like 'pandas==2.3.3'"
            ) from None
        self._requirements.append(text)
