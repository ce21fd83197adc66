"""What is found in a planted script, and what came out where all of them ran."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from training_jobs.lint import Job, lint_folder


def found_in(folder: Path, text: str, job: Job) -> list[tuple[str, int]]:
    """The rules that find something in a script, each with its line."""
    (folder / "train.py").write_text(text)
    return [(one.rule, one.line) for one in lint_folder(folder, job)]


def line_of(text: str) -> int:
    """The line with ``# HERE``."""
    [line] = [number for number, text in enumerate(text.splitlines(), start=1) if "# HERE" in text]
    return line


def outcomes_of(runner: str) -> dict[str, Any]:
    """What a program of this folder printed, which runs scripts."""
    ran = subprocess.run([sys.executable, runner], cwd=Path(__file__).parent, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found
