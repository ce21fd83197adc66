"""Data hosts and trainers as processes of their own, for the tests of the data service.

python serving.py serve '{"dataset": "numbers", ...}'     prints its port, then how it ended
python serving.py read '{"servers": ["localhost:1"], ...}'     prints each batch's [epoch, samples, random]
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, get_worker_info

TRAINING_CODE = Path(__file__).parents[2] / "training_code"
sys.path.insert(0, str(TRAINING_CODE))

from data_service import BatchReader, BatchServer, DataHostLost, DataServiceError, TrainerFailed  # noqa: E402

__all__ = ["BatchReader", "BatchServer", "DataHostLost", "DataServiceError", "TrainerFailed"]
LENGTH = 200
BATCH_SIZE = 8


class Numbers(Dataset[dict[str, Tensor]]):
    """Samples that tell which they are, and which process made them.

    ``broken`` names one that raises, ``deadly`` one that ends its worker; ``seconds`` is what each costs, ``log`` a file to which
    they are written, and ``side`` the size of their images.
    """

    def __init__(
        self,
        length: int = LENGTH,
        broken: int | None = None,
        deadly: int | None = None,
        side: int = 4,
        seconds: float = 0.0,
        log: str | None = None,
    ) -> None:
        self._length, self._broken, self._deadly = length, broken, deadly
        self._side, self._seconds, self._log = side, seconds, log

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> dict[str, Any]:
        time.sleep(self._seconds)
        if self._log is not None:
            with open(self._log, "a") as file:
                file.write(f"{index}\n")
        if index == self._broken and _is_worker():
            raise KeyError("no such digit")
        if index == self._deadly and _is_worker():
            os._exit(3)
        return {
            "number": torch.tensor(index),
            "image": torch.full((self._side, self._side), float(index)),
            "random": torch.rand(()),
            "process": os.getpid(),
        }


class Lines(IterableDataset[int]):
    """The numbers below ``length``, of which each worker makes its share, as PyTorch's documentation has it."""

    def __init__(self, length: int = LENGTH, seconds: float = 0.0) -> None:
        self._length, self._seconds = length, seconds

    def __iter__(self) -> Iterator[dict[str, Any]]:
        about = get_worker_info()
        assert about is not None
        for number in range(about.id, self._length, about.num_workers):
            time.sleep(self._seconds)
            yield {"number": number, "image": torch.full((4, 4), float(number)), "random": torch.rand(())}


class Files(IterableDataset[dict[str, Any]]):
    """Files of so many numbers each, of which a shard reads every ``shards``-th.

    ``log``: a file to which it writes each number that it yields.
    """

    def __init__(self, lengths: Sequence[int], log: str | None = None) -> None:
        self.lengths, self.log, self.shard_name = lengths, log, ""

    def starts(self) -> list[tuple[int, int]]:
        """The number of each file of this shard, and the first of its numbers."""
        about = get_worker_info()
        assert about is not None
        return [
            (file, sum(self.lengths[:file]))
            for file in range(len(self.lengths))
            if file % about.num_workers == about.id
        ]

    def item(self, number: int) -> dict[str, Any]:
        if self.log is not None:
            with open(self.log, "a") as file:
                file.write(f"{number}\n")
        return {"number": number, "image": torch.full((4, 4), float(number)), "random": torch.rand(())}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for file, start in self.starts():
            self.shard_name = f"file {file}"
            for number in range(start, start + self.lengths[file]):
                yield self.item(number)


class StatefulFiles(Files):
    """Files that continue from a state of their own: the file, and how far it is read."""

    at, line, unreadable = 0, 0, None

    def state_dict(self) -> dict[str, Any]:
        return {"file": self.at, "line": self.line, **({"unreadable": object()} if self.unreadable else {})}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at, self.line = state["file"], state["line"]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for file, start in self.starts()[self.at :]:
            while self.line < self.lengths[file]:
                self.line += 1
                yield self.item(start + self.line - 1)
            self.at, self.line = self.at + 1, 0


class Huge(Dataset[Tensor]):
    """Samples of a GiB each, which take no memory until they are in a batch."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor([index + 1.0]).expand(2**28)


DATASETS = {"numbers": Numbers, "lines": Lines, "huge": Huge}


def _is_worker() -> bool:
    return multiprocessing.parent_process() is not None


def serve(dataset: str = "numbers", about: dict[str, Any] | None = None, **options: Any) -> None:
    options = {"batch_size": BATCH_SIZE, "job": "job", "host": "127.0.0.1"} | options
    try:
        with BatchServer(DATASETS[dataset](**about or {}), **options) as server:
            print(server.port, flush=True)
            server.wait()
            print("done", flush=True)
    except DataServiceError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        sys.exit(1)


def read(servers: list[str], epochs: int = 1, stop_after: int | None = None, **options: Any) -> None:
    """Read whole epochs; with ``stop_after`` wait for a signal after so many batches."""
    with BatchReader(servers, job="job", **{"connect_timeout": 60} | options) as reader:
        for epoch in range(epochs):
            for number, batch in enumerate(reader.epoch(epoch)):
                assert (batch["image"] == batch["number"][:, None, None]).all()
                print(json.dumps([epoch, batch["number"].tolist(), batch["random"].tolist()]), flush=True)
                if number == stop_after:
                    signal.pause()


if __name__ == "__main__":
    {"serve": serve, "read": read}[sys.argv[1]](**json.loads(sys.argv[2]))
