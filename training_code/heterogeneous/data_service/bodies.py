"""The bytes of batches: on a TCP connection beside each Flight stream, which says what they are and in which order they come.

In messages of Flight's own, gRPC would copy them into its buffers and once more out of them. Here the kernel takes them from
where a worker has put them, and lays them where the batch's tensors will be. Arrow's dissociated IPC protocol divides a stream
in the same way.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading

from torch import Tensor

TOKEN = 32  # bytes that a connection begins with: which stream's it is
PIECE = 2**22  # bytes that are received at once
LOOK_AGAIN = 100  # milliseconds after which what has come is taken, whether or not it is a whole piece
SOON = 10.0  # seconds in which the two sides of a connection find each other


class Bodies:
    """A port of a serving process, for the connections of its streams."""

    def __init__(self, host: str) -> None:
        self._listener = socket.create_server((host, 0))
        self.port = int(self._listener.getsockname()[1])
        self._come: dict[bytes, socket.socket] = {}
        self._changed = threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    def connection(self, token: bytes) -> socket.socket:
        """The one that began with this token. Raises ``TimeoutError`` where there is none soon."""
        with self._changed:
            if not self._changed.wait_for(lambda: token in self._come, SOON):
                raise TimeoutError(f"no connection came to port {self.port} for a stream's batches in {SOON:g} s")
            self._changed.notify_all()
            return self._come.pop(token)

    def _accept(self) -> None:
        while True:
            with contextlib.suppress(ConnectionAbortedError):
                connection, _ = self._listener.accept()
                threading.Thread(target=self._keep, args=(connection,), daemon=True).start()

    def _keep(self, connection: socket.socket) -> None:
        """Have a connection ready for its stream, and close it where no stream takes it soon."""
        with contextlib.suppress(OSError):
            connection.settimeout(SOON)
            with connection.makefile("rb") as file:
                token = file.read(TOKEN)
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a small batch waits for no answer
            with self._changed:
                self._come[token] = connection
                self._changed.notify_all()
                if self._changed.wait_for(lambda: self._come.get(token) is not connection, SOON):
                    return
                del self._come[token]
        connection.close()


class Incoming:
    """A reader's end of the connection whose stream names the same token. Raises ``OSError`` where it cannot be had."""

    def __init__(self, host: str, port: int, token: bytes) -> None:
        try:
            self._connection = socket.create_connection((host, port), SOON)
        except OSError as error:
            raise OSError(f"port {port}, on which its batches' bytes are, cannot be reached: {error}") from error
        try:
            self._connection.settimeout(None)
            self._connection.sendall(token)
        except OSError:
            self._connection.close()
            raise
        self._readable = select.poll()
        self._readable.register(self._connection, select.POLLIN)

    def receive(self, memory: Tensor) -> None:
        """Fill ``memory``, uint8, with what comes. Raises ``OSError``."""
        left = memory.numpy().data
        while left:
            piece = min(len(left), PIECE)
            # Readable is what holds a whole piece, so that this thread is not woken up for each packet.
            self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, piece)
            # The kernel has been seen to leave it unread for ever where a piece had come in whole: hence the bound.
            self._readable.poll(LOOK_AGAIN)
            try:
                taken = self._connection.recv_into(left, piece, socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
            if not taken:
                raise ConnectionResetError("the connection on which its batches come has ended")
            left = left[taken:]

    def end(self) -> None:
        """Have ``receive`` raise, on whichever thread."""
        with contextlib.suppress(OSError):  # it has ended
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._connection.close()
