"""A training rank's side: which batches it reads, in which order it delivers them, and where the time of an epoch goes."""

from __future__ import annotations

import math
import os
import selectors
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .plan import BatchTracker, Plan, Position
from .pool import WorkerPool
from .protocol import VERSION, DataServiceError
from .requester import TICK, Requester

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


class Epoch:
    """Measures one rank's epoch from its first batch on."""

    def __init__(self, epoch: int, requester: Requester) -> None:
        self.epoch, self.batches, self.left_out, self.wait_seconds = epoch, 0, 0, 0.0
        self._hosts, self._local = requester.hosts, requester.local
        self._began, self._ended, self._start = time.monotonic(), None, self._usage()  # type: float, float | None, Any

    def _usage(self) -> tuple[float, ...]:
        """Up to now: the seconds of the hosts' workers that were busy, and all; bytes; the busy ones of the local workers."""
        local = self._local.pool.busy_seconds if self._local else 0.0
        return (*(sum(getattr(one, of) for one in self._hosts) for of in ("busy", "capacity", "bytes")), local)

    def end(self, *, left_out: int, report: bool) -> None:
        self._ended, self.left_out = time.monotonic(), left_out
        if report:
            print(self.summary().line(), file=sys.stderr, flush=True)

    def summary(self) -> Summary:
        """Up to now, or to the epoch's end."""
        seconds = max(1e-9, (self._ended or time.monotonic()) - self._began)
        busy, capacity, received, local = (now - was for now, was in zip(self._usage(), self._start, strict=True))
        return Summary(
            epoch=self.epoch,
            batches=self.batches,
            left_out=self.left_out,
            epoch_seconds=seconds,
            wait_seconds=self.wait_seconds,
            hosts=sum(host.workers > 0 for host in self._hosts),
            hosts_busy_percent=100 * min(busy / capacity, 1.0) if capacity else 0.0,
            local_busy_percent=100 * min(local / self._local.pool.count / seconds, 1.0) if self._local else 0.0,
            network_mb_per_second=received / seconds / 1e6,
        )


class BatchReader:
    """One rank's batches, from data hosts, ``"host:port"`` each, and from this host's own workers where it has some.

    ``for batch in reader`` is an epoch, and the next such loop the next one; ``epoch(n)`` is one by its number. All sockets and
    the workers' pipes belong to one thread.

    Args:
        job: The TRAINING_JOB_ARN, which the data hosts hold against their own.
        plan: What this rank expects the data hosts to serve; None takes it from the first that answers.
        local: Makes a pool of workers of this host's own for an event loop; the reader ends them.
        host: This one's name.
        gather: Returns the values that all ranks pass, by rank; None is ``torch.distributed``'s.
        others: As of ``read_batches``.
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
        self._rank, self._ranks, self._ordered = rank, ranks, ordered
        self._epochs, self._gather = math.inf if epochs is None else epochs, gather or _gather_by_torch
        self._closed = False
        # The epoch that was read last to its end, and the position there.
        self._finished: tuple[int, Position] = (-1, [])
        self.metrics: Epoch | None = None  # of the epoch that is read, or was read last
        hello = {"version": VERSION, "job": job, "rank": rank, "ranks": ranks, "reader": uuid.uuid4().hex}
        hello |= {"host": host or socket.gethostname(), "plan": None if plan is None else asdict(plan)}
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._requester = Requester(
            servers,
            hello,
            plan,
            local,
            look_ahead=look_ahead or min(LOOK_AHEAD, memory_bytes // 4) // local_ranks,
            prefetch=prefetch,
            connect_timeout=connect_timeout,
            host_timeout=host_timeout,
        )
        self._changed = self._requester.changed
        try:
            with self._changed:
                self._changed.wait_for(lambda: self._requester.plan or self._requester.error)
                self._raise_error()
            assert self._requester.plan is not None
            self.plan: Plan = self._requester.plan
            self._sequences = self.plan.sequences(ranks)[rank::ranks]  # raises where a rank would have no batch
        except BaseException as error:
            self.close(error)
            raise
        # Of the epoch that is read, or else of the one whose position is that of this reader; and of the next loop.
        self._tracker = self._next_tracker = self._new_tracker(0)
        if rank == 0 and (left := self.plan.left_over(ranks)):
            what = f"leaves out {left}" if left > 0 else f"has {-left}"
            of = f"of {self.plan.batches} batches{'' if left > 0 else ' twice'}"
            notice = f"data_service: each epoch {what} {of}, so that {ranks} ranks read {len(self)} each"
            print(notice, file=sys.stderr, flush=True)

    def __len__(self) -> int:
        """How many batches an epoch has for this rank. Raises ``TypeError`` of an iterable dataset."""
        length = self._sequences[0].length
        if length is None:
            raise TypeError("an iterable dataset's batches cannot be counted before its end")
        return length

    def __iter__(self) -> Iterator[Any]:
        return self.epoch(self._next_tracker.epoch)

    def set_epoch(self, epoch: int) -> None:
        """Have the next loop read this epoch, as ``DistributedSampler.set_epoch`` does."""
        with self._changed:
            if self._next_tracker.epoch != epoch:
                self._next_tracker = self._new_tracker(epoch)

    def epoch(self, number: int) -> Iterator[Any]:
        """This rank's batches of an epoch. Raises ``DataHostLost``, ``DataServiceError``."""
        self._requester.memory.use_current_device()
        self.set_epoch(number)
        with self._changed:
            self._tracker, self._next_tracker = self._next_tracker, self._new_tracker(number + 1)
            self._want(self._tracker)
            self.metrics = Epoch(number, self._requester)
        return self._deliver(self._tracker)

    @property
    def ready(self) -> int:
        """Batches that have come and are not yet delivered, those of the next epoch included."""
        with self._changed:
            return sum(tracker.ready for tracker in self._requester.trackers)

    @property
    def in_flight(self) -> int:
        """Batches that are requested and have not come, those of the next epoch included."""
        with self._changed:
            return sum(tracker.in_flight for tracker in self._requester.trackers)

    @property
    def batch_bytes(self) -> int:
        """Of the last batch that came."""
        return self._requester.batch_bytes

    def state_dict(self) -> dict[str, Any]:
        """The position of all ranks: an epoch, and what of it was delivered.

        Of a map-style dataset in order each rank can derive it, if they step together. Else all ranks have to call this after
        the same step, and their positions are gathered.
        """
        with self._changed:
            epoch, mine = self._tracker.epoch, self._tracker.position
        if self._ranks == 1 or (self.plan.shards is None and self._ordered):
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
        if state["ranks"] != self._ranks and state["delivered"]:
            raise ValueError(
                f"state_dict must be of as many ranks as read now, {self._ranks}, got one of {state['ranks']}: "
                "another number can continue only where an epoch begins"
            )
        with self._changed:
            self._requester.trackers = []
            self._tracker = self._new_tracker(int(state["epoch"]), state["delivered"][self._rank :: self._ranks])
            self._next_tracker = self._tracker

    def close(self, error: BaseException | None = None) -> None:
        """Send DONE to every data host, with the error if there is one, and end the local workers."""
        with self._changed:
            if self._closed:
                return
            self._closed, self._requester.trackers = True, []
            self._changed.notify_all()
        self._requester.stop(None if error is None else f"{type(error).__name__}: {error}")

    def __enter__(self) -> BatchReader:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close(error)

    # -- Delivering, on the thread that reads

    def _new_tracker(self, epoch: int, position: Iterable[Any] = ()) -> BatchTracker:
        return BatchTracker(epoch, self._sequences, position, ordered=self._ordered)

    def _want(self, *trackers: BatchTracker) -> None:
        """Have the batches of these epochs requested, and then those of the next one."""
        after = [self._next_tracker] if self._next_tracker.epoch < self._epochs else []
        self._requester.trackers = [*trackers, *after]
        self._requester.wake()

    def _deliver(self, tracker: BatchTracker) -> Iterator[Any]:
        try:
            while found := self._next(tracker):
                yield found.pop()  # no name is left for it here, so it is freed when its user is done with it
        finally:
            with self._changed:
                if self._tracker is tracker and not self._closed:  # it was left early
                    self._tracker = self._new_tracker(tracker.epoch, tracker.position)
                    self._want()

    def _next(self, tracker: BatchTracker) -> list[Any]:
        """A list of the next batch, or an empty one after the last."""
        assert self.metrics is not None
        began = None
        with self._changed:
            while True:
                self._raise_error()
                if self._closed or self._tracker is not tracker:
                    raise DataServiceError("the reader was closed, or has begun another epoch, before this one's end")
                if (more := tracker.deliverable) or tracker.done:
                    break
                began = began or time.perf_counter()
                self._changed.wait(TICK)
        self.metrics.wait_seconds += time.perf_counter() - began if began else 0.0
        if self._ranks > 1 and self.plan.shards is not None and self.plan.even:
            more = all(self._gather(more))  # the epoch ends for all ranks where the first has no more
        with self._changed:
            if more:
                self.metrics.batches += 1
                batch = [tracker.deliver()]
                self._requester.delivered()
                return batch
            self._finished = (tracker.epoch, tracker.position)
            self._tracker = self._next_tracker
            self._want()
        self.metrics.end(left_out=tracker.ready, report=self._rank == 0)
        return []

    def _raise_error(self) -> None:
        if self._requester.error is not None:
            # A FailureReason begins where the toolkit first finds one of Python's own errors, as in this line.
            raise self._requester.error  # Exception


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
