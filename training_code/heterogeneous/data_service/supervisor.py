"""A data host: keeps a serving process alive until every training rank is done, has failed, or has fallen silent."""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from torch.utils.data import Dataset, IterableDataset

from .epochs import Plan
from .errors import DataServiceError, TrainerFailed
from .processes import Payload, Processes, ending
from .server import Settings, serve

DEATHS, WITHIN = 5, 60.0  # deaths of the serving process in so many seconds, without a batch, that end the data host
PORT_PATIENCE = 20.0  # seconds in which a serving process gets the port of the one before it
STOPPING = 10.0  # seconds until a serving process that does not end is killed
TELLING = 10.0  # seconds in which an error of the dataset reaches the ranks, which then say that they have failed


def plan_of(
    dataset: Dataset[Any],
    *,
    batch_size: int,
    seed: int = 0,
    shuffle: bool = True,
    drop_last: bool = False,
    shards: int | None = None,
) -> Plan:
    """What a job reads of a dataset in each epoch; ``shards`` is of an iterable one only."""
    if isinstance(dataset, IterableDataset):
        return Plan(batch_size, None, shards, seed, False, drop_last)
    return Plan(batch_size, len(dataset), None, seed, shuffle, drop_last)  # type: ignore[arg-type]


class BatchServer:
    """Serves batches of a dataset to all training ranks of a job, from ``workers`` processes.

    Args:
        dataset: map-style or iterable; it is pickled to the workers, as is ``collate_fn``.
        batch_size: samples in a batch; the last of an epoch may hold fewer, unless ``drop_last``.
        job: the TRAINING_JOB_ARN that callers have to name.
        seed: of the permutations, and of the random numbers with which a batch is made.
        port: 0 takes a free one, which ``port`` then names.
        silence: seconds without a word of a rank, at the start or later, after which ``wait`` raises.
        shards: of an iterable dataset, the same on all data hosts and at least one for each rank; None is one for each worker.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        *,
        batch_size: int,
        job: str,
        workers: int = 2,
        seed: int = 0,
        port: int = 0,
        host: str = "0.0.0.0",
        silence: float = 300.0,
        shuffle: bool = True,
        drop_last: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        shards: int | None = None,
    ) -> None:
        plan = plan_of(
            dataset, batch_size=batch_size, seed=seed, shuffle=shuffle, drop_last=drop_last, shards=shards or workers
        )
        self._settings = Settings(Payload.of(dataset, collate_fn), plan, workers, job, host)
        self._processes = Processes(self._settings.payload.modules)
        self._silence = silence
        self._heard: dict[int, float] = {}
        self._done: set[int] = set()
        self._world: int | None = None
        self._started = time.monotonic()
        self._error: DataServiceError | None = None
        self._failed_at: float | None = None
        self._deaths: deque[float] = deque(maxlen=DEATHS)
        self._stopping = False
        self._changed = threading.Condition()
        self.port, self._up = port, False
        atexit.register(self.stop)  # before multiprocessing's own handler, which would wait for the serving process
        self._start()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()
        with self._changed:
            while not self._up and self._error is None:
                self._changed.wait()
        if self._error is not None:
            self.stop()
            raise self._error

    @property
    def pid(self) -> int:
        """Of the serving process that is there now."""
        return self._process.pid  # type: ignore[no-any-return]

    def wait(self) -> None:
        """Return when every rank has read all it wanted. Raises ``TrainerFailed``, or ``DataServiceError`` of the dataset."""
        with self._changed:
            while not self._stopping:
                if self._error is not None and (self._failed_at is None or self._told()):
                    raise self._error
                if self._world is not None and len(self._done) == self._world:
                    return
                self._changed.wait(self._check())

    def stop(self) -> None:
        """End the serving process and its workers."""
        with self._changed:
            if self._stopping:
                return
            self._stopping = True
            self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._pipe.send("stop")
        self._process.join(STOPPING)
        self._process.kill()
        self._process.join()
        self._keeper.join()
        atexit.unregister(self.stop)

    def __enter__(self) -> BatchServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        self._pipe, theirs = self._processes.pipe()
        patience = PORT_PATIENCE if self._up else 0.0
        self._process = self._processes.start(serve, self._settings, self.port, theirs, patience, daemon=False)
        theirs.close()

    def _keep(self) -> None:
        """Hear what the serving process says, and start another when it has died."""
        while True:
            _hear(self._pipe, self._take)
            self._process.join()
            with self._changed:
                if self._stopping or self._error is not None:
                    return
                self._deaths.append(time.monotonic())
                if not self._up or (len(self._deaths) == DEATHS and self._deaths[-1] - self._deaths[0] < WITHIN):
                    said = f"the serving process {ending(self._process.exitcode)}"
                    self._fail(DataServiceError(f"{said}, {len(self._deaths)} times without a batch, and is given up"))
                    return
                print(f"the serving process {ending(self._process.exitcode)}; another is started", flush=True)
                self._start()

    def _take(self, word: str, *said: Any) -> None:
        with self._changed:
            if word == "port":
                self.port, self._up = said[0], True
            elif word == "served":
                self._deaths.clear()
            elif word == "unable":
                self._fail(DataServiceError(f"the data host cannot serve: {said[0]}"))
            elif word == "failed":
                self._failed_at = self._failed_at or time.monotonic()
                self._error = self._error or DataServiceError(said[0])
            else:
                rank, self._world = said[0], said[1]
                self._heard[rank] = time.monotonic()
                if word == "done":
                    self._done.add(rank)
                    if said[2] is not None:
                        self._fail(TrainerFailed(f"training rank {rank} failed: {said[2]}"))
            self._changed.notify_all()

    def _fail(self, error: DataServiceError) -> None:
        self._error = self._error or error
        self._changed.notify_all()

    def _told(self) -> bool:
        """Whether the ranks know of an error of the dataset, or have had the time to."""
        assert self._failed_at is not None
        return bool(self._done) or time.monotonic() - self._failed_at > TELLING

    def _check(self) -> float:
        """Seconds until something is to be looked at. Sets the error where a rank has been silent for too long."""
        if self._error is not None:
            return 0.5
        last = {
            rank: self._heard.get(rank, self._started) for rank in range(self._world or 1) if rank not in self._done
        }
        silent = min(last, key=last.__getitem__)
        left = last[silent] + self._silence - time.monotonic()
        if left <= 0:
            self._error = TrainerFailed(f"nothing was heard of training rank {silent} for {self._silence:g} s")
        return max(left, 0)


def _hear(pipe: Connection, take: Callable[..., None]) -> None:
    """Take every word until the other end is gone."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            take(*pipe.recv())
