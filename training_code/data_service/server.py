"""A data host: keeps a serving process running until every training rank is done, has failed, or sends no heartbeat."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import Dataset

from .plan import Plan
from .pool import Payload, Processes, describe_exit
from .protocol import DataServiceError, TrainerFailed
from .serving import Settings, serve

# So many deaths of the serving process in so many seconds, without a batch, end the data host.
MAX_DEATHS, WITHIN = 5, 60.0
BACKLOG = 1024  # connections that wait for a serving process
STOP_TIMEOUT = 10.0  # seconds until a serving process that does not end is killed
# Seconds in which an error of the dataset reaches the ranks, which then report that they have failed.
DATASET_ERROR_WAIT = 10.0


class BatchServer:
    """Serves batches of a dataset to all training ranks of a job, from ``workers`` processes.

    It listens itself, and its serving process inherits the socket. So peers that connect while there is none, since one has
    died or has yet to start, wait for the next.

    Args:
        dataset: Map-style or iterable; it is pickled to the workers, as is ``collate_fn``.
        batch_size: Samples in a batch; the last of an epoch may hold fewer, unless ``drop_last``.
        job: The TRAINING_JOB_ARN that peers have to name.
        seed: Of the permutations, and of the random numbers with which a batch is made.
        port: 0 takes a free one, which ``port`` then names.
        heartbeat_timeout: Seconds without a heartbeat of a rank, at the start or later, after which ``wait`` raises.
        shards: Of an iterable dataset, the same on all data hosts and at least one for each rank; None is one for each worker.
        even: Whether all ranks read equally many batches; see ``read_batches``.
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
        heartbeat_timeout: float = 300.0,
        shuffle: bool = True,
        drop_last: bool = False,
        even: bool | str = True,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        shards: int | None = None,
    ) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, like 4, got {workers}")
        options = {"seed": seed, "shuffle": shuffle, "drop_last": drop_last, "even": even, "shards": shards or workers}
        plan = Plan.of(dataset, batch_size=batch_size, **options)  # type: ignore[arg-type]
        self._settings = Settings(Payload.of(dataset, collate_fn), plan, workers, job)
        self._processes = Processes(self._settings.payload.modules)
        self._timeout = heartbeat_timeout
        self._alive: dict[int, float] = {}
        self._done: set[int] = set()
        self._expected: Sequence[int] = [0]  # the ranks whose home this host is
        self._ranks_known = False
        self._started = time.monotonic()
        self._error: DataServiceError | None = None
        self._dataset_failed_at: float | None = None
        self._deaths: deque[float] = deque(maxlen=MAX_DEATHS)
        self._stopping = False
        self._changed = threading.Condition()
        try:
            self._listener = socket.create_server((host, port), backlog=BACKLOG)
        except OSError as error:
            raise DataServiceError(f"the data host cannot serve: {error}") from error
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        atexit.register(self.stop)  # before multiprocessing's own handler, which would wait for the serving process
        self._start()
        self._thread = threading.Thread(target=self._supervise, daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        """Of the serving process that is there now."""
        return self._process.pid  # type: ignore[no-any-return]

    def wait(self) -> None:
        """Return when every rank has read all it wanted. Raises ``TrainerFailed``, or ``DataServiceError`` of the dataset."""
        with self._changed:
            while not self._stopping:
                if self._error is not None and (self._dataset_failed_at is None or self._ranks_informed()):
                    raise self._error
                if self._ranks_known and self._done.issuperset(self._expected):
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
        self._process.join(STOP_TIMEOUT)
        self._process.kill()
        self._process.join()
        self._thread.join()
        self._listener.close()
        atexit.unregister(self.stop)

    def __enter__(self) -> BatchServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = self._processes.start(serve, self._settings, self._listener, theirs, daemon=False)
        theirs.close()

    def _supervise(self) -> None:
        """Take the serving process's reports, and start another when it has died."""
        while True:
            with contextlib.suppress(EOFError, OSError):
                while True:
                    self._take(*self._pipe.recv())
            self._process.join()
            with self._changed:
                if self._stopping or self._error is not None:
                    return
                self._deaths.append(time.monotonic())
                ended = f"the serving process {describe_exit(self._process.exitcode)}"
                if len(self._deaths) == MAX_DEATHS and self._deaths[-1] - self._deaths[0] < WITHIN:
                    self._fail(DataServiceError(f"{ended}, {len(self._deaths)} times without a batch, and is given up"))
                    return
                print(f"{ended}; another is started", flush=True)
                self._start()

    def _take(self, what: str, *values: Any) -> None:
        with self._changed:
            if what == "served":
                self._deaths.clear()
            elif what == "unable":
                self._fail(DataServiceError(f"the data host cannot serve: {values[0]}"))
            elif what == "failed":
                self._dataset_failed_at = self._dataset_failed_at or time.monotonic()
                self._error = self._error or DataServiceError(values[0])
            else:
                rank, self._expected = values[:2]
                self._ranks_known = True
                self._alive[rank] = time.monotonic()
                if what == "done":
                    self._done.add(rank)
                    if values[2] is not None:
                        self._fail(TrainerFailed(f"training rank {rank} failed: {values[2]}"))
            self._changed.notify_all()

    def _fail(self, error: DataServiceError) -> None:
        self._error = self._error or error
        self._changed.notify_all()

    def _ranks_informed(self) -> bool:
        """Whether the ranks know of an error of the dataset, or have had the time to."""
        assert self._dataset_failed_at is not None
        return bool(self._done) or time.monotonic() - self._dataset_failed_at > DATASET_ERROR_WAIT

    def _check(self) -> float:
        """Seconds until something is to be looked at. Sets the error where no heartbeat of a rank came for too long."""
        if self._error is not None:
            return 0.5
        last = {rank: self._alive.get(rank, self._started) for rank in self._expected if rank not in self._done}
        overdue = min(last, key=last.__getitem__)
        left = last[overdue] + self._timeout - time.monotonic()
        if left <= 0:
            self._error = TrainerFailed(f"no heartbeat of training rank {overdue} for {self._timeout:g} s")
        return max(left, 0)
