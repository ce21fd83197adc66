"""The command `local-account` in a process of its own, as a user has it in another terminal."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

import psutil

from sagemaker_local_account import cli

COMMAND = str(Path(sys.prefix) / "bin" / "local-account")


# Each account is a fork of a process that has imported what accounts are made of, which takes two seconds.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["sagemaker_local_account.cli", "sagemaker_local_account.services"])


def _run(arguments: Sequence[str], environment: Mapping[str, str], output: Connection, errors: Connection) -> None:
    for stream, number in ((output, 1), (errors, 2)):
        os.dup2(stream.fileno(), number)
        stream.close()
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [COMMAND, *arguments]
    cli.main()


class Serving:
    """`local-account` as a process of its own, once it answers. `within` is a command that starts it, else it is a fork."""

    def __init__(self, state: Path, *options: str, within: Sequence[str] = ()) -> None:
        self.state = state
        arguments = ["--state", str(state), *options]
        started = self._start(arguments) if not within else self._start_within(within, arguments)
        self.process, self._output, self._errors = started
        self.exports = {}
        for line in self._output:
            if line.startswith("export "):
                name, value = shlex.split(line)[1].split("=", 1)
                self.exports[name] = value
            if "Ctrl-C" in line:
                return
        raise AssertionError(self._errors.read())

    def _start(self, arguments: Sequence[str]) -> tuple[psutil.Process, IO[str], IO[str]]:
        (output, its_output), (errors, its_errors) = FORKS.Pipe(duplex=False), FORKS.Pipe(duplex=False)
        process = FORKS.Process(target=_run, args=(arguments, dict(os.environ), its_output, its_errors), daemon=True)
        process.start()
        its_output.close()
        its_errors.close()
        self._wait = process.join
        assert process.pid is not None
        return psutil.Process(process.pid), *(os.fdopen(os.dup(it.fileno())) for it in (output, errors))

    def _start_within(self, within: Sequence[str], arguments: Sequence[str]) -> tuple[psutil.Process, IO[str], IO[str]]:
        command = [*within, COMMAND, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._wait = process.wait
        assert process.stdout is not None
        assert process.stderr is not None
        return psutil.Process(process.pid), process.stdout, process.stderr

    def end(self, number: int = signal.SIGTERM) -> str:
        """End it by a signal; what it has written to standard error."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.process.send_signal(number)
        with self._output, self._errors:
            said = self._errors.read()
        self._wait()
        return said

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *error: object) -> None:
        if not self._errors.closed:
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
