"""Raw TCP as the upper limit: a thread per stream on either side, memory allocated once, and only the batches' bytes.

It sends the dataset's own memory, which no service can: a batch is collated from its samples first. ``collating_sockets.py``
copies each batch before it is sent, as one torch.stack does, and is otherwise the same.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import socket
import threading
from collections.abc import Iterator

import numpy as np
from harness import SIDE, Run, data_host, measure, pool, serve_until_closed, serving

PLACES = 3  # batches a stream's receiver has memory for: one is being read, one waits, one arrives


def tuned(connection: socket.socket) -> socket.socket:
    """With the congestion control that ours uses where the kernel's default is BBR, so that pacing is not what is compared."""
    if connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).startswith(b"bbr"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    return connection


def send(connection: socket.socket, batches: list[tuple[np.ndarray, np.ndarray]], collate: bool) -> None:
    collated = tuple(np.empty_like(array) for array in batches[0])
    with connection, contextlib.suppress(OSError):  # the reader has enough
        for batch in itertools.cycle(batches):
            if collate:
                for place, array in zip(collated, batch, strict=True):
                    np.copyto(place, array)
            for array in collated if collate else batch:
                connection.sendall(memoryview(array).cast("B"))


def serve(run: Run, collate: bool) -> None:
    batches = pool(run.batch_size)
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        for _ in range(run.streams):
            connection, _ = listener.accept()
            threading.Thread(target=send, args=(tuned(connection), batches, collate), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    serve_until_closed(listener.getsockname()[1])


def receive(port: int, batch_size: int, arrived: queue.Queue[tuple[np.ndarray, np.ndarray]]) -> None:
    """Fill places in turn. The queue holds one batch for each stream, so a place is free again when its turn comes."""
    places = [(np.empty((batch_size, SIDE, SIDE), np.float32), np.empty(batch_size, np.int64)) for _ in range(PLACES)]
    with tuned(socket.create_connection(("127.0.0.1", port))) as connection:
        for place in itertools.cycle(places):
            for array in place:
                left = memoryview(array).cast("B")
                while left:
                    taken = connection.recv_into(left)
                    if not taken:
                        return
                    left = left[taken:]
            arrived.put(place)


def read(run: Run, port: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    queues: list[queue.Queue[tuple[np.ndarray, np.ndarray]]] = [queue.Queue(1) for _ in range(run.streams)]
    for arrived in queues:
        threading.Thread(target=receive, args=(port, run.batch_size, arrived), daemon=True).start()
    for arrived in itertools.cycle(queues):
        yield arrived.get()


def main(collate: bool = False) -> None:
    if serving():
        serve(Run.here(), collate)
    else:
        with data_host() as port:
            measure(Run.here(), read(Run.here(), port))


if __name__ == "__main__":
    main()
