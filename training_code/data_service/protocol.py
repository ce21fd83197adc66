"""Frames on one TCP connection between a training process and a data host.

A frame is a header, a text (JSON where its kind has one) and a payload, which only a batch has:

    kind u8 | request u32 | bytes of the text u32 | bytes of the payload u64 | busy f64, little-endian

``busy`` are the seconds in which the data host's workers have made batches.

The training process sends HELLO, receives WELCOME or REFUSED, then sends REQUEST, PING and DONE; the data host sends a BATCH,
END or FAILED for each request in any order, PONG for each PING, and BYE for DONE. Nothing is pickled.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from enum import IntEnum
from itertools import islice
from typing import Any, NamedTuple

from torch import Tensor

VERSION = 2
HEADER = struct.Struct("<BIIQd")
MAX_TEXT = 2**24  # bytes that a data host reads of a frame, which has no payload, but may have a dataset's state
MAX_DESCRIPTION = 2**28  # bytes of a batch's description, which holds its texts
MAX_BATCH = 2**33  # bytes of a batch
READ = 2**16  # bytes that are read at once where they may be many frames
READ_HEADER = 2**10  # bytes after a large payload: what is read beyond a header is copied once more than the rest
# Seconds in which the next bytes of a payload arrive, or there is room for them, before other connections are served.
PAYLOAD_WAIT, SEND_WAIT = 0.02, 0.005
MAX_VECTORS = 64  # buffers that are sent at once
MAX_SENT = 2**23  # bytes that are sent before others have their turn: workers wait for orders meanwhile
WAKE_BYTES = 2**20  # of a large payload that have come when its receiver is woken, until less is left


class DataServiceError(Exception):
    """The service cannot go on; the text is the reason."""


class DataHostLost(DataServiceError):
    """A data host has stopped answering, or never did; the text has its name, when and why."""


class TrainerFailed(DataServiceError):
    """A training rank has failed, or nothing was received from it for too long."""


class ProtocolError(DataServiceError):
    """A peer has sent what is not a frame of this protocol."""


class Kind(IntEnum):
    HELLO = 1
    WELCOME = 2
    REFUSED = 3
    REQUEST = 4
    BATCH = 5
    END = 6
    FAILED = 7
    PING = 8
    PONG = 9
    DONE = 10
    BYE = 11


KINDS = frozenset(Kind)


class Frame(NamedTuple):
    kind: int
    request: int
    text: bytes
    payload: Tensor | None
    busy: float = 0.0

    def json(self) -> Any:
        try:
            return json.loads(self.text)
        except ValueError as error:
            raise ProtocolError(f"a frame's text must be JSON: {error}") from error


def _avoid_bbr(sock: socket.socket) -> None:
    """Use Cubic, or Reno where that is not permitted, if the kernel's default is BBR, whose pacing is slower within a network.

    By measurement (decision 0005), and as in github.com/kata-containers/packaging/issues/1067 and arxiv.org/abs/2601.05665.
    """
    if sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).startswith(b"bbr"):
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        except OSError:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")  # which every process may


class Connection:
    """Frames over a connected socket, served by the event loop of ``selector``: its data is ``handle``, to call with the events.

    No call waits longer than ``PAYLOAD_WAIT``. ``take`` is called with each frame that has come. An error, also one that ``take``
    raises, closes the connection, and ``ended`` is called with it. ``allocate`` returns the memory for a payload of so many
    bytes; without it frames must have none.
    """

    def __init__(
        self,
        sock: socket.socket,
        selector: selectors.BaseSelector,
        take: Callable[[Frame], object],
        ended: Callable[[Exception], object],
        allocate: Callable[[int], Tensor] | None = None,
    ) -> None:
        self._socket, self._selector, self._take, self._ended, self._allocate = sock, selector, take, ended, allocate
        self._max_text, self._max_payload = (MAX_TEXT, 0) if allocate is None else (MAX_DESCRIPTION, MAX_BATCH)
        sock.settimeout(None)  # each call has its own flags or timeout
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a small batch waits for no acknowledgement
        _avoid_bbr(sock)
        for option, seconds in ((socket.SO_RCVTIMEO, PAYLOAD_WAIT), (socket.SO_SNDTIMEO, SEND_WAIT)):
            sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", 0, int(seconds * 1e6)))
        self._read, self._read_bytes = bytearray(), READ
        self._unsent: deque[tuple[memoryview, object]] = deque()
        self._events = selectors.EVENT_READ
        self._last = False  # whether it ends once all is sent
        self.closed, self.received_at = False, 0.0
        self._receiving = self._receive()
        next(self._receiving)
        selector.register(sock, self._events, self.handle)

    def handle(self, events: int) -> None:
        """Receive what has come, and send what there is room for."""
        try:
            if events & selectors.EVENT_READ:
                next(self._receiving, None)
        except Exception as error:
            self._end(error)
        self.flush()

    def send(
        self,
        kind: Kind,
        about: Any = None,
        *,
        request: int = 0,
        busy: float = 0.0,
        payload: memoryview | bytes = b"",
        owner: object = None,
        last: bool = False,
    ) -> None:
        """Note a frame for ``flush``; ``about`` is its text, or becomes JSON.

        ``owner`` is referenced until it is sent. The connection is closed after the ``last`` one.
        """
        if self._last:
            return
        text = about.encode() if isinstance(about, str) else b"" if about is None else json.dumps(about).encode()
        header = HEADER.pack(kind, request, len(text), len(payload), busy)
        self._unsent.append((memoryview(header + text), None))
        if len(payload):
            self._unsent.append((memoryview(payload), owner))
        self._last = last

    def flush(self) -> None:
        """Send what the kernel accepts now, of a payload also what it accepts within ``SEND_WAIT``."""
        if self.closed:
            return
        try:
            self._send()
        except OSError as error:
            self._end(error)
            return
        if self._last and not self._unsent:
            self._end(ConnectionResetError("the connection was ended here"))
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
        if events != self._events:
            self._events = events
            self._selector.modify(self._socket, events, self.handle)

    def close(self) -> None:
        if not self.closed:
            self.closed, self._receiving = True, iter(())  # a batch of which a part has come is dropped now
            self._unsent.clear()
            self._selector.unregister(self._socket)
            self._socket.close()

    def _end(self, error: Exception) -> None:
        if not self.closed:
            self.close()
            self._ended(error)

    def _send(self) -> None:
        left = MAX_SENT
        while self._unsent and left:
            buffers: list[memoryview] = []
            size = 0
            for buffer, _ in islice(self._unsent, MAX_VECTORS):
                buffers.append(buffer[: left - size])
                size += len(buffers[-1])
            # The kernel itself waits for room: returning to the event loop for each megabyte costs more than sending it.
            wait = 0 if max(map(len, buffers)) > READ else socket.MSG_DONTWAIT
            try:
                sent = self._socket.sendmsg(buffers, [], wait | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            left = left - size if sent == size else 0  # the kernel has no more room
            while sent:
                first, owner = self._unsent.popleft()
                if sent < len(first):
                    self._unsent.appendleft((first[sent:], owner))
                    break
                sent -= len(first)

    def _receive(self) -> Iterator[None]:
        """Take frames, suspended where the next bytes have not come. Raises ``OSError`` at the end, and ``ProtocolError``."""
        while not self.closed:
            yield from self._read_up_to(HEADER.size)
            kind, request, text_bytes, payload_bytes, busy = HEADER.unpack_from(self._read)
            if kind not in KINDS or text_bytes > self._max_text or payload_bytes > self._max_payload:
                raise ProtocolError(
                    f"a frame must be of a known kind, with a text of at most {self._max_text} and a payload of at most "
                    f"{self._max_payload} bytes, got kind {kind} with {text_bytes} and {payload_bytes}"
                )
            end = HEADER.size + text_bytes
            yield from self._read_up_to(end)
            text = bytes(self._read[HEADER.size : end])
            del self._read[:end]
            payload = (yield from self._receive_payload(payload_bytes)) if payload_bytes else None
            self._read_bytes = READ_HEADER if payload_bytes > READ else READ
            if not self._last:
                self._take(Frame(kind, request, text, payload, busy))
            del payload  # whose memory is used again when its user is done with it

    def _read_up_to(self, size: int) -> Iterator[None]:
        while len(self._read) < size:
            yield
            try:
                came = self._socket.recv(self._read_bytes, socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
            self._note(len(came))
            self._read += came

    def _receive_payload(self, size: int) -> Generator[None, None, Tensor]:
        assert self._allocate is not None
        payload = self._allocate(size)
        left = memoryview(payload.numpy())
        here = min(len(self._read), size)
        left[:here] = self._read[:here]
        del self._read[:here]
        left = left[here:]
        while left:
            try:
                came = self._receive_into(left)
            except BlockingIOError:
                yield
                continue
            self._note(came)
            left = left[came:]
            if left:
                yield
        return payload

    def _receive_into(self, left: memoryview) -> int:
        """How much has come within ``PAYLOAD_WAIT``. The kernel fills the memory, without the interpreter's lock."""
        if len(left) < 2 * WAKE_BYTES:
            return self._socket.recv_into(left, len(left), socket.MSG_WAITALL)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, WAKE_BYTES)
        try:
            return self._socket.recv_into(left, len(left) - WAKE_BYTES, socket.MSG_WAITALL)
        finally:  # the event loop would wait for as many
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)

    def _note(self, came: int) -> None:
        if not came:
            raise ConnectionResetError("the connection has ended")
        self.received_at = time.monotonic()
