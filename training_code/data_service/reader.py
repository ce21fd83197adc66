"""A training rank's side: which batches it reads, in which order it delivers them, and where the time of an epoch goes."""

from __future__ import annotations

import math
import os
import selectors
import socket
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .batches import Encoder, decode
from .plan import Plan
from .pool import WorkerPool
from .protocol import VERSION, DataServiceError
from .requester import TICK, Requester
from .tracker import BatchTracker

LOOK_AHEAD = 8 * 2**30  # bytes of look-ahead of a machine, or a quarter of its memory where that is less
MOST_NAMED = 5  # files, or shards, of which samples were dropped
WAITS, BUSY = 0.02, 0.85  # the shares of an epoch from which waiting counts, and from which workers are the limit

# For CreateTrainingJob's AlgorithmSpecification.MetricDefinitions.
METRIC_DEFINITIONS = [
    {"Name": f"data_service:{name}", "Regex": rf"data_service epoch=.* {name}=([0-9.]+)"}
    for name in ("epoch_seconds", "wait_seconds", "hosts_busy_percent", "local_busy_percent", "network_mb_per_second")
]


@dataclass(frozen=True)
class Summary:
    """Of one rank's epoch; None, printed as unknown, is what was not measured.

    ``hosts_busy_percent`` is of the workers of the hosts that it reads from, over all ranks; ``dropped_samples`` is of all ranks.
    """

    epoch: int
    batches: int
    dropped_samples: int
    epoch_seconds: float
    wait_seconds: float
    hosts: int
    hosts_busy_percent: float | None
    local_busy_percent: float | None
    network_mb_per_second: float

    def line(self) -> str:
        values = (f"{name}={'unknown' if value is None else f'{value:.6g}'}" for name, value in asdict(self).items())
        return f"data_service {' '.join(values)}: {self.advice()}"

    def advice(self) -> str:
        waits = self.wait_seconds / max(self.epoch_seconds, 1e-9)
        busy = None if self.hosts_busy_percent is None else self.hosts_busy_percent / 100
        if waits < WAITS:
            needed = self.hosts if busy is None else max(1, math.ceil(self.hosts * busy / BUSY))
            if busy is not None and needed < self.hosts:
                few = "one fewer would do" if self.hosts - needed == 1 else f"{self.hosts - needed} fewer would do"
                return f"data hosts are {100 * (1 - busy):.0f} % idle: {few}"
            return "the steps do not wait for data"
        summary = f"steps wait for data {100 * waits:.0f} % of the time, and "
        if self.hosts == 0:
            return summary + "this host's workers are what prepares it: add workers, or data hosts"
        if busy is None:
            return summary + "how busy the data hosts' workers are was not measured"
        if busy >= BUSY:
            more = max(1, math.ceil(self.hosts * waits / (1 - min(waits, 0.9))))
            return summary + f"the data hosts' workers are busy: add {more} data host{'s' if more > 1 else ''}"
        return summary + "the data hosts' workers are not busy: raise look_ahead, or look at the network"


class Epoch:
    """Measures one rank's epoch from its first batch on."""

    def __init__(self, epoch: int, requester: Requester) -> None:
        self.epoch, self.batches, self.dropped_samples, self.wait_seconds = epoch, 0, 0, 0.0
        self._hosts, self._local = requester.hosts, requester.local
        self._began, self._ended, self._start = time.monotonic(), None, self._usage()  # type: float, float | None, Any

    def _usage(self) -> tuple[float, ...]:
        """Up to now: the seconds of the hosts' workers that were busy, and all; bytes; the busy ones of the local workers."""
        local = self._local.pool.busy_seconds if self._local else 0.0
        return (*(sum(getattr(one, of) for one in self._hosts) for of in ("busy", "capacity", "bytes")), local)

    def end(self, *, dropped_samples: int, report: bool) -> None:
        self._ended, self.dropped_samples = time.monotonic(), dropped_samples
        if report:
            print(self.summary().line(), file=sys.stderr, flush=True)

    def summary(self) -> Summary:
        """Up to now, or to the epoch's end."""
        seconds = max(1e-9, (self._ended or time.monotonic()) - self._began)
        busy, capacity, received, local = (now - was for now, was in zip(self._usage(), self._start, strict=True))
        return Summary(
            epoch=self.epoch,
            batches=self.batches,
            dropped_samples=self.dropped_samples,
            epoch_seconds=seconds,
            wait_seconds=self.wait_seconds,
            hosts=sum(host.workers > 0 for host in self._hosts),
            hosts_busy_percent=100 * min(busy / capacity, 1.0) if capacity else None,
            local_busy_percent=100 * min(local / self._local.pool.count / seconds, 1.0) if self._local else None,
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
            raise ValueError("servers must name a data host, like 'algo-1:6000', where there are no local workers")
        self._rank, self._ranks, self._ordered = rank, ranks, ordered
        self._epochs, self._gather = math.inf if epochs is None else epochs, gather or _gather_by_torch
        self._closed = False
        # The epoch of an iterable dataset that was read last to its end, and the position there.
        self._finished: tuple[int, dict[int, Any]] = (-1, {})
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
            # Of the epoch that is read, or else of the one whose position is that of this reader; and of the next loop.
            self._tracker = self._next_tracker = self._new_tracker(0)  # raises where a rank would have no batch
        except BaseException as error:
            self.close(error)
            raise
        if rank == 0 and self.plan.length is not None and self.plan.even and (dropped := self.plan.steps(ranks)[2]):
            share = f"{share_of(dropped, self.plan.length)}, with batch_size {self.plan.batch_size} on {ranks} ranks"
            print(f"data_service: each epoch drops {share}", file=sys.stderr)

    def __len__(self) -> int:
        """How many batches an epoch has for this rank. Raises ``TypeError`` of an iterable dataset."""
        length = self.plan.sequences(self._rank, self._ranks)[0].length
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
        """The position of all ranks, which is JSON: an epoch, the samples of it that were delivered, and more where needed.

        Of a map-style dataset in order each rank can derive it, if they step together. Else all ranks have to call this after
        the same step, and their positions are gathered.
        """
        plan = self.plan
        with self._changed:
            tracker = self._tracker
            mine: Any = tracker.position[0] if plan.shards is None else tracker.shards
        each = [(tracker.epoch, mine, self._finished)]
        if self._ranks > 1 and (plan.shards is not None or not self._ordered):
            each = self._gather(each[0])
        epoch = min(of for of, _, _ in each)
        if plan.shards is not None:
            found: dict[int, Any] = {}
            for of, at, (finished, end) in each:
                found |= at if of == epoch else end if finished == epoch else {}
            state = {"epoch": epoch, "samples": sum(one["samples"] for one in found.values())}
            began = any(one != {"samples": 0} for one in found.values())
            return state | ({"shards": [found[n] for n in range(plan.shards)]} if began else {})
        # A rank that is an epoch further has read all of its share.
        delivered = [at if of == epoch else (2**53, []) for of, at, _ in each]
        if all(one == (delivered[0][0], []) for one in delivered):
            return {"epoch": epoch, "samples": tracker.sequences[0].position(delivered[0][0])}
        state = {"epoch": epoch, "samples": tracker.sequences[0].start}
        return state | {"ranks": self._ranks, "batch_size": plan.batch_size, "delivered": delivered}

    @property
    def samples_read(self) -> int:
        """Of a map-style dataset, by all ranks in all epochs up to the position, of which what was dropped counts as read."""
        position = self.state_dict()
        return int(position["epoch"] * (self.plan.length or 0) + position["samples"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a position, of any number of ranks and any batch size: the next loop delivers what is left of its epoch.

        Raises ``ValueError`` where it is one in the middle of an epoch that only as many ranks, batches or shards can continue.
        """
        samples, shards, delivered = int(state.get("samples", 0)), state.get("shards", ()), state.get("delivered", ())
        for name, value in {"ranks": self._ranks, "batch_size": self.plan.batch_size}.items() if delivered else ():
            if state.get(name) != value:
                where = "state_dict was called in the middle of an epoch that is read with ordered=False"
                raise ValueError(f"{name} must be {state.get(name)}, as where {where}, got {value}")
        if (samples or shards or delivered) and (len(shards) or None) != self.plan.shards:
            what = f"shards={len(shards)}" if shards else "no shards, of a map-style dataset"
            raise ValueError(f"state_dict must be of as many shards as are read now, {self.plan.shards}, got {what}")
        if samples > (length := self.plan.length or samples):
            raise ValueError(f"state_dict must be of a dataset of {length} samples, got one of at least {samples}")
        with self._changed:
            self._requester.trackers = []
            self._tracker = self._new_tracker(int(state["epoch"]), samples, shards, delivered[self._rank :][:1])
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

    def _new_tracker(
        self, epoch: int, samples: int = 0, shards: Sequence[Mapping[str, Any]] = (), position: Iterable[Any] = ()
    ) -> BatchTracker:
        sequences, size = self.plan.sequences(self._rank, self._ranks, epoch, samples, shards), self.plan.batch_size
        if shards:
            mine = [shards[one.shard or 0] for one in sequences]
            position = [(0, [(n - one["samples"]) // size for n in one.get("beyond", ())]) for one in mine]
        tracker = BatchTracker(epoch, sequences, position, ordered=self._ordered)
        for states, one in zip(tracker.states, mine if shards else (), strict=False):
            states |= {0: one["state"]} if "state" in one else {}
        return tracker

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
                    self._tracker = tracker.restarted()
                    self._want()

    def _next(self, tracker: BatchTracker) -> list[Any]:
        """A list of the next batch, or an empty one after the last."""
        agrees = self._ranks > 1 and self.plan.shards is not None and self.plan.even
        ready = self._wait(tracker, 1)
        found = [self._deliver_next(tracker)] if ready and not agrees else []
        if agrees:  # the epoch ends for all ranks where there is no batch for one of them
            each = self._gather(ready)
            found = [self._deliver_next(tracker)] if all(each) else self._exchange(tracker, each)
        assert self.metrics is not None
        self.metrics.batches += len(found)
        return found or self._end(tracker, agrees)

    def _wait(self, tracker: BatchTracker, most: int) -> int:
        """How many batches can be delivered now: at least ``most``, or all that there are."""
        assert self.metrics is not None
        began = None
        with self._changed:
            tracker.needed = most
            while True:
                self._raise_error()
                if self._closed or self._tracker is not tracker:
                    raise DataServiceError("the reader was closed, or has begun another epoch, before this one's end")
                if tracker.satisfied:
                    break
                if began is None:
                    began = time.perf_counter()
                    if most > 1:  # as many may not have been requested
                        self._requester.wake()
                self._changed.wait(TICK)
            self.metrics.wait_seconds += time.perf_counter() - began if began else 0.0
            return tracker.available(most)

    def _deliver_next(self, tracker: BatchTracker) -> Any:
        with self._changed:
            batch = tracker.deliver()
            self._requester.delivered()
        return batch

    def _exchange(self, tracker: BatchTracker, ready: list[int]) -> list[Any]:
        """Of the last batches that the ranks have, one for each: ranks with several pass some on. None where they are too few.

        So a rank whose shards are shorter goes on with batches of the others'. Of the last that are fewer than ranks one is
        divided.
        """
        offers = self._gather((self._wait(tracker, 1 + ready.count(0)), tracker.divisible))
        counts = [count for count, _ in offers]
        without = [rank for rank, count in enumerate(counts) if not count]
        spare = [rank for rank, count in enumerate(counts) for _ in range(count - 1)]
        if len(spare) < len(without):
            size, rank = max((size, rank) for rank, (_, size) in enumerate(offers))
            parts = len(without) - len(spare) + 1
            if size < parts or self.plan.drop_last:
                return []
            if rank == self._rank:
                with self._changed:
                    tracker.split(parts)
                    self._requester.wake()
            return self._exchange(tracker, ready)
        found, sent = [self._deliver_next(tracker)] if counts[self._rank] else [], {}
        givers = dict(zip(without, spare, strict=False))
        for receiver, giver in givers.items():
            if giver == self._rank:
                batch = Encoder(self._deliver_next(tracker))
                memory = self._requester.memory.empty(batch.bytes)
                batch.write(memory)
                sent[receiver] = batch.description, memory.numpy()
        passed = self._gather(sent)
        if not found:
            description, array = passed[givers[self._rank]][self._rank]
            memory = self._requester.memory.empty(len(array))
            memory.numpy()[:] = array
            found = [decode(description, memory)]
        return found

    def _end(self, tracker: BatchTracker, agrees: bool) -> list[Any]:
        """The end of an epoch: what was dropped of it is counted, over all ranks where they agree."""
        with self._changed:
            tracker.drop_ready()
            self._finished = tracker.epoch, tracker.shards if self.plan.shards is not None else {}
            self._tracker = self._next_tracker
            self._want()
        dropped, read = tracker.dropped, sum(tracker.samples)
        if agrees:
            each = self._gather((dict(dropped), read))
            dropped, read = sum((Counter(one) for one, _ in each), Counter()), sum(one for _, one in each)
        total = sum(dropped.values())
        if self.plan.shards is not None and not read and (agrees or self._ranks == 1):
            left = f", of {total} samples that are too few for all {self._ranks} ranks" if total else ""
            none = f"got none in epoch {tracker.epoch}{left}"
            raise DataServiceError(f"the dataset must have a batch in each epoch, {none}")
        if total and self._rank == 0:
            named = ", ".join(f"{count} of {name}" for name, count in dropped.most_common(MOST_NAMED))
            more = f" and {len(dropped) - MOST_NAMED} more" if len(dropped) > MOST_NAMED else ""
            what = f"warning: epoch {tracker.epoch} dropped {share_of(total, read + total)}: {named}{more}"
            print(f"data_service: {what}", file=sys.stderr, flush=True)
        if self.plan.length is not None and self.plan.even:
            total = self.plan.steps(self._ranks, tracker.sequences[0].start)[2]
        assert self.metrics is not None
        self.metrics.end(dropped_samples=total, report=self._rank == 0)
        return []

    def _raise_error(self) -> None:
        if self._requester.error is not None:
            # A FailureReason begins where the toolkit first finds one of Python's own errors, as in this line.
            raise self._requester.error  # Exception


def share_of(count: int, of: int) -> str:
    return f"{count} of {of} samples ({100 * count / of:.2g} %)"


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
