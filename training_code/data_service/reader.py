"""A training rank's side: which batches it reads, in which order it delivers them, and where the time of an epoch goes."""

from __future__ import annotations

import math
import os
import selectors
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .plan import BatchTracker, Plan
from .pool import WorkerPool
from .protocol import VERSION, DataServiceError
from .requester import BYTES_BEYOND, TICK, Host, Local, Request, Requester

LOOK_AHEAD = 8 * 2**30  # bytes of look-ahead of a machine, or a quarter of its memory where that is less
_NOTHING = [[0, []]]  # the position in a sequence of which nothing was delivered
WAITS, BUSY = 0.02, 0.85  # the shares of an epoch from which waiting counts, and from which workers are the limit

# For CreateTrainingJob's AlgorithmSpecification.MetricDefinitions.
METRIC_DEFINITIONS = [
    {"Name": f"data_service:{name}", "Regex": rf"data_service epoch=.* {name}=([0-9.]+)"}
    for name in ("epoch_seconds", "wait_seconds", "hosts_busy_percent", "local_busy_percent", "network_mb_per_second")
]


@dataclass(frozen=True)
class Summary:
    """Of one rank's epoch; ``hosts_busy_percent`` is of the workers of the hosts that it reads from, over all ranks."""

    epoch: int
    batches: int
    left_out: int
    epoch_seconds: float
    wait_seconds: float
    hosts: int
    hosts_busy_percent: float
    local_busy_percent: float
    network_mb_per_second: float

    def line(self) -> str:
        values = (f"{name}={value:.6g}" for name, value in asdict(self).items())
        return f"data_service {' '.join(values)}: {self.advice()}"

    def advice(self) -> str:
        waits = self.wait_seconds / max(self.epoch_seconds, 1e-9)
        busy = self.hosts_busy_percent / 100
        if waits < WAITS:
            needed = max(1, math.ceil(self.hosts * busy / BUSY))
            if busy > 0 and needed < self.hosts:
                few = "one fewer would do" if self.hosts - needed == 1 else f"{self.hosts - needed} fewer would do"
                return f"data hosts are {100 * (1 - busy):.0f} % idle: {few}"
            return "the steps do not wait for data"
        summary = f"steps wait for data {100 * waits:.0f} % of the time, and "
        if self.hosts == 0:
            return summary + "this host's workers are what prepares it: add workers, or data hosts"
        if busy >= BUSY:
            more = max(1, math.ceil(self.hosts * waits / (1 - min(waits, 0.9))))
            return summary + f"the data hosts' workers are busy: add {more} data host{'s' if more > 1 else ''}"
        return summary + "the data hosts' workers are not busy: raise look_ahead, or look at the network"


@dataclass
class _Start:
    busy: float
    measured: float
    bytes: int


@dataclass
class Epoch:
    """Measures one rank's epoch from its first batch on."""

    epoch: int
    hosts: Sequence[Host]
    local: Local | None
    batches: int = 0
    waits: int = 0
    wait_seconds: float = 0.0
    _began: float = field(default_factory=time.monotonic)
    _ended: float | None = None
    _left_out: int = 0

    def __post_init__(self) -> None:
        self._starts = [_Start(host.busy_seconds, host.busy_measured, host.bytes) for host in self.hosts]
        self._local_busy = self.local.pool.busy_seconds if self.local else 0.0

    def waited(self, seconds: float) -> None:
        """A batch was delivered, after so many seconds without one."""
        self.waits += seconds > 0
        self.wait_seconds += seconds

    def end(self, *, left_out: int, report: bool) -> None:
        self._ended, self._left_out = time.monotonic(), left_out
        if report:
            print(self.summary().line(), file=sys.stderr, flush=True)

    def summary(self) -> Summary:
        """Up to now, or to the epoch's end."""
        seconds = max(1e-9, (self._ended or time.monotonic()) - self._began)
        used = [(host, start) for host, start in zip(self.hosts, self._starts, strict=True) if host.workers]
        spans = [(host.busy_measured - start.measured) * host.workers for host, start in used]
        busy = sum(host.busy_seconds - start.busy for host, start in used) / sum(spans) if sum(spans) > 0 else 0.0
        local = (self.local.pool.busy_seconds - self._local_busy) / self.local.workers / seconds if self.local else 0.0
        received = sum(host.bytes - start.bytes for host, start in used)
        return Summary(
            epoch=self.epoch,
            batches=self.batches,
            left_out=self._left_out,
            epoch_seconds=seconds,
            wait_seconds=self.wait_seconds,
            hosts=len(used),
            hosts_busy_percent=100 * min(busy, 1.0),
            local_busy_percent=100 * min(local, 1.0),
            network_mb_per_second=received / seconds / 1e6,
        )


class BatchReader:
    """One rank's batches, from data hosts, ``"host:port"`` each, and from this host's own workers where it has some.

    ``for batch in reader`` is an epoch, and the next such loop the next one; ``epoch(n)`` is one by its number. All sockets and
    the workers' pipes belong to one thread.

    Args:
        job: The TRAINING_JOB_ARN, which the data hosts hold against their own.
        connect_timeout: Seconds in which each home host has to answer for the first time; reading begins with the first.
        host_timeout: Seconds without an answer after which a data host counts as lost, and the reader raises ``DataHostLost``;
            also those after which a batch that has not come is requested from another host, even if the first one answers.
        prefetch: Batches that are kept ready, besides those that are being made or are on their way.
        look_ahead: Bytes of batches that are ready or on their way; None is this process's share of the machine's.
        ordered: In the order of their numbers, or else in that of their arrival.
        epochs: How many are read, so that nothing is made beyond the last; None: the next one's first batches always are.
        plan: What this rank expects the data hosts to serve; None takes it from the first that answers.
        local: Makes a pool of workers of this host's own for an event loop; the reader ends them.
        host: This one's name.
        gather: Returns the values that all ranks pass, by rank; None is ``torch.distributed``'s.
    """

    def __init__(
        self,
        servers: Sequence[str],
        *,
        job: str,
        rank: int = 0,
        ranks: int = 1,
        local_ranks: int = 1,
        connect_timeout: float = 900.0,
        host_timeout: float = 30.0,
        prefetch: int = 4,
        look_ahead: int | None = None,
        ordered: bool = True,
        epochs: int | None = None,
        plan: Plan | None = None,
        local: Callable[[selectors.BaseSelector], WorkerPool] | None = None,
        host: str | None = None,
        gather: Callable[[Any], list[Any]] | None = None,
    ) -> None:
        if not servers and (local is None or plan is None):
            raise ValueError(
                "servers must name at least one data host like 'algo-1:6000' where there are no local workers"
            )
        self._rank, self._ranks, self._ordered, self._epochs = rank, ranks, ordered, epochs
        self._gather = gather or _gather_by_torch
        self.plan, self.batch_bytes = plan, BYTES_BEYOND
        self.changed = threading.Condition()
        self._error: BaseException | None = None
        self._closed = False
        self._current: BatchTracker | None = None
        self._ahead: BatchTracker | None = None  # the next epoch's
        self._epoch, self._upcoming, self._position = 0, 0, []  # type: tuple[int, int, list[Any]]
        # The epoch that was read last to its end, and the position there.
        self._finished: tuple[int, list[Any]] = (-1, [])
        self.metrics: Epoch | None = None  # of the epoch that is read, or was read last
        hello = {"version": VERSION, "job": job, "rank": rank, "ranks": ranks, "reader": uuid.uuid4().hex}
        hello |= {"host": host or socket.gethostname(), "plan": None if plan is None else asdict(plan)}
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._requester = Requester(
            servers,
            hello,
            self,
            local,
            look_ahead=look_ahead or min(LOOK_AHEAD, memory_bytes // 4) // local_ranks,
            prefetch=prefetch,
            connect_timeout=connect_timeout,
            host_timeout=host_timeout,
        )
        self._requester.start()
        try:
            with self.changed:
                self.changed.wait_for(lambda: self.plan is not None or self._error is not None)
                self._raise_error()
                assert self.plan is not None
                sequences = self.plan.sequences(ranks)  # raises where a rank would have no batch
            if rank == 0 and (left := self.plan.left_over(ranks)):
                what = f"leaves out {left}" if left > 0 else f"has {-left}"
                of = f"of {self.plan.batches} batches{'' if left > 0 else ' twice'}"
                notice = f"data_service: each epoch {what} {of}, so that {ranks} ranks read {sequences[0].length} each"
                print(notice, file=sys.stderr, flush=True)
        except BaseException as error:
            self.close(error)
            raise

    def __len__(self) -> int:
        """How many batches an epoch has for this rank. Raises ``TypeError`` of an iterable dataset."""
        lengths = [sequence.length for sequence in self._sequences()]
        if lengths[0] is None:
            raise TypeError("an iterable dataset's batches cannot be counted before its end")
        return lengths[0]

    def __iter__(self) -> Iterator[Any]:
        return self.epoch(self._upcoming)

    def set_epoch(self, epoch: int) -> None:
        """Have the next loop read this epoch, as ``DistributedSampler.set_epoch`` does."""
        with self.changed:
            self._upcoming = epoch

    def epoch(self, number: int) -> Iterator[Any]:
        """This rank's batches of an epoch. Raises ``DataHostLost``, ``DataServiceError``."""
        with self.changed:
            self._requester.memory.use_current_device()
            position = self._position if number == self._epoch == self._upcoming else []
            tracker = self._ahead
            if tracker is None or tracker.epoch != number or number != self._upcoming:
                tracker = self._tracker(number, position)
            self._current, self._ahead = tracker, None
            self._epoch, self._upcoming = number, number + 1
            self.metrics = Epoch(number, self._requester.hosts, self._requester.local)
        self._requester.wake()
        return self._deliver(tracker)

    @property
    def ready(self) -> int:
        """Batches that have come and are not yet delivered, those of the next epoch included."""
        with self.changed:
            return sum(tracker.ready for tracker in (self._current, self._ahead) if tracker is not None)

    @property
    def in_flight(self) -> int:
        """Batches that are requested and have not come, those of the next epoch included."""
        with self.changed:
            return sum(tracker.in_flight for tracker in (self._current, self._ahead) if tracker is not None)

    def state_dict(self) -> dict[str, Any]:
        """The position of all ranks: an epoch, and what of it was delivered.

        Of a map-style dataset in order each rank can derive it, if they step together. Else all ranks have to call this after
        the same step, and their positions are gathered.
        """
        with self.changed:
            assert self.plan is not None
            current = self._current
            if current is None:
                epoch, mine = self._epoch, self._position
            else:
                epoch, mine = current.epoch, [list(one) for one in current.position]
        if self._ranks == 1:
            return {"epoch": epoch, "ranks": 1, "delivered": mine}
        if self.plan.shards is None and self._ordered:
            return {"epoch": epoch, "ranks": self._ranks, "delivered": mine * self._ranks}
        gathered = self._gather((epoch, mine, self._finished))
        first = min(epoch for epoch, _, _ in gathered)
        positions = [at if epoch == first else end for epoch, at, (_, end) in gathered]
        count = len(self.plan.sequences(self._ranks)) if any(positions) else 0
        delivered = [(positions[n % self._ranks] or _NOTHING * count)[n // self._ranks] for n in range(count)]
        return {"epoch": first, "ranks": self._ranks, "delivered": delivered}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a position: the next loop delivers what is left of its epoch.

        Raises ``ValueError`` where it is of another number of ranks, in the middle of an epoch.
        """
        delivered = [(int(count), list(beyond)) for count, beyond in state["delivered"]]
        if state["ranks"] != self._ranks and delivered:
            raise ValueError(
                f"state_dict must be of as many ranks as read now, {self._ranks}, got one of {state['ranks']}: "
                "another number can continue only where an epoch begins"
            )
        with self.changed:
            self._current = self._ahead = None
            self._epoch = self._upcoming = int(state["epoch"])
            self._position = [list(one) for one in delivered[self._rank :: self._ranks]]

    def close(self, error: BaseException | None = None) -> None:
        """Send DONE to every data host, with the error if there is one, and end the local workers."""
        with self.changed:
            if self._closed:
                return
            self._closed, self._current, self._ahead = True, None, None
            self.changed.notify_all()
        self._requester.stop(None if error is None else f"{type(error).__name__}: {error}")

    def __enter__(self) -> BatchReader:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close(error)

    # -- Delivering, on the thread that reads

    def _sequences(self) -> list[Any]:
        assert self.plan is not None
        return self.plan.sequences(self._ranks)[self._rank :: self._ranks]

    def _tracker(self, epoch: int, position: Sequence[Any] = ()) -> BatchTracker:
        return BatchTracker(epoch, self._sequences(), position, ordered=self._ordered)

    def _deliver(self, tracker: BatchTracker) -> Iterator[Any]:
        try:
            while found := self._next(tracker):
                yield found.pop()  # no name is left for it here, so it is freed when its user is done with it
        finally:
            with self.changed:
                if self._current is tracker:  # it was left early
                    self._position = [list(one) for one in tracker.position]
                    self._current = None

    def _next(self, tracker: BatchTracker) -> list[Any]:
        """A list of the next batch, or an empty one after the last."""
        assert self.metrics is not None
        assert self.plan is not None
        with self.changed:
            began = None
            while not (self._error or self._current is not tracker or tracker.deliverable or tracker.done):
                began = began or time.perf_counter()
                self.changed.wait(TICK)
            self._raise_error()
            if self._current is not tracker:
                raise DataServiceError("the reader was closed, or has begun another epoch, before this one's end")
            more = tracker.deliverable
        self.metrics.waited(0.0 if began is None else time.perf_counter() - began)
        if self._ranks > 1 and self.plan.shards is not None and self.plan.even:
            more = all(self._gather(more))  # the epoch ends for all ranks where the first has no more
        with self.changed:
            if more:
                self.metrics.batches += 1
                batch = [tracker.deliver()]
                held = sum(one.ready + one.in_flight for one in (tracker, self._ahead) if one is not None)
            else:
                self._finished = (tracker.epoch, [list(one) for one in tracker.position])
                self._epoch, self._position, self._current = tracker.epoch + 1, [], None
        if more:
            self._requester.delivered(held)
            return batch
        self.metrics.end(left_out=tracker.ready, report=self._rank == 0)
        return []

    def _raise_error(self) -> None:
        if self._error is not None:
            # A FailureReason begins where the toolkit first finds one of Python's own errors, as in this line.
            raise self._error  # Exception

    # -- What the requester calls, on its thread

    def trackers(self) -> list[BatchTracker]:
        """Of this epoch, and of the next as soon as all batches of this one are requested."""
        if self._error is not None or self._closed:
            return []
        if self._ahead is None and self.metrics is not None and (self._current is None or self._current.exhausted):
            wanted = self._upcoming if self._current is None else self._current.epoch + 1
            if self._epochs is None or wanted < self._epochs:
                resumed = self._current is None and wanted == self._epoch
                self._ahead = self._tracker(wanted, self._position if resumed else ())
        return [tracker for tracker in (self._current, self._ahead) if tracker is not None]

    def welcome(self, address: str, plan: Plan) -> None:
        with self.changed:
            if self.plan is None:
                self.plan = plan
                self.changed.notify_all()
            differences = self.plan.differences(plan)
        if differences:
            self.fail(DataServiceError(f"data host {address} must serve {', '.join(differences)}"))

    def receive(self, request: Request, batch: Any, size: int) -> None:
        with self.changed:
            self.batch_bytes = size
            request.tracker.receive(request.key, batch)
            if request.tracker is self._current and self._current.deliverable:
                self.changed.notify_all()

    def end(self, request: Request) -> None:
        with self.changed:
            request.tracker.end(request.key)
            self.changed.notify_all()

    def requeue(self, requests: list[Request]) -> None:
        with self.changed:
            for one in requests:
                one.tracker.requeue(one.key)

    def fail(self, error: DataServiceError) -> None:
        with self.changed:
            self._error = self._error or error
            self.changed.notify_all()


def _gather_by_torch(value: Any) -> list[Any]:
    import torch.distributed as dist

    if not dist.is_initialized():
        raise DataServiceError(
            "ranks have to agree on where an epoch of an iterable or unordered dataset stands: call "
            "torch.distributed.init_process_group first, or read with even=False and keep a position of each rank"
        )
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values
