"""Subprocesses that end with the account, however it ends: those of functions, pip, and a build's `docker`.

This file is also their parent program: it starts a command, and kills its remaining processes when the command has ended or
the caller has, whose end of a pipe the kernel then closes. It imports only the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


class BoundProcess:
    """A command with all processes that it starts; on other systems than Linux an ordinary process.

    Args:
        command: the program and its arguments.
        keep_open: a descriptor, such as of a locked file, that stays open until the last process has ended.
        options: of subprocess.Popen.
    """

    def __init__(self, command: Sequence[str], *, keep_open: int | None = None, **options: Any) -> None:
        read, self._lifeline = os.pipe()
        kept = () if keep_open is None else (keep_open,)
        descriptors = (read, *kept)
        program = [*command]
        if sys.platform == "linux":
            program = [sys.executable, "-I", "-S", __file__, ",".join(map(str, descriptors)), *command]
        try:
            self._process = subprocess.Popen(program, pass_fds=descriptors, **options)
        except BaseException:
            os.close(self._lifeline)
            raise
        finally:
            os.close(read)

    def kill(self) -> None:
        """Kills the command and all processes that it has started."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
            if sys.platform != "linux":
                self._process.kill()

    def wait(self) -> int:
        """Waits until all processes have ended; returns the exit code, negative for a signal."""
        return self._process.wait()

    def run(self, input: Any = None, timeout: float | None = None) -> subprocess.CompletedProcess[Any]:
        """Waits for the end of the command.

        Args:
            input: for its standard input.
            timeout: in seconds, after which it is killed.

        Raises:
            subprocess.TimeoutExpired: it was killed; the exception has its output.
        """
        try:
            output, errors = self._process.communicate(input, timeout)
        except subprocess.TimeoutExpired as expired:
            self.kill()
            expired.output, expired.stderr = self._process.communicate()
            raise
        return subprocess.CompletedProcess(self._process.args, self._process.returncode, output, errors)

    def __enter__(self) -> BoundProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


def main() -> None:
    """Runs a command as this process's child, and kills all descendants at its end or the caller's."""
    descriptors, command = [*map(int, sys.argv[1].split(","))], sys.argv[2:]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    libc = ctypes.CDLL(None, use_errno=True)
    # Orphaned descendants of the command become children of this process.
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Signals of a terminal or the account are handled by the command.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    child = os.fork()
    if child == 0:
        _become(libc, command)
    ended = os.pidfd_open(child)
    with selectors.DefaultSelector() as selector:
        selector.register(ended, selectors.EVENT_READ)
        selector.register(descriptors[0], selectors.EVENT_READ)
        over = {key.fd for key, _ in selector.select()}
    code = -signal.SIGKILL
    if ended in over:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    _end_children()
    if code < 0:  # end as the command did
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _become(libc: ctypes.CDLL, command: list[str]) -> None:
    try:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _end_children() -> None:
    """Kills all children, including those that this process inherits thereby, until there are none."""
    with contextlib.suppress(ChildProcessError):
        while True:
            for child in _children():
                os.kill(child, signal.SIGKILL)
            os.wait()


def _children() -> Iterator[int]:
    yield from map(int, Path("/proc/thread-self/children").read_text().split())


if __name__ == "__main__":
    main()
