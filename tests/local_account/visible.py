"""What a job may see of the machine: the list `visible.txt`, with a reason for each line, and what a job printed."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

LIST = Path(__file__).with_name("visible.txt")


@dataclass(frozen=True)
class Line:
    """A thing that a job sees; ``everywhere``: on each machine."""

    text: str
    reason: str
    everywhere: bool


def expected() -> list[Line]:
    lines = []
    for line in LIST.read_text().splitlines():
        if line and not line.startswith("#"):
            text, _, reason = line.partition(" | ")
            lines.append(Line(text.removeprefix("? ").strip(), reason.strip(), not text.startswith("? ")))
    return lines


def python_folders(state: Path) -> list[str]:
    """Where the interpreters and packages are that a host has: this test's own, and those of images."""
    shared = os.environ.get("SAGEMAKER_LOCAL_ACCOUNT_VENVS")
    images = [str(state / "venvs"), *([shared] if shared else [])]
    return [sys.prefix, sys.base_prefix, os.path.realpath(sys.base_prefix), *images]


def seen(lines: Iterable[str], state: Path, names: Mapping[str, str]) -> set[str]:
    """What a job of the account printed, with what varies by machine and start replaced; ``names`` are more of that."""
    pythons = dict.fromkeys(python_folders(state), "PYTHON")
    listed = {line.text for line in expected()}
    folders = {f"root /{path.split('/')[1]}" for path in pythons}
    above = dict.fromkeys(folders - listed, "root PYTHON")
    return {above.get(line, line) for line in normalised(lines, {**pythons, **names})}


def normalised(lines: Iterable[str], names: Mapping[str, str]) -> set[str]:
    """Lines with what varies by machine and start replaced: ``names`` are what for texts, longest first."""
    found = set()
    for line in lines:
        for text in sorted(names, key=len, reverse=True):
            line = line.replace(text, names[text])
        # Where the image has a file in a system folder, that folder is made of its entries.
        line = re.sub(
            r"^mount (?:/etc|/usr|/bin|/sbin|/lib\w*|/nix|/gnu)(?:/\S*)? (\w\w) bind$", r"mount SYSTEM \1 bind", line
        )
        line = re.sub(r"^mount PYTHON\S* (\w\w) bind$", r"mount PYTHON \1 bind", line)
        line = re.sub(r"^((?:environment|file) .*(?:KEY|TOKEN)\w*=).*", r"\1...", line)
        found.add(line)
    return found
