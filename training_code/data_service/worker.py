"""Worker main: collates batches of the dataset into slots of shared memory, as it is ordered to."""

from __future__ import annotations

import contextlib
import copy
import json
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

MAX_STATE = 2**23  # bytes of what is sent of a batch, with the dataset's own state


class Order(NamedTuple):
    """A batch to be made in the slot at ``path``: ``size`` samples from ``first`` on, of an epoch, or of a shard of it.

    ``state`` is the shard's dataset's own at ``first``, where it is known.
    """

    epoch: int
    shard: int | None
    first: int
    size: int
    state: Any = None
    path: str = ""


class Made(NamedTuple):
    """A batch in its slot: its bytes, its description as JSON, and the seconds that it took.

    The description of an iterable dataset's has a second line: its ``samples``, the dataset's own ``state`` after them, and
    the ``name`` of what they were read from, such as a file, if the dataset has these.
    """

    bytes: int
    description: str
    seconds: float


class End(NamedTuple):
    """The shard has no such batch; as JSON, ``samples`` of a file ``name`` may be left that are dropped."""

    description: str


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
        self._dataset, self._collate, self._sampler, initialize = pickle.loads(payload)
        self._number, self._workers = number, workers
        self._reading: tuple[str, object] | None = None  # what of the dataset, for an error that it raises
        self._mapped: dict[str, mmap.mmap] = {}  # slots, by their paths
        self._shards: dict[int, _Shard] = {}
        self._sampled: tuple[int, list[int]] = (-1, [])  # an epoch, and what the sampler has for it
        if initialize is not None and plan.shards is None:
            _prepare(self._dataset, number, workers, plan.seed_of(-1, None, number))
            initialize(number)

    def make(self, order: Order) -> Result:
        began = time.perf_counter()
        try:
            samples, about = self._samples(order), ""
            if order.shard is not None:
                about = self._shards[order.shard].about(samples)
            self._reading = None
            if not samples or (order.shard is not None and self._plan.drop_last and len(samples) < order.size):
                return End(about)
            batch = Encoder((self._collate or collated)(samples))
            if batch.bytes:
                batch.write(torch.frombuffer(self._slot(order.path, batch.bytes), dtype=torch.uint8))
            description = f"{batch.description}\n{about}" if about else batch.description
            return Made(batch.bytes, description, time.perf_counter() - began)
        except Exception as error:
            where = "" if self._reading is None else "{} {} of the dataset: ".format(*self._reading)
            what = f"{where}{type(error).__name__}: {error}"
            return Failed(f"{what}, in {describe(order)}:\n{traceback.format_exc()}")

    def _samples(self, order: Order) -> list[Any]:
        if order.shard is not None:
            self._reading = "shard", order.shard
            return self._shard(order.shard, order).read(order.first, order.size)
        indices, dataset = self._indices(order), self._dataset
        _prepare(dataset, self._number, self._workers, self._plan.seed_of(order.epoch, None, order.first))
        if hasattr(dataset, "__getitems__"):
            self._reading = "samples", indices
            return list(dataset.__getitems__(indices))
        samples = []
        for index in indices:
            self._reading = "sample", index
            samples.append(dataset[index])
        return samples

    def _indices(self, order: Order) -> list[int]:
        places = self._plan.samples(order.epoch, order.first, order.size)
        if self._sampler is None:
            return places
        if self._sampled[0] != order.epoch:  # it draws from its own generator, or from the global one
            self._sampled = order.epoch, _drawn(self._sampler, self._plan.seed_of(order.epoch, None, -1), order.epoch)
        return [self._sampled[1][place] for place in places]

    def _shard(self, number: int, order: Order) -> _Shard:
        """It at the order's first sample; what precedes is read again where the dataset has no state of its own."""
        shard = self._shards.get(number)
        known = order.state is not None
        begun = shard is not None and shard.epoch == order.epoch and (shard.at <= order.first or shard.has_part(order))
        if shard is None or not begun or (known and shard.at < order.first):
            # Each pass has the dataset as it was pickled, whatever another pass has done to it.
            dataset, _, _, initialize = pickle.loads(self._payload)
            shard = self._shards[number] = _Shard(self._plan, number, order, dataset, initialize)
            for other in [other for other, one in self._shards.items() if one.epoch < order.epoch - 1]:
                del self._shards[other]
        while shard.at < order.first and shard.take(min(order.size, order.first - shard.at)):
            pass
        return shard

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
                        what = f"a batch of {size} bytes does not fit into shared memory"
                        raise MemoryError(f"{what}: {error}") from error
                found = self._mapped[path] = mmap.mmap(file.fileno(), max(length, size))
        return found


class _Shard:
    """One pass over a share of an iterable dataset, as a DataLoader's worker of that number makes it."""

    def __init__(self, plan: Plan, number: int, order: Order, dataset: Any, initialize: Any) -> None:
        self._plan, self._number, self._dataset = plan, number, dataset
        self.epoch, self.at = order.epoch, 0
        self._stateful = hasattr(dataset, "state_dict") and hasattr(dataset, "load_state_dict")
        self._prepare()
        if initialize is not None:
            initialize(number)
        if hasattr(dataset, "set_epoch"):
            dataset.set_epoch(order.epoch)
        if order.state is not None:
            dataset.load_state_dict(order.state)
            self.at = order.first
        self._kept: list[Any] = []
        self._iterator: Iterator[Any] | None = None

    def has_part(self, order: Order) -> bool:
        """Whether it is a part of the last batch; all of that is made anew, with its own random numbers."""
        kept = len(self._kept)
        return self.at - kept <= order.first and order.first + order.size <= self.at and order.size < kept

    def read(self, first: int, size: int) -> list[Any]:
        """The next samples, or some of the last ones again, which are kept until then; fewer at the end."""
        if first < self.at:
            return self._kept[first - self.at :][:size]
        return self.take(size)

    def take(self, size: int) -> list[Any]:
        self._prepare()
        if self._iterator is None:
            self._iterator = iter(self._dataset)
        samples = list(islice(self._iterator, size))
        self._kept = samples or self._kept
        self.at += len(samples)
        return samples

    def about(self, samples: list[Any]) -> str:
        """Of the last samples that were taken, as ``Made`` has it."""
        name, about = getattr(self._dataset, "shard_name", None), {"samples": len(samples)}  # type: Any, dict[str, Any]
        if name is not None:
            about["name"] = str(name() if callable(name) else name)
        if not self._stateful:
            return json.dumps(about)
        about["state"] = self._dataset.state_dict()
        try:
            text = json.dumps(about)
        except (TypeError, ValueError) as error:
            what = f"state_dict of an iterable dataset must be JSON, like {{'line': 7}}, got {about['state']!r}"
            raise TypeError(what) from error
        if len(text) > MAX_STATE:
            most = f"at most {MAX_STATE} bytes as JSON"
            raise ValueError(f"state_dict of an iterable dataset must have {most}, got {len(text)}")
        return text

    def _prepare(self) -> None:
        seed = self._plan.seed_of(self.epoch, self._number, self.at)
        _prepare(self._dataset, self._number, self._plan.shards or 1, seed)


def describe(order: Order) -> str:
    """A batch, for an error's text."""
    return f"the batch from position {order.first} of epoch {order.epoch}"


def _drawn(sampler: Any, seed: int, epoch: int) -> list[int]:
    """The samples of an epoch: the same in each worker, however many epochs it has seen."""
    sampler = copy.copy(sampler)
    _seed(seed)
    if isinstance(getattr(sampler, "generator", None), torch.Generator):
        sampler.generator.manual_seed(seed)
    if hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch)
    return list(sampler)


def _prepare(dataset: Any, number: int, workers: int, seed: int) -> None:
    """Have torch.utils.data.get_worker_info() return what it returns in a DataLoader's worker, and seed a batch's random numbers.

    These are its own, whichever worker makes it.
    """
    torch_worker._worker_info = torch_worker.WorkerInfo(id=number, num_workers=workers, seed=seed, dataset=dataset)
    _seed(seed)


def _seed(seed: int) -> None:
    torch.default_generator.manual_seed(seed)  # torch.manual_seed takes 100 us, to seed devices that a worker has not
    np.random.seed(seed)
    random.seed(seed)


def _exit_with_parent() -> None:
    """A killed process ends no children: its workers do so themselves."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
