"""The lines that a program prints, as events that CloudWatch Logs takes.

A line that is longer than an event becomes several, as Docker's log driver for CloudWatch splits it
(moby/moby, daemon/logger/awslogs, `maximumBytesPerEvent`: 262,144 bytes less 26). PutLogEvents itself takes 1 MB by now.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

LONGEST_EVENT = 256 * 1024 - 26  # bytes
_BLOCK = 1 << 16


class Lines:
    """Passes on the lines that arrive at a pipe's end, in parts of at most 256 KB; bytes that are no UTF-8 as U+FFFD."""

    def __init__(self, descriptor: int, give: Callable[[str], None]) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._give = give
        self._partial = b""

    def fileno(self) -> int:
        return self._descriptor

    def read(self) -> bool:
        """Pass on the lines that are complete with what is there. False when nothing is."""
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
        """Pass on all that is there, a last line without an end too."""
        while self.read():
            pass
        if self._partial:
            self._pass_on(self._partial)
            self._partial = b""

    def _pass_on(self, line: bytes) -> None:
        for part in parts(line.decode(errors="replace")):
            self._give(part)


def parts(line: str) -> Iterator[str]:
    """A line in parts of at most 256 KB, between whole characters."""
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
    """Where the first part of what is too long ends: not within a character, of which each further byte is 0b10xxxxxx."""
    end = LONGEST_EVENT
    while end > LONGEST_EVENT - 3 and data[end] & 0xC0 == 0x80:
        end -= 1
    return end
