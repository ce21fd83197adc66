"""The command `local-account` in a process of its own, as a user has it in another terminal."""

from __future__ import annotations

import contextlib
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

COMMAND = str(Path(sys.prefix) / "bin" / "local-account")


class Serving:
    """`local-account` as a process of its own, once it answers. `within` is a command that starts it."""

    def __init__(self, state: Path, *options: str, within: Sequence[str] = ()) -> None:
        self.state = state
        command = [*within, COMMAND, "--state", str(state), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.exports = {}
        for line in self.process.stdout:
            if line.startswith("export "):
                name, value = shlex.split(line)[1].split("=", 1)
                self.exports[name] = value
            if "Ctrl-C" in line:
                return
        raise AssertionError(self.process.stderr.read() if self.process.stderr else "")

    def end(self, number: int = signal.SIGTERM) -> str:
        """End it by a signal; what it has written to standard error."""
        self.process.send_signal(number)
        return self.process.communicate()[1]

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *error: object) -> None:
        self.end(signal.SIGKILL)


def marked(mark: str) -> set[int]:
    """The processes that have a text in their environment or their command line."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes():
                found.add(int(folder.name))
    return found


def lives(process: psutil.Process) -> bool:
    """Whether it is more than an entry in the table, which stays until the machine's process 1 looks."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False
