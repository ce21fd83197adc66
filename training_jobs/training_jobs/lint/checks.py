"""Runs the rules over files and folders."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from training_jobs.lint.rules import RULES
from training_jobs.lint.script import Job, Script

# Folders whose scripts are of others, or start no job.
SKIPPED = {"__pycache__", "node_modules", "cdk.out", "site-packages", "venv", "build", "dist", "tests"}
_LARGEST = 500_000  # bytes: no person writes a longer script


@dataclass(frozen=True, order=True)
class Finding:
    """One mistake.

    Attributes:
        path: The file, relative to its folder.
        line: Its line.
        rule: The rule's name, by which a comment switches it off.
        reason: What is wrong, and what to do.
    """

    path: str
    line: int
    rule: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason} [{self.rule}]"


def lint(scripts: Sequence[Script], job: Job) -> list[Finding]:
    """Return the mistakes of a job's scripts, in the order of files and lines.

    Args:
        scripts: All of the job's files, since one may save the checkpoint that another one's loop needs.
        job: What is known of the job.
    """
    return list(_found(tuple(scripts), _Asked(repr(job), job))) if scripts else []


@dataclass(frozen=True)
class _Asked:
    """A job by its text, since what it maps has no hash."""

    text: str
    job: Job = field(compare=False)


@lru_cache(maxsize=64)
def _found(scripts: tuple[Script, ...], asked: _Asked) -> list[Finding]:
    """The mistakes, found once for all jobs that have these scripts and are alike."""
    found = {
        Finding(script.path, line, rule, reason)
        for rule, check in RULES.items()
        for script, line, reason in check(scripts, asked.job)
        if rule not in script.allowed.get(line, set()) | script.allowed.get(0, set())
    }
    return sorted(found)


def lint_folder(folder: Path, job: Job, files: Iterable[Path] | None = None) -> list[Finding]:
    """Return the mistakes of a folder's scripts; files that are no Python, or of another version, are left out.

    Args:
        folder: The folder, or one file.
        job: What is known of the job.
        files: Its files, relative to it. Default: all below it, without tests, hidden folders and installed packages.
    """
    root = folder if folder.is_dir() else folder.parent
    paths = (_below(root) if folder.is_dir() else [Path(folder.name)]) if files is None else sorted(set(files))
    return lint(scripts_of(root, paths), job)


def scripts_of(root: Path, files: Iterable[Path]) -> list[Script]:
    """Return the scripts among files, parsed; those that are no Python, or of another version, are left out.

    Args:
        root: A folder.
        files: Files, relative to it.
    """
    scripts = (_parsed(path.as_posix(), root / path) for path in files if path.suffix == ".py")
    return [script for script in scripts if script is not None]


def _below(root: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if name not in SKIPPED and not name.startswith("."))
        yield from (Path(folder, name).relative_to(root) for name in sorted(files))


def _parsed(shown: str, path: Path) -> Script | None:
    try:
        return None if path.stat().st_size > _LARGEST else _script(shown, path.read_text())
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=1024)
def _script(shown: str, text: str) -> Script | None:
    """The script, parsed once for all jobs that have it."""
    try:
        return Script(shown, text)
    except (SyntaxError, ValueError):
        return None
