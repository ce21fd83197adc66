"""A data service for PyTorch: data hosts prepare batches, training ranks read them, over Arrow Flight (gRPC).

    with BatchServer(dataset, batch_size=64, server=0, servers=2, job=arn, port=6000) as server:   # on each data host
        server.wait()

    with BatchReader(["algo-1:6000", "algo-2:6000"], job=arn, rank=0, ranks=1) as reader:          # in each training rank
        for batch in reader.epoch(0): ...

Each epoch is one permutation of the dataset at a fixed seed, cut into batches: batch ``k`` goes to rank ``k % ranks``, from
server ``k // ranks % servers``. So each sample comes exactly once, in the same order each time, and ranks differ by one batch
at most.

On a data host worker processes write each batch into a slot of shared memory, from where Flight sends it without another copy.
A slot is free again when the network has taken it; a rank that reads slowly thus holds up its workers, and memory is bounded by
``buffered`` batches for each rank.

A call is answered only if it names the server's own job. That guards against crossed wires; it is no secret that keeps an
attacker out. The boundary is the network: the job's security group.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import math
import multiprocessing
import multiprocessing.connection
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight
import torch
from torch import Tensor
from torch.utils.data import Dataset

JOB_HEADER = "x-training-job"
HEARTBEAT_SECONDS = 2.0
ANSWER_SECONDS = 30.0  # in which a data host answers a heartbeat, or is lost
ALIGNMENT = 64


class DataServiceError(Exception):
    """The service cannot go on; the text says why."""


class DataHostLost(DataServiceError):
    """A data host answers no more; the text names it."""


class TrainerFailed(DataServiceError):
    """A training rank has failed, or has not been heard of for too long."""


# ---------------------------------------------------------------------------------------------------------- the server


class BatchServer:
    """Serves one data host's share of every epoch; number ``server`` of ``servers``.

    Args:
        dataset: a map-style dataset of dicts of tensors, of the same shapes for every sample, and pickled to the workers.
        batch_size: samples in a batch; the last of an epoch may hold fewer.
        job: the TRAINING_JOB_ARN that callers have to name.
        workers: processes that prepare batches.
        port: 0 takes a free one, which ``port`` then names.
        silence: seconds without a word of a rank, at the start or later, after which ``wait`` raises.
        buffered: batches prepared ahead for each rank.
    """

    def __init__(
        self,
        dataset: Dataset[Mapping[str, Tensor]],
        *,
        batch_size: int,
        server: int,
        servers: int,
        job: str,
        workers: int = 2,
        seed: int = 0,
        port: int = 0,
        host: str = "0.0.0.0",
        silence: float = 300.0,
        buffered: int = 8,
    ) -> None:
        self._length = len(dataset)  # type: ignore[arg-type]
        self._batch_size, self._server, self._servers, self._seed = batch_size, server, servers, seed
        self._silence, self._buffered = silence, buffered
        self._layout = Layout.of(dataset[0], batch_size)
        self._ranks: dict[int, _Rank] = {}
        self._world: int | None = None
        self._started = time.monotonic()
        self._error: DataServiceError | None = None
        self._stopping = False
        self._changed = threading.Condition()
        self._workers = _Workers(dataset, workers, self._layout, self._worker_failed)
        self._flight = _Flight(f"grpc://{host}:{port}", self, job)
        self.port: int = self._flight.port

    def wait(self) -> None:
        """Return when every rank has read all it wanted. Raises ``TrainerFailed``, or ``DataServiceError`` of a worker."""
        with self._changed:
            while self._error is None:
                if self._world is not None and sum(rank.done for rank in self._ranks.values()) == self._world:
                    return
                self._changed.wait(self._check_silence())
            raise self._error

    def stop(self) -> None:
        """End the workers and the server, and free the shared memory."""
        with self._changed:
            if self._stopping:
                return
            self._stopping = True
            self._changed.notify_all()
        self._workers.stop()
        # It waits for calls under way, which a rank that was killed may never end.
        closing = threading.Thread(target=self._flight.shutdown, daemon=True)
        closing.start()
        closing.join(5)
        for rank in self._ranks.values():
            rank.close()

    def most_buffered(self) -> int:
        """The most batches that were ever held for one rank."""
        return max((rank.most_used for rank in self._ranks.values()), default=0)

    def __enter__(self) -> BatchServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def batches_of(self, epoch: int, rank: int, ranks: int) -> list[list[int]]:
        """The indices of each batch that this server has for a rank."""
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + epoch)
        batches = torch.randperm(self._length, generator=generator).split(self._batch_size)
        return [batch.tolist() for batch in batches[rank::ranks][self._server :: self._servers]]

    def _heard(self, rank: int, ranks: int) -> _Rank:
        with self._changed:
            if self._world is None:
                self._world = ranks
                self._changed.notify_all()
            if ranks != self._world or not 0 <= rank < ranks:
                raise flight.FlightServerError(f"this server serves {self._world} ranks, got rank {rank} of {ranks}")
            if rank not in self._ranks:
                self._ranks[rank] = _Rank(rank, self._buffered, self._layout.slot_bytes)
            found = self._ranks[rank]
            found.last_heard = time.monotonic()
            return found

    def _check_silence(self) -> float:
        """Seconds until the next rank would have been silent for too long. Sets the error where one has been."""
        unheard = {number: self._started for number in range(self._world or 1) if number not in self._ranks}
        last = unheard | {number: rank.last_heard for number, rank in self._ranks.items() if not rank.done}
        silent = min(last, key=last.__getitem__)
        left = last[silent] + self._silence - time.monotonic()
        if left <= 0:
            self._error = TrainerFailed(f"nothing was heard of training rank {silent} for {self._silence:g} s")
        return max(left, 0)

    def _done(self, rank: _Rank, error: str | None) -> None:
        with self._changed:
            rank.done = True
            if error is not None and self._error is None:
                self._error = TrainerFailed(f"training rank {rank.number} failed: {error}")
            self._changed.notify_all()

    def _worker_failed(self, text: str) -> None:
        with self._changed:
            self._error = self._error or DataServiceError(text)
            self._changed.notify_all()

    def _stream(self, rank: _Rank, epoch: int, ranks: int) -> Iterator[pa.RecordBatch]:
        """One rank's batches of an epoch, in order, prepared ahead into as many slots as are free."""
        left = deque(self.batches_of(epoch, rank.number, ranks))
        pending: deque[tuple[_Ticket, _Slot, int]] = deque()
        while left or pending:
            # Waits for a slot only where nothing is there to be sent.
            while left and (slot := rank.take_slot(wait=not pending, stopped=self._is_over)):
                indices = left.popleft()
                pending.append((self._workers.submit(slot, indices), slot, len(indices)))
            ticket, slot, count = pending.popleft()
            self._workers.result(ticket, stopped=self._is_over)
            yield self._layout.record_batch(slot, count)
            del slot

    def _is_over(self) -> bool:
        return self._stopping or self._error is not None


class _Flight(flight.FlightServerBase):  # type: ignore[misc]
    """The gRPC side of a BatchServer: streams by ``do_get``, a rank's words by ``do_action``."""

    def __init__(self, location: str, server: BatchServer, job: str) -> None:
        super().__init__(location, middleware={"job": _OnlyOneJob(job)})
        self._batches = server

    def do_get(self, context: Any, ticket: Any) -> Any:
        asked = json.loads(ticket.ticket)
        rank = self._batches._heard(asked["rank"], asked["ranks"])
        stream = self._batches._stream(rank, asked["epoch"], asked["ranks"])
        return flight.GeneratorStream(self._batches._layout.schema, stream)

    def do_action(self, context: Any, action: Any) -> Any:
        said = json.loads(action.body.to_pybytes())
        rank = self._batches._heard(said["rank"], said["ranks"])
        if action.type == "done":
            self._batches._done(rank, said["error"])
        elif action.type != "alive":
            raise flight.FlightServerError(f"action must be alive or done, got {action.type!r}")
        return []


class _OnlyOneJob(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    def __init__(self, job: str) -> None:
        super().__init__()
        self._job = job

    def start_call(self, info: Any, headers: Mapping[str, Sequence[str]]) -> None:
        given = headers.get(JOB_HEADER, [""])[0]
        if not hmac.compare_digest(given.encode(), self._job.encode()):
            raise flight.FlightUnauthenticatedError("this data host serves another training job")


# ---------------------------------------------------------------------------------------------------- batches in memory


@dataclass(frozen=True)
class Field:
    """One tensor of a sample: its dtype as numpy names it, its shape, and where its batch lies in a slot, in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def sample_bytes(self) -> int:
        return np.dtype(self.dtype).itemsize * math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """How a batch lies in a slot of shared memory, and travels: a record batch of one row, with a column per tensor."""

    fields: tuple[Field, ...]
    slot_bytes: int

    @staticmethod
    def of(sample: Mapping[str, Tensor], batch_size: int) -> Layout:
        fields, offset = [], 0
        for name, tensor in sample.items():
            field = Field(name, str(tensor.numpy().dtype), tuple(tensor.shape), offset)
            fields.append(field)
            offset += -(-field.sample_bytes * batch_size // ALIGNMENT) * ALIGNMENT
        return Layout(tuple(fields), offset)

    @property
    def schema(self) -> pa.Schema:
        described = {"fields": [[field.name, field.dtype, field.shape] for field in self.fields]}
        return pa.schema([(field.name, pa.large_binary()) for field in self.fields], {"batch": json.dumps(described)})

    def write(self, memory: memoryview, start: int, position: int, sample: Mapping[str, Tensor]) -> None:
        """Put a sample at its position of the batch in the slot that begins at ``start``."""
        for field in self.fields:
            value = sample[field.name].numpy()
            if str(value.dtype) != field.dtype or value.shape != field.shape:
                raise ValueError(
                    f"{field.name} must be the same of every sample, {field.dtype} of shape {field.shape} like the first, "
                    f"got {value.dtype} of shape {value.shape}"
                )
            begin = start + field.offset + position * field.sample_bytes
            memory[begin : begin + field.sample_bytes] = value.tobytes()

    def record_batch(self, slot: _Slot, count: int) -> pa.RecordBatch:
        """The batch in a slot, which is free again when the last reference to it is gone, the network's included."""
        columns = []
        for field in self.fields:
            size = field.sample_bytes * count
            offsets = pa.py_buffer(np.array([0, size], dtype=np.int64))
            data = pa.foreign_buffer(slot.address + field.offset, size, base=slot)
            columns.append(pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, data]))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def tensors_of(batch: pa.RecordBatch) -> dict[str, Tensor]:
    """The tensors of a record batch, copied once, so that they outlive it and may be written to."""
    found = {}
    for name, dtype, shape in json.loads(batch.schema.metadata[b"batch"])["fields"]:
        data = batch.column(name).buffers()[2]
        found[name] = torch.from_numpy(np.frombuffer(data, dtype=dtype).reshape(-1, *shape).copy())
    return found


class _Slot:
    """A batch's place in a rank's shared memory."""

    def __init__(self, rank: _Rank, number: int) -> None:
        self._rank = rank
        self.number = number
        self.memory_name = rank.memory.name
        self.start = number * rank.slot_bytes
        self.address = rank.address + self.start

    def __del__(self) -> None:
        self._rank.give_back(self.number)


class _Rank:
    """What a server knows of a training rank: when it was last heard of, and the slots that hold its batches."""

    def __init__(self, number: int, slots: int, slot_bytes: int) -> None:
        self.number = number
        self.slot_bytes = slot_bytes
        self.last_heard = time.monotonic()
        self.done = False
        self.most_used = 0
        self.memory = SharedMemory(create=True, size=slots * slot_bytes)
        self.address = np.frombuffer(self.memory.buf, dtype=np.uint8).ctypes.data
        self._slots = slots
        self._free = list(range(slots))
        # Reentrant, since the end of one slot may come while another is being taken.
        self._changed = threading.Condition(threading.RLock())

    def take_slot(self, *, wait: bool, stopped: Any) -> _Slot | None:
        with self._changed:
            while not self._free and wait:
                if stopped():
                    raise flight.FlightServerError("the data host is ending")
                self._changed.wait(0.1)
            if not self._free:
                return None
            slot = _Slot(self, self._free.pop())
            self.most_used = max(self.most_used, self._slots - len(self._free))
            return slot

    def give_back(self, number: int) -> None:
        with self._changed:
            self._free.append(number)
            self._changed.notify_all()

    def close(self) -> None:
        self.memory.unlink()
        with contextlib.suppress(BufferError):  # a call that never ended refers to it; the memory goes with the process
            self.memory.close()


# ---------------------------------------------------------------------------------------------------------- the workers


@dataclass(frozen=True)
class _Ticket:
    number: int


class _Workers:
    """Processes that prepare batches in shared memory. Only indices and numbers travel between them and the server."""

    def __init__(self, dataset: Any, count: int, layout: Layout, failed: Any) -> None:
        # Neither a fork, which gRPC's threads do not survive, nor a whole new interpreter with torch for each of them.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch", type(dataset).__module__])
        self._tasks: Any = context.SimpleQueue()
        self._results: Any = context.SimpleQueue()
        self._processes = [
            context.Process(target=_work, args=(dataset, layout, self._tasks, self._results), daemon=True)
            for _ in range(count)
        ]
        for process in self._processes:
            process.start()
        self._failed = failed
        self._error: str | None = None
        self._next = 0
        self._ready: dict[int, str | None] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._collector = threading.Thread(target=self._collect, daemon=True)
        self._collector.start()

    def submit(self, slot: _Slot, indices: list[int]) -> _Ticket:
        with self._changed:
            ticket = _Ticket(self._next)
            self._next += 1
            self._tasks.put((ticket.number, slot.memory_name, slot.start, indices))
            return ticket

    def result(self, ticket: _Ticket, *, stopped: Any) -> None:
        """Return when the batch is ready. Raises what went wrong as an error that reaches the reader."""
        with self._changed:
            while ticket.number not in self._ready:
                if self._error or stopped():
                    raise flight.FlightServerError(self._error or "the data host is ending")
                self._changed.wait(0.1)
            problem = self._ready.pop(ticket.number)
        if problem is not None:
            raise flight.FlightServerError(problem)

    def stop(self) -> None:
        self._stopping = True
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
        self._collector.join()

    def _collect(self) -> None:
        results = self._results._reader
        while True:
            ready = multiprocessing.connection.wait([results, *(process.sentinel for process in self._processes)])
            if self._stopping:
                return
            if results in ready:
                number, problem = self._results.get()
                with self._changed:
                    self._ready[number] = problem
                    self._changed.notify_all()
                continue
            for process in self._processes:
                if process.sentinel in ready:
                    process.join()
                    with self._changed:
                        self._error = f"a worker process of the data host ended with {process.exitcode}"
                        self._changed.notify_all()
                    self._failed(self._error)
                    return


def _work(dataset: Any, layout: Layout, tasks: Any, results: Any) -> None:
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    torch.set_num_threads(1)
    memories: dict[str, SharedMemory] = {}
    while True:
        number, name, start, indices = tasks.get()
        try:
            if name not in memories:
                memories[name] = SharedMemory(name)
            for position, index in enumerate(indices):
                layout.write(memories[name].buf, start, position, dataset[index])
            results.put((number, None))
        except Exception as error:
            results.put((number, f"sample {index} of the dataset: {type(error).__name__}: {error}"))


def _end_with_the_server() -> None:
    """A server that was killed ends nobody: its workers see to it themselves."""
    server = multiprocessing.parent_process()
    assert server is not None
    server.join()
    os._exit(1)


# ----------------------------------------------------------------------------------------------------------- the reader


class BatchReader:
    """Reads one rank's batches from all data hosts, ``"host:port"`` each, in the order of their numbers.

    ``patience`` is how many seconds the hosts may take to answer for the first time: machines start minutes apart.
    """

    def __init__(
        self,
        servers: Sequence[str],
        *,
        job: str,
        rank: int = 0,
        ranks: int = 1,
        patience: float = 900.0,
        prefetch: int = 2,
    ) -> None:
        self._servers = list(servers)
        self._who = {"rank": rank, "ranks": ranks}
        self._prefetch = prefetch
        self._job = job
        self._clients = [flight.FlightClient(f"grpc://{server}") for server in servers]
        self._closed = threading.Event()
        self._lost: DataHostLost | None = None
        self._begin(time.monotonic() + patience)
        self._heart = threading.Thread(target=self._beat, daemon=True)
        self._heart.start()

    def epoch(self, number: int) -> Iterator[dict[str, Tensor]]:
        """This rank's batches of an epoch, as dicts of tensors. Raises ``DataHostLost``, ``DataServiceError``."""
        streams = [_Stream(self, index, number) for index in range(len(self._servers))]
        try:
            while True:
                # The next batch of the rank is always the next server's; the first that has none ends the epoch.
                for stream in streams:
                    batch = stream.next()
                    if batch is None:
                        return
                    yield batch
        finally:
            for stream in streams:
                stream.cancel()

    def close(self, error: BaseException | None = None) -> None:
        """Tell every data host that this rank is done, or has failed."""
        if self._closed.is_set():
            return
        self._closed.set()
        said = None if error is None else f"{type(error).__name__}: {error}"
        for client in self._clients:
            with contextlib.suppress(pa.ArrowException):  # a host that is gone needs not be told
                self._say(client, "done", {**self._who, "error": said}, ANSWER_SECONDS)
            client.close()

    def __enter__(self) -> BatchReader:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close(error)

    def _begin(self, until: float) -> None:
        for server, client in zip(self._servers, self._clients, strict=True):
            while True:
                try:
                    self._say(client, "alive", self._who, ANSWER_SECONDS)
                    break
                except (flight.FlightUnavailableError, flight.FlightTimedOutError) as error:
                    if time.monotonic() > until:
                        raise DataHostLost(f"the data host {server} did not answer: {error}") from error
                    time.sleep(0.2)
                except flight.FlightError as error:
                    raise DataServiceError(f"the data host {server} refused: {error}") from error

    def _beat(self) -> None:
        while not self._closed.wait(HEARTBEAT_SECONDS):
            for server, client in zip(self._servers, self._clients, strict=True):
                try:
                    self._say(client, "alive", self._who, ANSWER_SECONDS)
                except pa.ArrowException as error:
                    if not self._closed.is_set():
                        self._lost = DataHostLost(f"the data host {server} was lost: {error}")
                    return

    def _say(self, client: Any, what: str, words: Mapping[str, Any], seconds: float) -> None:
        list(client.do_action(flight.Action(what, json.dumps(words).encode()), self.options(seconds)))

    def options(self, seconds: float | None = None) -> Any:
        return flight.FlightCallOptions(timeout=seconds, headers=[(JOB_HEADER.encode(), self._job.encode())])


class _Stream:
    """One data host's batches of an epoch, read ahead on a thread."""

    def __init__(self, reader: BatchReader, index: int, epoch: int) -> None:
        self._reader = reader
        self._server = reader._servers[index]
        self._read_ahead: queue.Queue[dict[str, Tensor] | Exception | None] = queue.Queue(reader._prefetch)
        self._cancelled = False
        ticket = flight.Ticket(json.dumps({**reader._who, "epoch": epoch}).encode())
        self._stream = reader._clients[index].do_get(ticket, reader.options())
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def next(self) -> dict[str, Tensor] | None:
        """The next batch; None at the end."""
        while True:
            try:
                item = self._read_ahead.get(timeout=0.5)
                break
            except queue.Empty:
                if self._reader._lost is not None:
                    raise self._reader._lost from None
        if isinstance(item, Exception):
            raise item
        return item

    def cancel(self) -> None:
        self._cancelled = True
        if self._thread.is_alive():
            self._stream.cancel()

    def _read(self) -> None:
        try:
            for chunk in self._stream:
                self._give(tensors_of(chunk.data))
            self._give(None)
        except flight.FlightUnavailableError as error:
            self._give(DataHostLost(f"the data host {self._server} was lost: {error}"))
        except Exception as error:
            self._give(DataServiceError(f"the data host {self._server}: {error}"))

    def _give(self, item: dict[str, Tensor] | Exception | None) -> None:
        while not self._cancelled:
            with contextlib.suppress(queue.Full):
                self._read_ahead.put(item, timeout=0.5)
                return
