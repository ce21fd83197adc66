"""compiled/train.py as real processes on this machine, and what it printed. For the tests of compiled jobs."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from preloaded import start

TRAINING_CODE = Path(__file__).parents[2] / "training_code"
FOLDER = TRAINING_CODE / "compiled"
SECONDS = 600  # until a test that would hang fails
SMALL = ["--batch-size=4", "--sequence=32", "--width=32", "--layers=1", "--heads=2"]
SMALL += ["--preprocessing-workers=0", "--log-every=1"]


@dataclass(frozen=True)
class Ended:
    code: int
    output: str

    @property
    def losses(self) -> dict[int, float]:
        """The loss of each step that was printed."""
        return {int(step): float(loss) for step, loss in re.findall(r"^step (\d+) loss ([\d.]+)", self.output, re.M)}

    def measure(self, name: str) -> float:
        """What the job's metrics would read after ``name``."""
        found = re.search(rf"^{name} ([\d.]+)", self.output, re.M)
        assert found, self.output
        return float(found[1])


class Program:
    """A train.py that runs in ``folder``, with the processes that it starts."""

    def __init__(self, folder: Path, *arguments: str, processes: int = 1, **environment: str) -> None:
        settings = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(TRAINING_CODE)}
        command = [FOLDER / "train.py", *SMALL, *arguments]
        self.process = start(command, cwd=folder, env=settings | environment, ranks=processes)
        self._watchdog = threading.Timer(SECONDS, self.process.kill)
        self._watchdog.start()
        self._lines: list[str] = []

    def until(self, beginning: str) -> None:
        """Return when it has printed a line that begins so."""
        for line in self.process.stdout:
            self._lines.append(line)
            if line.startswith(beginning):
                return
        raise AssertionError("".join(self._lines))

    def end(self) -> Ended:
        """Return when it has ended of itself."""
        rest = self.process.communicate()[0]
        self._watchdog.cancel()
        return Ended(self.process.wait(), "".join(self._lines) + rest)

    def close(self) -> None:
        """End what is left of it."""
        self._watchdog.cancel()
        self.process.close()


@contextlib.contextmanager
def running(folder: Path, *arguments: str, processes: int = 1, **environment: str) -> Iterator[Program]:
    program = Program(folder, *arguments, processes=processes, **environment)
    try:
        yield program
    finally:
        program.close()


def run(folder: Path, *arguments: str, processes: int = 1, **environment: str) -> Ended:
    with running(folder, *arguments, processes=processes, **environment) as program:
        return program.end()


def channel(file_or_folder: Path) -> dict[str, str]:
    """The variables of a job with one channel, as SageMaker's training toolkit sets them."""
    return {"SM_CHANNELS": '["text"]', "SM_CHANNEL_TEXT": str(file_or_folder)}


def module(name: str) -> ModuleType:
    """A module of compiled/ under a name of its own, since another kind's `model` may be imported as well."""
    spec = importlib.util.spec_from_file_location(f"compiled_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # by whose name Dynamo imports it
    spec.loader.exec_module(found)
    return found
