"""Four ways to move a data host's batches to a process that trains: one command, the same batches, the same cores.

    python benchmarks/transports.py [--rounds 3] [--seconds 3] [--only NAME ...] [--json]

- ``zeromq``: PyPI's pyzmq, ROUTER and DEALER, ``copy=False`` in both directions.
- ``framed tcp``: one TCP connection with a 12-byte header before each batch, ``sendall`` and ``recv_into``.
- ``framed tcp, sendfile``: the same with ``sendfile``, which leaves out the copy into the socket's memory.
- ``flight and sockets``: Arrow Flight for the requests and headers, a TCP connection beside it for the bytes.
- ``raw sockets``: the limit. One TCP connection, ``sendall`` and ``recv_into``, no requests and no headers.

A sending process keeps batches ready in anonymous shared memory (memfd), where workers would have collated them; a receiving
process requests them by number, ``OUTSTANDING`` at a time, and has each as contiguous memory to which tensors can refer.
ZeroMQ allocates that memory itself; the others receive into memory that is used again. CPU seconds are those of both processes,
user and system. In every other round the candidates run in reverse order. What is not installed is left out by name.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import itertools
import json
import mmap
import os
import platform
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any

SIZES = {"25.7 MB": 8192 * 3144, "3.2 MB": 1024 * 3144, "3 KB": 3144}  # bytes: images [28, 28] of float32 with labels
READY = 2  # batches that lie in shared memory; larger than the caches at 25.7 MB
OUTSTANDING = 4
WARM_UP = 0.5  # seconds that are not counted
FRAME = struct.Struct("<IQ")  # which batch, and its bytes
BUFFER = 2**16  # bytes that are received at once where they hold headers

Source = tuple[int, mmap.mmap]  # a batch's memfd, and the same memory mapped


def ready(size: int) -> list[Source]:
    """Batches of ``size`` bytes in shared memory; all bytes of the n-th are n."""
    sources = []
    for number in range(READY):
        file = os.memfd_create("batch")
        os.posix_fallocate(file, 0, size)
        memory = mmap.mmap(file, size)
        memory[:] = bytes([number]) * size
        sources.append((file, memory))
    return sources


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def accept(listener: socket.socket) -> socket.socket:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def fill(connection: socket.socket, memory: memoryview) -> None:
    """Receive until ``memory`` is full."""
    while memory:
        taken = connection.recv_into(memory)
        if not taken:
            raise EOFError
        memory = memory[taken:]


class Places:
    """Memory for batches that are received, used again in turn, with huge pages where the kernel has them."""

    def __init__(self, size: int) -> None:
        memories = [mmap.mmap(-1, max(size, 2**21), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(3)]
        for memory in memories:
            memory.madvise(mmap.MADV_HUGEPAGE)
        self._turns = itertools.cycle([memoryview(memory)[:size] for memory in memories])

    def next(self) -> memoryview:
        return next(self._turns)


# -- The candidates: what the sending process does until its peer is gone, and the batches at the receiving process.


def zeromq_send(size: int, tell: Callable[[int], None]) -> None:
    import zmq

    router = zmq.Context().socket(zmq.ROUTER)
    tell(router.bind_to_random_port("tcp://127.0.0.1"))
    frames = [memoryview(memory) for _, memory in ready(size)]
    while True:
        peer, request = router.recv_multipart()
        if not request:
            return
        (number,) = struct.unpack("<I", request)
        router.send_multipart([peer, FRAME.pack(number, size)], zmq.SNDMORE)
        router.send(frames[number % READY], copy=False)


def zeromq_receive(port: int, size: int) -> Generator[memoryview, None, None]:
    import zmq

    context = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.connect(f"tcp://127.0.0.1:{port}")
    for number in range(OUTSTANDING):
        dealer.send(struct.pack("<I", number))
    try:
        for number in itertools.count(OUTSTANDING):
            dealer.recv()
            yield dealer.recv(copy=False).buffer
            dealer.send(struct.pack("<I", number))
    finally:
        dealer.send(b"")
        context.destroy(linger=1000)


def framed_send(size: int, tell: Callable[[int], None], *, sendfile: bool = False) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    tell(listener.getsockname()[1])
    connection, sources = accept(listener), ready(size)
    while requests := connection.recv(BUFFER):
        for (number,) in struct.iter_unpack("<I", requests):
            connection.send(FRAME.pack(number, size), socket.MSG_MORE)
            file, memory = sources[number % READY]
            if not sendfile:
                connection.sendall(memory)
                continue
            sent = 0
            while sent < size:
                sent += os.sendfile(connection.fileno(), file, sent, size - sent)


def framed_receive(port: int, size: int) -> Generator[memoryview, None, None]:
    connection, places = connect(port), Places(size)
    connection.sendall(b"".join(struct.pack("<I", number) for number in range(OUTSTANDING)))
    buffer, begin, end = memoryview(bytearray(BUFFER)), 0, 0
    for number in itertools.count(OUTSTANDING):
        while end - begin < FRAME.size:  # what is left of the buffer goes to its beginning
            buffer[: end - begin] = buffer[begin:end]
            begin, end = 0, end - begin
            end += connection.recv_into(buffer[end:])
        (_, length), begin = FRAME.unpack_from(buffer, begin), begin + FRAME.size
        place = places.next()
        here = min(length, end - begin)
        place[:here] = buffer[begin : begin + here]
        begin += here
        fill(connection, place[here:])
        yield place
        connection.sendall(struct.pack("<I", number))


def flight_send(size: int, tell: Callable[[int], None]) -> None:
    import pyarrow as pa
    import pyarrow.flight as flight

    listener, sources = socket.create_server(("127.0.0.1", 0)), ready(size)
    ended = threading.Event()

    class Server(flight.FlightServerBase):  # type: ignore[misc]
        def do_get(self, context: Any, ticket: Any) -> Any:
            return flight.RecordBatchStream(pa.table({"port": [listener.getsockname()[1]]}))

        def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
            writer.begin(pa.schema([]))
            connection = accept(listener)
            try:
                while True:
                    for number in json.loads(reader.read_chunk().app_metadata.to_pybytes()):
                        writer.write_metadata(json.dumps({"number": number, "bytes": size}).encode())
                        connection.sendall(sources[number % READY][1])
            except (StopIteration, pa.ArrowException, OSError):
                ended.set()

    server = Server("grpc://127.0.0.1:0")
    tell(server.port)
    ended.wait()


def flight_receive(port: int, size: int) -> Generator[memoryview, None, None]:
    import pyarrow.flight as flight

    client = flight.FlightClient(f"grpc://127.0.0.1:{port}")
    beside = client.do_get(flight.Ticket(b"port")).read_all()["port"][0].as_py()
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(uuid.uuid4().bytes))
    connection, places = connect(beside), Places(size)
    writer.write_metadata(json.dumps(list(range(OUTSTANDING))).encode())
    try:
        for number in itertools.count(OUTSTANDING):
            json.loads(reader.read_chunk().app_metadata.to_pybytes())
            place = places.next()
            fill(connection, place)
            yield place
            writer.write_metadata(json.dumps([number]).encode())
    finally:
        reader.cancel()
        connection.close()
        with contextlib.suppress(flight.FlightCancelledError):
            writer.close()


def raw_send(size: int, tell: Callable[[int], None]) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    tell(listener.getsockname()[1])
    connection = accept(listener)
    for _, memory in itertools.cycle(ready(size)):
        connection.sendall(memory)


def raw_receive(port: int, size: int) -> Generator[memoryview, None, None]:
    connection, places = connect(port), Places(size)
    while True:
        place = places.next()
        fill(connection, place)
        yield place


CANDIDATES = {
    "zeromq": (zeromq_send, zeromq_receive, "zmq"),
    "framed tcp": (framed_send, framed_receive, "socket"),
    "framed tcp, sendfile": (partial(framed_send, sendfile=True), framed_receive, "socket"),
    "flight and sockets": (flight_send, flight_receive, "pyarrow"),
    "raw sockets": (raw_send, raw_receive, "socket"),
}


# -- Measuring


def cpu() -> float:
    times = os.times()
    return times.user + times.system


def cpu_of(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def receive(name: str, size: int, seconds: float) -> dict[str, float]:
    """In a process of its own: start the sending process, and read batches until the window is over."""
    command = [sys.executable, __file__, "--send", name, str(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sender:
        assert sender.stdout is not None
        batches = CANDIDATES[name][1](int(sender.stdout.readline()), size)
        for _ in counted(batches, size, WARM_UP):
            pass
        before, began, count = cpu() + cpu_of(sender.pid), time.perf_counter(), 0
        for _ in counted(batches, size, seconds):
            count += 1
        took, used = time.perf_counter() - began, cpu() + cpu_of(sender.pid) - before
        batches.close()
        sender.kill()
    return {"batches/s": count / took, "GB/s": count * size / took / 1e9, "CPU s/GB": used / (count * size / 1e9)}


def counted(batches: Iterator[memoryview], size: int, seconds: float) -> Iterator[None]:
    """Batches of a window, whose first and last bytes are those of one ready batch."""
    until = time.perf_counter() + seconds
    for batch in batches:
        if len(batch) != size or batch[0] != batch[-1] or batch[0] >= READY:
            raise RuntimeError(f"expected {size} equal bytes, got {len(batch)} from {batch[0]} to {batch[-1]}")
        yield
        if time.perf_counter() >= until:
            return


def run(name: str, size: int, seconds: float) -> dict[str, float]:
    command = [sys.executable, __file__, "--receive", name, str(size), str(seconds)]
    return dict(json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--only", nargs="+", choices=CANDIDATES, help="these candidates")
    parser.add_argument("--json", action="store_true", help="print everything measured as one object, not as tables")
    options = parser.parse_args()
    wanted = [name for name in CANDIDATES if not options.only or name in options.only]
    names = [name for name in wanted if importlib.util.find_spec(CANDIDATES[name][2])]
    found: dict[str, dict[str, list[dict[str, float]]]] = {size: {name: [] for name in names} for size in SIZES}
    for number in range(options.rounds):
        for title, size in SIZES.items():
            for name in names if number % 2 == 0 else names[::-1]:
                found[title][name].append(run(name, size, options.seconds))
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    machine = f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f} at the end"
    left_out = [name for name in wanted if name not in names]
    if options.json:
        print(json.dumps({"machine": machine, "rounds": found, "left_out": left_out}, indent=2))
        return
    print(f"medians of {options.rounds} rounds of {options.seconds:g} s (least-most); {machine}")
    for title, results in found.items():
        print(f"\n| {title} | GB/s | batches/s | CPU s/GB | of the framed connection |\n|---|---|---|---|---|")
        for name, rounds in results.items():
            cells = [shown(rounds, "GB/s", ".2f"), shown(rounds, "batches/s", ",.0f"), shown(rounds, "CPU s/GB", ".2f")]
            print(f"| {name} | {' | '.join(cells)} | {ratio(rounds, results.get('framed tcp'))} |")
    for name in left_out:
        print(f"left out: {name} (no module {CANDIDATES[name][2]})")


def shown(rounds: list[dict[str, float]], figure: str, form: str) -> str:
    values = [one[figure] for one in rounds]
    median, least, most = (format(value, form) for value in (statistics.median(values), min(values), max(values)))
    return f"{median} ({least}-{most})"


def ratio(rounds: list[dict[str, float]], framed: list[dict[str, float]] | None) -> str:
    """The median of the rounds' own ratios of throughput."""
    if framed is None:
        return "not measured"
    return f"{statistics.median(a['GB/s'] / b['GB/s'] for a, b in zip(rounds, framed, strict=True)):.2f}"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--send"]:
        with contextlib.suppress(ConnectionError):  # the receiving process has ended
            CANDIDATES[sys.argv[2]][0](int(sys.argv[3]), lambda port: print(port, flush=True))
    elif sys.argv[1:2] == ["--receive"]:
        print(json.dumps(receive(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))))
    else:
        main()
