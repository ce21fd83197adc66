"""Data hosts and trainers as processes of their own, for the tests of the data service.

python serving.py serve '{"server": 0, "servers": 1, ...}'     prints its port, then how it ended
python serving.py read '{"servers": ["localhost:1"], ...}'     prints each batch's samples
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

sys.path.insert(0, str(Path(__file__).parents[2] / "training_code" / "heterogeneous"))

from service import BatchReader, BatchServer, DataServiceError

LENGTH = 200


class Numbers(Dataset[dict[str, Tensor]]):
    """Samples that tell which they are, with images of ``side`` by ``side``.

    ``broken`` names one that raises, ``deadly`` one that ends its worker.
    """

    def __init__(self, broken: int | None = None, deadly: int | None = None, side: int = 4) -> None:
        self._broken, self._deadly, self._side = broken, deadly, side

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        if index == self._broken and _is_worker():
            raise KeyError("no such digit")
        if index == self._deadly and _is_worker():
            os._exit(3)
        return {
            "number": torch.tensor(index),
            "image": torch.full((self._side, self._side), float(index)),
            "flag": torch.tensor(index % 2 == 0),
        }


def _is_worker() -> bool:
    return multiprocessing.parent_process() is not None


def serve(broken: int | None = None, deadly: int | None = None, side: int = 4, **options: object) -> None:
    server = BatchServer(Numbers(broken, deadly, side), batch_size=8, job="job", host="127.0.0.1", **options)  # type: ignore[arg-type]
    with server:
        print(server.port, flush=True)
        try:
            server.wait()
            print(f"done, at most {server.most_buffered()} batches", flush=True)
        except DataServiceError as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            sys.exit(1)


def read(servers: list[str], epochs: int = 1, stop_after: int | None = None, **who: int) -> None:
    """Read whole epochs; with ``stop_after`` wait for a line on standard input after so many batches."""
    with BatchReader(servers, job="job", patience=30, **who) as reader:
        for epoch in range(epochs):
            for number, batch in enumerate(reader.epoch(epoch)):
                assert batch["image"][:, 0, 0].tolist() == batch["number"].tolist()
                print(json.dumps([epoch, batch["number"].tolist()]), flush=True)
                if number == stop_after:
                    sys.stdin.readline()


if __name__ == "__main__":
    {"serve": serve, "read": read}[sys.argv[1]](**json.loads(sys.argv[2]))
