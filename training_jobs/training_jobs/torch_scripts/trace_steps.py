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


@dataclass
class Steps:
    """The steps of this process so far."""

    file: TextIO
    checkpoints: Path
    end_after: int | None
    made: int = 0
    files: dict[str, tuple[int, int]] = field(default_factory=dict)
    # What the optimizers' parameters are at the end.
    parameters: Callable[[], list[list[str]]] = list

    def write(self, line: Mapping[str, Any]) -> None:
        """Write a line."""
        print(json.dumps(line), file=self.file, flush=True)

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
        self.write({"ended": self.made, "saved": self.has_saved(), "parameters": self.parameters()})

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


def uses_keras(script: Path) -> bool:
    """Whether a script, or one beside it, imports TensorFlow or Keras, and this Python has Keras."""
    texts = (path.read_text(errors="replace") for path in sorted(script.resolve().parent.rglob("*.py")))
    return importlib.util.find_spec("keras") is not None and any(map(_OF_KERAS.search, texts))


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
        importlib.import_module("trace_keras" if uses_keras(options.script) else "trace_torch").watch(steps)
        sys.argv = [str(options.script), *options.arguments]
        sys.path[0] = str(options.script.resolve().parent)
        try:
            runpy.run_path(str(options.script), run_name="__main__")
        except SystemExit as ended:
            if ended.code not in (None, 0):
                raise
        steps.ended()


if __name__ == "__main__":
    main()
