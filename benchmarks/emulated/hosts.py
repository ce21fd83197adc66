"""The hosts of an emulated job, on loopback.

Run as a script it is one data host, that serves until its input is closed.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "training_code"))
sys.path.insert(0, str(Path(__file__).parent))

from costly import Costly
from data_service import BatchReader, BatchServer

JOB = "arn:aws:sagemaker:us-east-1:111122223333:training-job/emulated"


@dataclass(frozen=True)
class Host:
    """``workers`` processes that take ``seconds`` for each batch of ``shape``."""

    workers: int
    seconds: float
    shape: tuple[int, ...]

    def server(self) -> BatchServer:
        return BatchServer(
            Costly(self.shape, self.seconds), batch_size=1, job=JOB, workers=self.workers, host="127.0.0.1", port=0
        )


@contextlib.contextmanager
def started(host: Host) -> Iterator[int]:
    """A data host as a process of its own; yields its port."""
    process = subprocess.Popen(
        [sys.executable, __file__, json.dumps(asdict(host))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait()


def step_seconds(data: Sequence[Host], local: Host | None, step: float, warmup: int, counted: int) -> float:
    """Mean seconds of a training step, whose own part is ``step``; ``local`` is what the training host prepares itself."""
    with contextlib.ExitStack() as stack:
        ports = [stack.enter_context(started(host)) for host in data]
        if local is not None:
            ports.append(stack.enter_context(local.server()).port)
        servers = [f"127.0.0.1:{port}" for port in ports]
        reader = stack.enter_context(BatchReader(servers, job=JOB))
        began = 0.0
        for number, _ in enumerate(reader.epoch(0)):
            if number == warmup:
                began = time.perf_counter()
            if number == warmup + counted:
                break
            time.sleep(step)
        return (time.perf_counter() - began) / counted


def main() -> None:
    arguments = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    with Host(arguments["workers"], arguments["seconds"], tuple(arguments["shape"])).server() as server:
        print(server.port, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
