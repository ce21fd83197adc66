"""The thread of a training process that has all its connections: requests batches from data hosts and from its own workers."""

from __future__ import annotations

import itertools
import json
import math
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from typing import Any

from torch import Tensor

from .batches import ReceiveMemory, decode, tensor_from_buffer
from .plan import Plan, home_shares
from .pool import Slot, WorkerPool
from .protocol import Connection, DataHostLost, DataServiceError, Frame, Kind
from .tracker import NOTHING, BatchTracker, Request
from .worker import Failed, Made, Order, Result

HEARTBEAT = 2.0  # seconds between two PINGs
# Seconds, at most a third of host_timeout, in which something has to come after a PING; else the connection is broken.
ANSWER_TIMEOUT = 10.0
DONE_TIMEOUT = 10.0  # seconds in which a disconnected host may come back and receive DONE
RETRY = 0.2  # seconds between two attempts to connect
TICK = 0.25  # seconds, at most, between two looks at what is late
STAND_IN_AFTER = 5.0  # seconds until another host is used in place of a home host that is not up
BYTES_BEYOND, LEAST_BEYOND, MOST_BEYOND = 32 * 2**20, 2, 32  # see ``requests_beyond``
LEAST_AHEAD = 2  # batches, however large
RESULTS = (Kind.BATCH, Kind.END, Kind.FAILED)


def requests_beyond(batch_bytes: int, hosts: int, ranks: int) -> int:
    """Batches that a rank requests from a host beyond those that its workers are making: as many as 32 MiB hold, 2 to 32.

    But at least four where ranks are no more than hosts: while one is sent and the next waits, a host's workers have two more.
    """
    least = LEAST_BEYOND if ranks > hosts else 2 * LEAST_BEYOND
    return max(least, min(MOST_BEYOND, BYTES_BEYOND // batch_bytes))


class Host:
    """A data host. It is ``up`` from its WELCOME until its connection breaks; ``wanted``: whether to connect at all."""

    def __init__(self, address: str, hello: Mapping[str, Any], requester: Requester, home_share: Fraction) -> None:
        self.address, self.home, self.wanted = address, home_share > 0, home_share > 0
        self.requests: dict[int, Request] = {}
        self.workers = self.bytes = 0  # no worker until it was up
        self.share = 0  # workers that this rank may keep busy; see ``plan.home_shares``
        self.low = 0  # batches in flight, up to which there is room for enough others to request them
        self.busy = self.capacity = 0.0  # seconds of its workers while it was up: in which they made batches, and all
        self.up = self.finished = False
        self.answered = time.monotonic()
        self._hello, self._requester = hello, requester
        self._answer_timeout = min(ANSWER_TIMEOUT, requester.host_timeout / 3)
        # In place of another host it is to serve as one of those whose home it is.
        self._home_share = home_share or Fraction(1, max(1, len(hello["homes"])))
        self._connection: Connection | None = None
        self._life = self._live()
        self._serials = itertools.count()
        self._measured = (0.0, 0.0)  # when, with its WELCOME or batch, and the seconds that its workers had been busy
        self._began = self.answered  # looking for it
        self._why = "not tried"
        self._done: dict[str, Any] | None = None
        self._finish_by = math.inf

    def request(self, requests: Sequence[Request]) -> None:
        serials = [next(self._serials) % 2**32 for _ in requests]
        self.requests |= zip(serials, requests, strict=True)
        assert self._connection is not None
        orders = [[n, *one.order] for n, one in zip(serials, requests, strict=True)]
        alone = [[order] for order in orders if order[-1] is not None]  # a dataset's state may be large
        for some in [*alone, [order for order in orders if order[-1] is None]]:
            if some:
                self._connection.send(Kind.REQUEST, some)

    def flush(self) -> None:
        """Send what was noted."""
        if self._connection is not None:
            self._connection.flush()

    def tick(self, now: float) -> None:
        """Connect, send heartbeats, and see whether it is lost."""
        self.finished = self.finished or now > self._finish_by
        if not self.finished:
            next(self._life)
            if self.home and not self.up and self._done is None:
                self._look_for_loss(now)

    def finish(self, error: str | None) -> None:
        """Send DONE, with the error if this rank failed; ``finished`` is set once it is confirmed, or cannot be delivered."""
        self._done, now = {"error": error}, time.monotonic()
        # One that has not answered may still come, and would then wait for a trainer; the job ends only when it does.
        self._finish_by = now + DONE_TIMEOUT if self.workers else self._began + self._requester.connect_timeout
        if error is not None:
            self.wanted, self._finish_by = True, min(self._finish_by, now + self._answer_timeout)
        self.finished = self.finished or not self.wanted
        if self.up and self._connection is not None:
            self._connection.send(Kind.DONE, self._done)

    def close(self) -> None:
        self.finished = True
        self._break("closed")

    # -- The connection

    def _live(self) -> Iterator[None]:
        """Connect while it is wanted, and again where the connection has ended; suspended until the next tick."""
        while True:
            while not self.wanted:
                yield
            connecting: Future[socket.socket] = Future()
            threading.Thread(target=self._connect, args=(connecting,), daemon=True).start()
            while not connecting.done():
                yield
            try:
                yield from self._hold(connecting.result())
            except OSError as error:
                self._break(str(error))
            retry_at = time.monotonic() + RETRY
            while time.monotonic() < retry_at:
                yield

    def _connect(self, connecting: Future[socket.socket]) -> None:
        """On a thread of its own, since a name may take long to be found."""
        name, _, port = self.address.rpartition(":")
        try:
            connecting.set_result(socket.create_connection((name, int(port)), self._answer_timeout))
        except Exception as error:
            connecting.set_exception(error)
        self._requester.wake()

    def _hold(self, connected: socket.socket) -> Iterator[None]:
        """Send HELLO, and heartbeats until the connection ends."""
        self._why = "it accepts connections, but has sent no WELCOME"
        allocate = self._requester.memory.empty
        connection = Connection(connected, self._requester.selector, self._take, self._lose, allocate)
        connection.send(Kind.HELLO, self._hello)
        self._connection, pinged = connection, time.monotonic()
        while not connection.closed:
            yield
            now = time.monotonic()
            answered = connection.received_at >= pinged
            if not answered and now - pinged > self._answer_timeout:
                self._break(f"nothing came for {self._answer_timeout:g} s")
            elif not self.wanted and not self.requests:
                self._break("not needed")
            elif self.up and answered and now - pinged > HEARTBEAT:
                pinged = now
                connection.send(Kind.PING)

    def _lose(self, error: Exception) -> None:
        """The connection has ended, or what came is none of this protocol, or of no batch."""
        if not isinstance(error, OSError):
            self._fail(f"{type(error).__name__}: {error}")
        self._break(str(error) or type(error).__name__)

    def _break(self, why: str) -> None:
        """There is no connection: what was requested is to be requested elsewhere."""
        self._why, self.up = why, False
        if self._connection is not None:
            self.answered = max(self.answered, self._connection.received_at)
            self._connection.close()
            self._connection = None
        if self._done is not None and self._done["error"] is not None and self.workers:
            self.finished = True  # the job fails, and SageMaker ends all its hosts
        requests, self.requests = list(self.requests.values()), {}
        self._requester.requeue(requests)

    def _look_for_loss(self, now: float) -> None:
        host_timeout, connect_timeout = self._requester.host_timeout, self._requester.connect_timeout
        lost = ""
        if self.workers and now - self.answered > host_timeout:
            when = datetime.now(UTC).replace(microsecond=0).isoformat()
            lost = f"was lost at {when}: {self._why}; not answered for {host_timeout:g} s"
        elif not self.workers and now - self._began > connect_timeout:
            lost = f"never answered in {connect_timeout:g} s: {self._why}"
        if lost:
            self._requester.fail(DataHostLost(f"data host {self.address} {lost}"))

    def _fail(self, why: str) -> None:
        self._requester.fail(DataServiceError(f"data host {self.address}: {why}"))

    # -- Frames

    def _take(self, frame: Frame) -> None:
        requester, request = self._requester, self.requests.pop(frame.request, None) if frame.kind in RESULTS else None
        if request is None or len(self.requests) <= self.low:
            requester.due = True
        if frame.kind in RESULTS or frame.kind == Kind.PONG:
            self._measure(frame.busy)
        match frame.kind:
            case Kind.BATCH if request is not None:
                memory = requester.memory.empty(0) if frame.payload is None else frame.payload
                self.bytes += memory.numel()
                requester.receive(request, *read_batch(frame.text, memory), memory.numel())
            case Kind.END if request is not None:
                requester.end(request, frame.json())
            case Kind.WELCOME:
                self._welcome(frame.json(), frame.busy)
            case Kind.REFUSED | Kind.FAILED:
                self.finished |= frame.kind == Kind.REFUSED
                self._fail(frame.text.decode())
            case Kind.BYE:
                self.finished = True

    def _measure(self, busy: float) -> None:
        now = time.monotonic()
        self.capacity += (now - self._measured[0]) * self.workers
        self.busy += busy - self._measured[1]
        self._measured = now, busy

    def _welcome(self, message: Mapping[str, Any], busy: float) -> None:
        self.workers, self.up = int(message["workers"]), True
        self.share = math.ceil(self.workers * self._home_share)
        self._measured = time.monotonic(), busy
        if self._done is not None and self._connection is not None:
            self._connection.send(Kind.DONE, self._done)
        self._requester.agree(self.address, Plan(**message["plan"]))


class Local:
    """This process's own workers. A batch stays where it was made; its slot is free again when its last tensor is gone."""

    def __init__(self, pool: WorkerPool, requester: Requester) -> None:
        self.pool, self._requester, self.share = pool, requester, pool.count
        self.requests: set[Request] = set()

    def request(self, requests: Sequence[Request]) -> None:
        for one in requests:
            self.requests.add(one)
            self.pool.submit(Order(*one.order), partial(self._made, one))

    def _made(self, request: Request, result: Result, slot: Slot | None) -> None:
        self.requests.discard(request)
        self._requester.due = True
        if isinstance(result, Made) and slot is not None:
            memory = self._requester.memory.pinned(tensor_from_buffer(slot.view(result.bytes), slot))
            self._requester.receive(request, *read_batch(result.description.encode(), memory), result.bytes)
        elif isinstance(result, Failed):
            self._requester.fail(DataServiceError(f"this host: {result.text}"))
        else:
            self._requester.end(request, json.loads(result.description))


def read_batch(text: bytes, memory: Tensor) -> tuple[Any, Mapping[str, Any]]:
    """A batch, and what else is said of it; see ``Made``."""
    description, _, about = text.partition(b"\n")
    return decode(description, memory), json.loads(about) if about else NOTHING


Source = Host | Local


class Requester:
    """An event loop over the connections to data hosts and the pipes of local workers, on a thread of its own.

    ``changed`` locks what it shares with the thread that reads: ``trackers``, of the epochs whose batches are wanted now, of
    which the first precede, the ``plan``, and the ``error`` that ends reading.

    Args:
        hello: The HELLO message of this rank, without the ranks whose home the host is.
        plan: None takes it from the first host that answers.
        local: Makes a pool of workers of this host's own for an event loop.
        look_ahead: Bytes of batches that are ready or on their way, at most.
        prefetch: Batches that are kept ready, besides those that are being made or are on their way.
    """

    def __init__(
        self,
        servers: Sequence[str],
        hello: Mapping[str, Any],
        plan: Plan | None,
        local: Callable[[selectors.BaseSelector], WorkerPool] | None,
        *,
        look_ahead: int,
        prefetch: int,
        connect_timeout: float,
        host_timeout: float,
    ) -> None:
        self.changed = threading.Condition()
        self.trackers: list[BatchTracker] = []
        self.plan, self.error = plan, None  # type: Plan | None, DataServiceError | None
        self.batch_bytes = BYTES_BEYOND  # of the last batch that came
        self.memory, self.selector = ReceiveMemory(), selectors.DefaultSelector()
        self.due = True  # whether there may be something to request
        self.connect_timeout, self.host_timeout = connect_timeout, host_timeout
        self._look_ahead, self._prefetch = look_ahead, prefetch
        self._stopping, self._reason = False, None  # type: tuple[bool, str | None]
        self._looked = 0.0  # when
        self._low = 0.0  # batches that are ready or in flight, below which the thread is to look for more
        self._wakes, self._waker = socket.socketpair()
        for one in (self._wakes, self._waker):
            one.setblocking(False)
        self.selector.register(self._wakes, selectors.EVENT_READ, self._take_wake)
        self.local = None if local is None else Local(local(self.selector), self)
        rank = hello["rank"]
        self._ranks = ranks = hello["ranks"]
        homes = [home_shares(one, ranks, len(servers)) for one in range(ranks)]
        self.hosts: list[Host] = []
        for n in [*homes[rank], *(n for n in range(len(servers)) if n not in homes[rank])]:
            sent = {**hello, "homes": [one for one in range(ranks) if n in homes[one]]}
            self.hosts.append(Host(servers[n], sent, self, homes[rank].get(n, Fraction())))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def delivered(self) -> None:
        """A batch was delivered, so there may be room for more."""
        if sum(one.ready + one.in_flight for one in self.trackers) <= self._low:
            self.wake()

    def wake(self) -> None:
        """Have the thread look at once whether there is anything to request."""
        try:
            self._waker.send(b"x")
        except OSError:  # it is awake, or has ended
            return

    def stop(self, reason: str | None) -> None:
        """Send DONE to the data hosts, with the error if this rank failed, and end the thread and the local workers."""
        self._stopping, self._reason = True, reason
        self.wake()
        self._thread.join()

    # -- What hosts and local workers report

    def agree(self, address: str, plan: Plan) -> None:
        """A data host serves this plan."""
        with self.changed:
            self.plan = self.plan or plan
            self.changed.notify_all()
        if differences := self.plan.differences(plan):
            self.fail(DataServiceError(f"data host {address} must serve {', '.join(differences)}"))

    def receive(self, request: Request, batch: Any, about: Mapping[str, Any], size: int) -> None:
        with self.changed:
            self.batch_bytes = size
            request.tracker.receive(request, batch, about)
            if request.tracker in self.trackers[:1] and request.tracker.satisfied:
                self.changed.notify_all()

    def end(self, request: Request, about: Mapping[str, Any]) -> None:
        self.due = True
        with self.changed:
            request.tracker.end(request, about)
            self.changed.notify_all()

    def requeue(self, requests: Sequence[Request]) -> None:
        self.due = True
        with self.changed:
            for one in requests:
                one.tracker.requeue(one)

    def fail(self, error: DataServiceError) -> None:
        with self.changed:
            self.error = self.error or error
            self.changed.notify_all()

    # -- The thread

    def _take_wake(self, _: int) -> None:
        self._wakes.recv(4096)
        self.due = True

    def _run(self) -> None:
        try:
            if self.local is not None:
                self.local.pool.start()
            while not self._stopping:
                self._turn()
            for host in self.hosts:
                host.finish(self._reason)
            while not all(host.finished for host in self.hosts):
                self._turn()
        except Exception as error:
            self.fail(DataServiceError(f"the requester's event loop ended: {type(error).__name__}: {error}"))
        finally:
            for host in self.hosts:
                host.close()
            if self.local is not None:
                self.local.pool.stop()
            for one in (self.selector, self._wakes, self._waker):
                one.close()

    def _turn(self) -> None:
        for key, events in self.selector.select(TICK):
            key.data(events)
        now = time.monotonic()
        if not self.due and now - self._looked < TICK:  # a part of a batch has come
            return
        self.due, self._looked = False, now
        for host in self.hosts:
            host.tick(now)
        with self.changed:
            if self.plan is not None and not self._stopping and self.error is None:
                self._choose_hosts(now)
                self._request(self.plan, now)
        for host in self.hosts:
            host.flush()

    def _choose_hosts(self, now: float) -> None:
        """Use other hosts in place of home hosts that are away."""
        missing = sum(host.home and not host.up and now - host.answered > STAND_IN_AFTER for host in self.hosts)
        for host in self.hosts:
            if not host.home:
                host.wanted = missing > 0
                missing -= host.up

    def _request(self, plan: Plan, now: float) -> None:
        """Request as many batches as there is room for, and again those that are late."""
        trackers = self.trackers
        up = [host for host in self.hosts if host.up and host.wanted]
        size = max(1, self.batch_bytes)
        beyond = requests_beyond(size, len(self.hosts), self._ranks)
        held = sum(tracker.in_flight + tracker.ready for tracker in trackers)
        # One that is ready for each worker besides the one it is making: workers that began together end together.
        sources: list[Source] = [*up]
        if self.local is not None and not (self.hosts and plan.shards is not None):
            sources.append(self.local)
        limit = self._prefetch + sum(2 * source.share + beyond for source in sources)
        limit = min(limit, max(LEAST_AHEAD, self._look_ahead // size))
        limit = max([limit, *(tracker.needed for tracker in trackers[:1])])
        # This host's cores are the step's first: they help where data hosts do not keep up. A batch that has to wait for one
        # before it says nothing of that.
        if up and self.local is not None and self.local in sources:
            enough = self._prefetch + self.local.share  # what one of its workers is asked for comes so many steps later
            if sum(tracker.deliverable_count(enough) for tracker in trackers) >= enough:
                sources.remove(self.local)
        # None of a source's workers waits for an order, and small batches are requested together.
        for host in up:
            host.low = host.share + beyond - beyond // 2
        room = {source: source.share + beyond - len(source.requests) for source in sources}
        free = {source: left for source, left in room.items() if left >= (beyond // 2 if source in up else 1)}
        chosen: dict[Source, list[Request]] = {}
        # With a host less the limit is lower, and the ready batches may reach it: all wait for one that was requested in vain.
        while free and (held < limit or any(tracker.requeued for tracker in trackers)):
            source = max(free, key=free.__getitem__)
            request = self._pending(plan, source, up, now) if free[source] > 0 else None
            if request is None:
                del free[source]
                continue
            chosen.setdefault(source, []).append(request)
            free[source] -= 1
            held += 1
        for source, requests in chosen.items():
            source.request(requests)
        # Local workers beside hosts are needed as soon as few batches are ready, whatever is in flight. Else a delivery makes
        # room only where the limit was reached: what arrives makes room at its host, and wakes this thread by itself.
        reached = max(limit // 2, limit - max(1, beyond // 2)) if held >= limit else -1
        self._low = math.inf if self.local and up else reached
        self._request_late(plan, up, now)

    def _pending(self, plan: Plan, source: Source, up: Sequence[Host], now: float) -> Request | None:
        """The next batch that a source can make, of the next epoch only where none of this one is pending."""
        for tracker in self.trackers:

            def accepts(index: int, sources: dict[int, Any] = tracker.sources) -> bool:
                if plan.shards is None or not up:
                    return True
                # A shard stays at a host for an epoch, since another would begin it anew.
                return (sources[index] if sources.get(index) in up else up[index % len(up)]) is source

            request = tracker.request(accepts)
            if request is not None:
                request.sent, request.timeout = now, self.host_timeout
                tracker.sources[request.key[1]] = source
                return request
            if not tracker.exhausted:
                return None
        return None

    def _request_late(self, plan: Plan, up: Sequence[Host], now: float) -> None:
        """Request a batch that does not come from another source, even if its host answers; what comes first is taken."""
        for host in up:
            for late in list(host.requests.values()):
                if late.done or now - late.sent <= late.timeout:
                    continue
                others: list[Source] = [other for other in up if other is not host]
                if self.local is not None and not others and plan.shards is None:
                    others = [self.local]
                source = min(others or [host], key=lambda other: len(other.requests))
                late.tracker.sources[late.key[1]] = source
                late.copies, late.sent, late.timeout = late.copies + 1, now, late.timeout * 2
                source.request([late])
