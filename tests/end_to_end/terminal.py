"""A command in a pseudo-terminal, and what its screen shows."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import termios
from collections.abc import Callable, Mapping, Sequence

import pyte


class Terminal:
    """A command whose screen has 80 columns and 24 lines unless `resize` changes that."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._screen = pyte.Screen(80, 24)
        self._stream = pyte.ByteStream(self._screen)
        self._process, self._file = pty.fork()
        if self._process == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background job, as the tests may be, ignores it
            os.execvpe(command[0], list(command), {**environment, "TERM": "xterm"})
        self.resize(80, 24)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._screen.resize(lines, columns)

    def type(self, keys: str) -> None:
        os.write(self._file, keys.encode())

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._screen.display]

    def shows(self, condition: Callable[[list[str]], bool]) -> bool:
        """Whether the screen comes to be so before the command ends; returns as soon as it is."""
        while not condition(self.lines):
            if not self._read():
                return condition(self.lines)
        return True

    def ended(self) -> int:
        """The command's exit code."""
        while self._read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self._process, 0)[1])

    def _read(self) -> bool:
        try:
            data = os.read(self._file, 65_536)
        except OSError:  # EIO, once nobody has the terminal open
            return False
        self._stream.feed(data)
        return bool(data)
