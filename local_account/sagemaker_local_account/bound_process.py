"""Processes that end with the account, however it ends: the functions', pip's, and those of a build's `docker`.

This file is also the program that they run under: it starts a command, and kills all that is left of it once the command has
ended, or its caller has, whose end of a pipe the kernel closes then. It imports nothing but the standard library.
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
    """A command as a process, and all processes that it starts. Elsewhere than on Linux it is an ordinary process.

    ``held`` is a descriptor, such as of a locked file, that is open until the last of them has ended. ``options`` are Popen's.
    """

    def __init__(self, command: Sequence[str], *, held: int | None = None, **options: Any) -> None:
        read, self._lifeline = os.pipe()
        kept = () if held is None else (held,)
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
        """End it, and all that it has started."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
            if sys.platform != "linux":
                self._process.kill()

    def wait(self) -> int:
        """Its exit code, negative for a signal, once nothing of it is left."""
        return self._process.wait()

    def run(self, input: Any = None, timeout: float | None = None) -> subprocess.CompletedProcess[Any]:
        """Wait for its end. Raises subprocess.TimeoutExpired, with what it printed, once it has been killed for that."""
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
    descriptors, command = [*map(int, sys.argv[1].split(","))], sys.argv[2:]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    libc = ctypes.CDLL(None, use_errno=True)
    # What the command starts falls to this process when the command ends.
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # A signal that a terminal or the account sends is for the command.
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
    """Kill all children, and those that fall to this process thereby, until there are none."""
    with contextlib.suppress(ChildProcessError):
        while True:
            for child in _children():
                os.kill(child, signal.SIGKILL)
            os.wait()


def _children() -> Iterator[int]:
    yield from map(int, Path("/proc/thread-self/children").read_text().split())


if __name__ == "__main__":
    main()
