"""Write what each step of a training script begins with, for ``training-jobs check``.

    python trace_steps.py --to FOLDER --checkpoints FOLDER [--end-after N] SCRIPT [ARGUMENTS OF THE SCRIPT]

The script is not changed. Of each process a file ``rank-R.jsonl`` gets a line for each step of any ``torch.optim.Optimizer``, or
of Keras's ``fit``: digests of its parameters and its optimizer's state, of the gradients and of the last batch, where these are
known, and the numbers of each group of parameters, such as learning rates. With ``--end-after`` the process ends itself by
SIGKILL after so many steps, as on a machine that is taken back: AWS's containers do not pass SIGTERM on to a script.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import json
import os
import re
import runpy
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

_OF_KERAS = re.compile(r"^\s*(?:import|from)\s+(?:tensorflow|keras|tf_keras)\b", re.MULTILINE)
_OF_TORCH = re.compile(
    r"^\s*(?:import|from)\s+(?:\w*torch\w*|\w*lightning|transformers|accelerate|trl)\b", re.MULTILINE
)


@dataclass
class Steps:
    """The steps of this process so far."""

    file: TextIO
    checkpoints: Path
    end_after: int | None
    made: int = 0
    files: dict[str, tuple[int, int]] = field(default_factory=dict)
    # What makes steps, and what its parameters are at the end.
    known: list[tuple[object, Callable[[], list[str]]]] = field(default_factory=list)

    def write(self, line: Mapping[str, Any]) -> None:
        """Write a line."""
        print(json.dumps(line), file=self.file, flush=True)

    def number(self, one: object) -> int | None:
        """The number of an optimizer or a model that has made a step; None for its first."""
        return next((at for at, (other, _) in enumerate(self.known) if other is one), None)

    def add(self, one: object, optimizer: object, names: list[str], parameters: Callable[[], list[str]]) -> int:
        """Write which optimizer makes its first step, of which parameters, and return its number."""
        self.known.append((one, parameters))
        number = len(self.known) - 1
        self.write({"optimizer": number, "kind": type(optimizer).__name__, "names": names})
        return number

    def begins(self, step: Mapping[str, Any]) -> None:
        """Write what a step begins with."""
        self.write({"step": self.made, "saved": self.has_saved(), **step})

    def ends(self) -> None:
        """Count a step."""
        self.made += 1
        if self.made == self.end_after:
            self.file.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    def ended(self) -> None:
        """Write what the script leaves when it ends by itself."""
        self.write({"ended": self.made, "saved": self.has_saved(), "parameters": [last() for _, last in self.known]})

    def has_saved(self) -> bool:
        """Whether a file of the checkpoints is new or has changed since the last time."""
        found = {str(path): (status.st_mtime_ns, status.st_size) for path, status in _files_below(self.checkpoints)}
        changed = bool(found.items() - self.files.items())
        self.files = found
        return changed


def _files_below(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Its files, which may be gone before they are looked at."""
    for path in sorted(folder.rglob("*")):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        if path.is_file():
            yield path, status


def digest(parts: Iterable[bytes]) -> str:
    """A digest of bytes; "" where there are none."""
    whole = list(parts)
    return hashlib.blake2b(b"".join(whole), digest_size=8).hexdigest() if whole else ""


def traced(script: Path) -> list[str]:
    """The modules that trace a script: Keras's where it, or one beside it, imports that, and torch's unless none does."""
    texts = [path.read_text(errors="replace") for path in sorted(script.resolve().parent.rglob("*.py"))]
    keras = importlib.util.find_spec("keras") is not None and any(map(_OF_KERAS.search, texts))
    torch = importlib.util.find_spec("torch") is not None and (not keras or any(map(_OF_TORCH.search, texts)))
    return ["trace_keras"] * keras + ["trace_torch"] * torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--end-after", type=int)
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    with (options.to / f"rank-{os.environ.get('RANK', '0')}.jsonl").open("w") as file:
        steps = Steps(file, options.checkpoints, options.end_after)
        steps.has_saved()
        for module in traced(options.script):
            importlib.import_module(module).watch(steps)
        sys.argv = [str(options.script), *options.arguments]
        sys.path[0] = str(options.script.resolve().parent)
        try:
            runpy.run_path(str(options.script.resolve()), run_name="__main__")  # as Python's own __file__ is
        except SystemExit as ended:
            if ended.code not in (None, 0):
                raise
        steps.ended()


if __name__ == "__main__":
    main()
