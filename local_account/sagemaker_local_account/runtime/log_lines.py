"""Splits a program's output into lines that fit into an event of CloudWatch Logs.

A line that is longer than an event becomes several, as Docker's log driver for CloudWatch splits it
(moby/moby, daemon/logger/awslogs, `maximumBytesPerEvent`: 262,144 bytes less 26). PutLogEvents itself takes 1 MB by now.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

LONGEST_EVENT = 256 * 1024 - 26  # bytes
_BLOCK = 1 << 16


class Lines:
    """Reads lines from a pipe, split at 256 KB; bytes that are not UTF-8 become U+FFFD.

    Args:
        descriptor: the pipe's read end.
        on_line: called with each line.
    """

    def __init__(self, descriptor: int, on_line: Callable[[str], None]) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._on_line = on_line
        self._partial = b""

    def fileno(self) -> int:
        """Returns the pipe's descriptor, for selectors."""
        return self._descriptor

    def read(self) -> bool:
        """Reads what is available and emits the complete lines; returns False where nothing was available."""
        try:
            data = os.read(self._descriptor, _BLOCK)
        except BlockingIOError:
            return False
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._pass_on(line)
        while len(self._partial) > LONGEST_EVENT:
            end = _end_of_part(self._partial)
            self._pass_on(self._partial[:end])
            self._partial = self._partial[end:]
        return bool(data)

    def finish(self) -> None:
        """Emits everything that is available, also an incomplete last line."""
        while self.read():
            pass
        if self._partial:
            self._pass_on(self._partial)
            self._partial = b""

    def _pass_on(self, line: bytes) -> None:
        for part in parts(line.decode(errors="replace")):
            self._on_line(part)


def parts(line: str) -> Iterator[str]:
    """Yields a line in parts of at most 256 KB, split between characters."""
    if len(line) * 4 <= LONGEST_EVENT:
        yield line
        return
    left = line.encode(errors="replace")
    while len(left) > LONGEST_EVENT:
        end = _end_of_part(left)
        yield left[:end].decode(errors="replace")
        left = left[end:]
    yield left.decode(errors="replace")


def _end_of_part(data: bytes) -> int:
    """The end of the first part, not within a UTF-8 character, whose continuation bytes are 0b10xxxxxx."""
    end = LONGEST_EVENT
    while end > LONGEST_EVENT - 3 and data[end] & 0xC0 == 0x80:
        end -= 1
    return end
