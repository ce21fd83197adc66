"""The processes of serving.py, started and ended by a test."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import preloaded
from serving import BATCH_SIZE, BatchReader, BatchServer, Numbers

SECONDS = 100  # until what does not happen fails a test
PROGRAM = Path(__file__).parent / "serving.py"
Start = Callable[..., "Process"]
Serve = Callable[..., list[BatchServer]]


class Process:
    """A data host or a trainer that a test ends, in a process of its own, or within what a `prefix` starts."""

    def __init__(self, role: str, folder: Path, *, prefix: tuple[str, ...] = (), **options: Any) -> None:
        command = [str(PROGRAM), role, json.dumps(options)]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._program: subprocess.Popen[str] | preloaded.Program
        if prefix:
            whole = [*prefix, sys.executable, *command]
            self._program = subprocess.Popen(whole, stdout=subprocess.PIPE, text=True, env=env)
        else:
            errors = folder / "errors.txt"
            self._program = preloaded.start(command, cwd=Path.cwd(), env=env, errors=errors, forkserver=True)
        self.send_signal, self.kill, self.wait = self._program.send_signal, self._program.kill, self._program.wait

    def line(self) -> str:
        assert self._program.stdout is not None
        return self._program.stdout.readline().strip()

    def rest(self) -> list[str]:
        """What it prints until its end."""
        assert self._program.stdout is not None
        lines = [line.strip() for line in self._program.stdout]
        self.wait()
        return lines

    def below(self) -> list[psutil.Process]:
        return psutil.Process(self._program.pid).children(recursive=True)

    def close(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in self.below():
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        self.kill()
        self._program.communicate()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    processes: list[Process] = []

    def begin(role: str, **options: Any) -> Process:
        processes.append(Process(role, tmp_path, **options))
        return processes[-1]

    yield begin
    for process in processes:
        process.close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Data hosts whose serving and worker processes are real ones, while this one is what watches over them."""
    with contextlib.ExitStack() as stack:

        def begin(count: int = 1, *, dataset: Any = None, **options: Any) -> list[BatchServer]:
            options = {"batch_size": BATCH_SIZE, "job": "job", "host": "127.0.0.1", "workers": 1} | options
            return [stack.enter_context(BatchServer(dataset or Numbers(), **options)) for _ in range(count)]

        yield begin


def addresses(servers: list[BatchServer]) -> list[str]:
    return [f"localhost:{server.port}" for server in servers]


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def numbers(batches: Iterable[Any]) -> list[int]:
    """The samples of batches, one after the other."""
    return [number for batch in batches for number in batch["number"].tolist()]


def forever(reader: BatchReader) -> None:
    """Read epoch after epoch, until it raises."""
    while True:
        list(reader)


def eventually(condition: Callable[[], object]) -> None:
    """Return as soon as a condition holds; a test in which it never does fails after ``SECONDS``."""
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until, f"not within {SECONDS} s"
        time.sleep(0.01)


@contextlib.contextmanager
def bounded(reader: BatchReader) -> Iterator[None]:
    """Close a reader from which nothing comes any more, so that the test fails; it would wait for ever."""
    watchdog = threading.Timer(SECONDS, reader.close)
    watchdog.start()
    try:
        yield
    finally:
        watchdog.cancel()


def gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=60)
    return all(process.status() == psutil.STATUS_ZOMBIE for process in alive)


def cut(servers: list[BatchServer], dice: random.Random) -> None:
    """Break one of this process's connections to a data host, as soon as there is one again."""
    while not (ours := connections_to(servers)):
        pass
    with (
        contextlib.suppress(OSError),  # gone just now
        socket.socket(fileno=os.dup(dice.choice(ours).fd)) as connection,
    ):
        connection.shutdown(socket.SHUT_RDWR)


def connections_to(servers: list[BatchServer]) -> list[Any]:
    """This process's own ends of its connections to data hosts."""
    ports = {server.port for server in servers}
    found = psutil.Process().net_connections("tcp")
    return [one for one in found if one.status == psutil.CONN_ESTABLISHED and one.raddr and one.raddr.port in ports]


def suspended(process: psutil.Process) -> contextlib.AbstractContextManager[None]:
    """A process that is paused meanwhile."""

    @contextlib.contextmanager
    def pause() -> Iterator[None]:
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    return pause()
