"""The harness of benchmarks/data_service.py: the run of a contestant, its batches, and the measurement.

A contestant is a script with its Run as a JSON argument, which reads batches as a training process would, and prints one line of
JSON. It runs with the Python that has its library, so this module requires only numpy.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

SIDE = 28
POOL = 2  # batches that are prepared at the start; larger than the caches at 25.7 MB
MOST_BUFFERED = 40  # batches that a contestant may have buffered when the measurement begins: AWS's example queues 32
ENDLESS = 100_000  # batches of an epoch, more than any run reads


@dataclass(frozen=True)
class Run:
    """The parameters of a contestant's run: ``ready`` batches, or the ``digits`` with their preprocessing, and the duration."""

    workload: str
    batch_size: int
    workers: int
    streams: int
    seconds: float
    warmup: float

    def __post_init__(self) -> None:
        if self.workload not in ("ready", "digits"):
            raise ValueError(f"workload must be ready or digits, got {self.workload!r}")

    @staticmethod
    def here() -> Run:
        return Run(**json.loads(sys.argv[1]))

    def as_json(self) -> str:
        return json.dumps(asdict(self))


def pool(batch_size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The ready batches: images, float32 [batch_size, 28, 28], and labels, int64, which are all the batch's number."""
    random = [np.random.default_rng(number) for number in range(POOL)]
    images = [generator.random((batch_size, SIDE, SIDE), dtype=np.float32) for generator in random]
    return [(image, np.full(batch_size, number, dtype=np.int64)) for number, image in enumerate(images)]


def measure(run: Run, batches: Iterable[tuple[Any, Any]]) -> None:
    """Read batches (images, labels) for the run's duration; prints seconds, batches, and CPU seconds of all processes."""
    expected = [(images[0, 0, 0], images[-1, -1, -1]) for images, _ in pool(run.batch_size)]
    first = began = cpu = counted = 0.0
    for number, (images, labels) in enumerate(batches):
        check(run, images, labels, expected)
        now = time.perf_counter()
        first = first or now
        if not began:
            if number >= MOST_BUFFERED and now - first >= run.warmup:
                cpu, began = cpu_seconds(), time.perf_counter()
            continue
        counted += 1
        if now - began >= run.seconds:
            break
    else:
        raise RuntimeError(f"the contestant's batches ended after {number + 1}")
    print(json.dumps({"seconds": now - began, "batches": counted, "cpu_seconds": cpu_seconds() - cpu}), flush=True)


def check(run: Run, images: Any, labels: Any, expected: list[tuple[float, float]]) -> None:
    """Check shape, type and identity of a batch, by its corners only, which costs every contestant the same."""
    images, labels = np.asarray(images).reshape(-1, SIDE, SIDE), np.asarray(labels).reshape(-1)
    if images.shape[0] != run.batch_size or labels.shape[0] != run.batch_size or images.dtype.itemsize != 4:
        raise RuntimeError(f"expected {run.batch_size} samples of float32, got {images.shape} of {images.dtype}")
    if run.workload == "ready" and (images[0, 0, 0], images[-1, -1, -1]) != expected[int(labels[-1])]:
        raise RuntimeError(f"batch {int(labels[-1])} came with another one's images")


def cpu_seconds() -> float:
    """User and system time of this process and its descendants, including ended ones, from /proc."""
    children: dict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:  # it ended just now
            continue
        children[int(fields[1])].append(int(file.parent.name))
        ticks[int(file.parent.name)] = sum(map(int, fields[11:15]))
    waiting, total = [os.getpid()], 0
    while waiting:
        process = waiting.pop()
        total += ticks.get(process, 0)
        waiting.extend(children[process])
    return total / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def data_host(number: int = 0) -> Iterator[int]:
    """Run this script with ``serve NUMBER``, as the data host would; yields the port that it prints."""
    command = [sys.executable, sys.argv[0], sys.argv[1], "serve", str(number)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()  # it ends by itself where it can
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def serving() -> bool:
    return len(sys.argv) > 2 and sys.argv[2] == "serve"


def serve_until_closed(port: int) -> None:
    """Print the port for the reading process, and wait until it closes standard input."""
    print(port, flush=True)
    sys.stdin.read()
