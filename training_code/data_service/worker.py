"""Worker main: collates batches of the dataset into slots of shared memory, as it is ordered to."""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import random
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from itertools import islice
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data._utils import worker as torch_worker

from .batches import Encoder, collated
from .plan import Plan


class Order(NamedTuple):
    """A batch to be made in the slot at ``path``: the ``number``-th of an epoch, or of a shard of it."""

    epoch: int
    shard: int | None
    number: int
    path: str = ""


class Made(NamedTuple):
    """A batch in its slot: its bytes, its description as JSON, and the seconds that it took."""

    bytes: int
    description: str
    seconds: float


class End(NamedTuple):
    """The shard has no such batch."""


class Failed(NamedTuple):
    """What the dataset, or the function that collates its samples, has raised, with its traceback."""

    text: str


Result = Made | End | Failed


def work(orders: Connection, payload: bytes, plan: Plan, number: int, workers: int, nice: int) -> None:
    """Carry out orders until the process that sends them has ended."""
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    torch.set_num_threads(1)
    os.nice(nice)
    try:
        worker = Worker(payload, plan, number, workers)
    except Exception:
        orders.send(Failed(f"a worker process cannot load the dataset:\n{traceback.format_exc()}"))
        return
    with contextlib.suppress(EOFError, OSError):
        orders.send(None)  # ready
        while True:
            # Connection.send would look up each object's type in torch's tables of reducers first.
            orders.send_bytes(pickle.dumps([worker.make(order) for order in pickle.loads(orders.recv_bytes())]))


class Worker:
    """Makes batches of one dataset; of an iterable one it continues where the shard's last order ended, if it can."""

    def __init__(self, payload: bytes, plan: Plan, number: int, workers: int) -> None:
        self._payload, self._plan = payload, plan
        self._dataset, self._collate = pickle.loads(payload)
        self._number, self._workers = number, workers
        self._reading: tuple[str, object] | None = None  # what of the dataset, for an error that it raises
        self._mapped: dict[str, mmap.mmap] = {}  # slots, by their paths
        self._shards: dict[int, _Shard] = {}

    def make(self, order: Order) -> Result:
        began = time.perf_counter()
        try:
            samples = self._samples(order) if order.shard is None else self._samples_of_shard(order.shard, order)
            self._reading = None
            if samples is None:
                return End()
            batch = Encoder((self._collate or collated)(samples))
            if batch.bytes:
                batch.write(torch.frombuffer(self._slot(order.path, batch.bytes), dtype=torch.uint8))
            return Made(batch.bytes, batch.description, time.perf_counter() - began)
        except Exception as error:
            where = "" if self._reading is None else "{} {} of the dataset: ".format(*self._reading)
            what = f"{where}{type(error).__name__}: {error}"
            return Failed(f"{what}, in batch {order.number} of epoch {order.epoch}:\n{traceback.format_exc()}")

    def _samples(self, order: Order) -> list[Any]:
        indices, dataset = self._plan.samples(order.epoch, order.number), self._dataset
        _seed(self._plan.seed_of(order.epoch, None, order.number))
        _set_worker_info(dataset, self._number, self._workers, self._plan.seed)
        if hasattr(dataset, "__getitems__"):
            self._reading = "samples", indices
            return list(dataset.__getitems__(indices))
        samples = []
        for index in indices:
            self._reading = "sample", index
            samples.append(dataset[index])
        return samples

    def _samples_of_shard(self, number: int, order: Order) -> list[Any] | None:
        self._reading = "shard", number
        shard = self._shards.get(number)
        if shard is None or shard.epoch != order.epoch or shard.next > order.number:
            # Each pass has the dataset as it was pickled, whatever another pass has done to it.
            shard = self._shards[number] = _Shard(self._plan, number, order.epoch, pickle.loads(self._payload)[0])
        while shard.next < order.number:
            shard.take()
        return shard.take()

    def _slot(self, path: str, size: int) -> mmap.mmap:
        """At least ``size`` bytes of a slot, made larger where it is smaller. Raises ``MemoryError`` where there are no more."""
        found = self._mapped.get(path)
        if found is None or len(found) < size:
            with open(path, "r+b") as file:
                length = os.fstat(file.fileno()).st_size
                if length < size:
                    # Pages that are only promised would end the worker by SIGBUS when they are written to.
                    try:
                        os.posix_fallocate(file.fileno(), 0, size)
                    except OSError as error:
                        raise MemoryError(
                            f"a batch of {size} bytes does not fit into shared memory: {error}"
                        ) from error
                found = self._mapped[path] = mmap.mmap(file.fileno(), max(length, size))
        return found


class _Shard:
    """One pass over a share of an iterable dataset, as a DataLoader's worker of that number makes it."""

    def __init__(self, plan: Plan, number: int, epoch: int, dataset: Any) -> None:
        self._plan, self._number, self._dataset = plan, number, dataset
        self.epoch, self.next = epoch, 0
        self._iterator: Iterator[Any] | None = None

    def take(self) -> list[Any] | None:
        """The next batch's samples; None after the last."""
        plan = self._plan
        _seed(plan.seed_of(self.epoch, self._number, self.next))
        _set_worker_info(self._dataset, self._number, plan.shards or 1, plan.seed)
        if self._iterator is None:
            if hasattr(self._dataset, "set_epoch"):
                self._dataset.set_epoch(self.epoch)
            self._iterator = iter(self._dataset)
        samples = list(islice(self._iterator, plan.batch_size))
        self.next += 1
        complete = len(samples) == plan.batch_size
        return samples if complete or (samples and not plan.drop_last) else None


def _seed(seed: int) -> None:
    """A batch's random numbers are its own, whichever worker makes it."""
    torch.default_generator.manual_seed(seed)  # torch.manual_seed takes 100 us, to seed devices that a worker has not
    np.random.seed(seed)
    random.seed(seed)


def _set_worker_info(dataset: Any, number: int, workers: int, seed: int) -> None:
    """Have torch.utils.data.get_worker_info() return what it returns in a DataLoader's worker."""
    torch_worker._worker_info = torch_worker.WorkerInfo(id=number, num_workers=workers, seed=seed, dataset=dataset)


def _exit_with_parent() -> None:
    """A killed process ends no children: its workers do so themselves."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
