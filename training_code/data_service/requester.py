"""The thread of a training process that has all its connections: requests batches from data hosts and from its own workers."""

from __future__ import annotations

import itertools
import math
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from typing import Any, Protocol

from .batches import ReceiveMemory, decode, tensor_from_buffer
from .plan import BatchTracker, Key, Plan, home_hosts, home_share
from .pool import Slot, WorkerPool
from .protocol import Connection, DataHostLost, DataServiceError, Frame, Kind
from .worker import Failed, Made, Result

HEARTBEAT = 2.0  # seconds between two PINGs
# Seconds, at most a third of host_timeout, in which something has to come after a PING; else the connection is broken.
ANSWER_TIMEOUT = 10.0
DONE_TIMEOUT = 10.0  # seconds in which a disconnected host may come back and receive DONE
RETRY = 0.2  # seconds between two attempts to connect
TICK = 0.25  # seconds, at most, between two looks at what is late
STAND_IN_AFTER = 5.0  # seconds until another host is used in place of a home host that is not up
# Batches that are requested beyond those that workers are making: as many as these bytes hold, within these bounds.
BYTES_BEYOND, LEAST_BEYOND, MOST_BEYOND = 32 * 2**20, 2, 32
LEAST_AHEAD = 2  # batches, however large


@dataclass(eq=False)
class Request:
    """One request for a batch, of which there may be others in flight."""

    tracker: BatchTracker
    key: Key
    sent: float
    timeout: float  # seconds until the batch is requested from another source as well

    def order(self) -> tuple[int, int | None, int]:
        """Epoch, shard and number, as a worker takes them."""
        sequence = self.tracker.sequence(self.key)
        return self.tracker.epoch, sequence.shard, sequence.number(self.key[1])


class Reader(Protocol):
    """Whose batches are requested, and to which what comes is reported; it is locked by its ``changed``."""

    changed: threading.Condition
    plan: Plan | None
    batch_bytes: int  # of the last batch that came

    def trackers(self) -> list[BatchTracker]:
        """Of this epoch and the next, as far as they are wanted."""

    def welcome(self, address: str, plan: Plan) -> None: ...
    def receive(self, request: Request, batch: Any, size: int) -> None: ...
    def end(self, request: Request) -> None: ...
    def requeue(self, requests: list[Request]) -> None: ...
    def fail(self, error: DataServiceError) -> None: ...


class Host:
    """A data host. It is ``up`` from its WELCOME until its connection breaks; ``wanted``: whether to connect at all."""

    def __init__(
        self,
        address: str,
        hello: Mapping[str, Any],
        requester: Requester,
        *,
        home_share: Fraction,
        connect_timeout: float,
        host_timeout: float,
    ) -> None:
        self.address, self.home, self.wanted = address, home_share > 0, home_share > 0
        self.requests: dict[int, Request] = {}
        self.workers, self.busy_seconds, self.busy_measured, self.bytes = 0, 0.0, 0.0, 0
        self.share = 0  # workers that this rank may keep busy; see ``plan.home_share``
        self.up = self.finished = False
        self._hello, self._requester, self._reader = hello, requester, requester.reader
        self._connect_timeout, self._host_timeout = connect_timeout, host_timeout
        self._answer_timeout = min(ANSWER_TIMEOUT, host_timeout / 3)
        # In place of another host it is to serve as one of those whose home it is.
        self._share = home_share or Fraction(1, max(1, len(hello["homes"])))
        self._connection: Connection | None = None
        self._connecting = self._ever = False
        self._connected: socket.socket | OSError | None = None
        self._serials = itertools.count()
        self._began = 0.0  # when it was first looked for
        self.answered = time.monotonic()
        self._retry_at = self._pinged = self._finish_until = 0.0
        self._why = "not tried"
        self._done: dict[str, Any] | None = None

    @property
    def outstanding(self) -> int:
        return len(self.requests)

    def request(self, requests: list[Request]) -> None:
        orders = []
        for one in requests:
            serial = next(self._serials) % 2**32
            self.requests[serial] = one
            orders.append([serial, *one.order()])
        self._send(Kind.REQUEST, orders)

    def flush(self) -> None:
        """Send what was noted."""
        if self._connection is not None:
            self._connection.flush()

    def tick(self, now: float) -> None:
        """Connect, send heartbeats, and see what is late."""
        self._began = self._began or now
        if self._done is not None and now > self._finish_until:
            self.finished = True
        if self.finished:
            return
        if self._connection is not None:
            self._tick_connection(self._connection, now)
        elif self._connected is not None:
            self._take_connected(self._connected, now)
        elif self.wanted and not self._connecting and now >= self._retry_at:
            self._connecting = True
            threading.Thread(target=self._connect, daemon=True).start()
        if self.home and not self.up and self._done is None:
            self._look_for_loss(now)

    def finish(self, error: str | None) -> None:
        """Send DONE, with the error if this rank failed; ``finished`` is set once it is confirmed, or cannot be delivered."""
        self._done, now = {"error": error}, time.monotonic()
        if error is not None:
            self.wanted, self._finish_until = True, now + self._answer_timeout
        elif self._ever:
            self._finish_until = now + DONE_TIMEOUT
        else:  # it may still come, and would then wait for a trainer; the job ends only when it does
            self._finish_until = (self._began or now) + self._connect_timeout
        if not self.wanted:
            self.finished = True
        elif self.up:
            self._send(Kind.DONE, self._done)

    def close(self) -> None:
        self.finished = True
        self._break("closed")

    # -- The connection

    def _send(self, kind: Kind, about: Any = None) -> None:
        assert self._connection is not None
        self._connection.send(kind, about)

    def _connect(self) -> None:
        name, _, port = self.address.rpartition(":")
        try:
            self._connected = socket.create_connection((name, int(port)), self._answer_timeout)
        except OSError as error:
            self._connected = error
        self._requester.wake()

    def _take_connected(self, connected: socket.socket | OSError, now: float) -> None:
        self._connecting, self._connected = False, None
        if isinstance(connected, OSError):
            self._break(str(connected))
            return
        self._why = "it accepts connections, but has sent no HELLO"
        allocate = self._requester.memory.empty
        self._connection = Connection(connected, self._requester.selector, self._take, self._lose, allocate)
        self._pinged = now
        self._send(Kind.HELLO, self._hello)

    def _tick_connection(self, connection: Connection, now: float) -> None:
        self.answered = max(self.answered, connection.received_at)
        answered = connection.received_at >= self._pinged
        if not answered and now - self._pinged > self._answer_timeout:
            self._break(f"nothing came for {self._answer_timeout:g} s")
        elif not self.wanted and not self.requests:
            self._break("not needed")
        elif self.up and answered and now - self._pinged > HEARTBEAT:
            self._pinged = now
            connection.send(Kind.PING)

    def _lose(self, error: Exception) -> None:
        """The connection has ended, or what came is none of this protocol, or of no batch."""
        if not isinstance(error, OSError):
            self._reader.fail(DataServiceError(f"data host {self.address}: {type(error).__name__}: {error}"))
        self._break(str(error) or type(error).__name__)

    def _break(self, why: str) -> None:
        """There is no connection: what was requested is to be requested elsewhere."""
        self._why, self.up = why, False
        self._retry_at = time.monotonic() + RETRY
        if self._connection is not None:
            self.answered = max(self.answered, self._connection.received_at)
            self._connection.close()
            self._connection = None
        if self._done is not None and self._done["error"] is not None:
            self.finished = True  # the job fails, and SageMaker ends all its hosts
        requests, self.requests = list(self.requests.values()), {}
        self._reader.requeue(requests)
        self._requester.due = True

    def _look_for_loss(self, now: float) -> None:
        if self._ever and now - self.answered > self._host_timeout:
            when = datetime.now(UTC).replace(microsecond=0).isoformat()
            lost = f"was lost at {when}: {self._why}; not answered for {self._host_timeout:g} s"
        elif not self._ever and now - self._began > self._connect_timeout:
            lost = f"never answered in {self._connect_timeout:g} s: {self._why}"
        else:
            return
        self._reader.fail(DataHostLost(f"data host {self.address} {lost}"))

    # -- Frames

    def _take(self, frame: Frame) -> None:
        if frame.kind == Kind.WELCOME:
            message = frame.json()
            self.workers, self.up, self._ever = int(message["workers"]), True, True
            self.share = math.ceil(self.workers * self._share)
            self.busy_seconds, self.busy_measured = float(message["busy"]), time.monotonic()
            if self._done is not None:
                self._send(Kind.DONE, self._done)
            self._reader.welcome(self.address, Plan(**message["plan"]))
        elif frame.kind == Kind.REFUSED:
            self.finished = True
            self._reader.fail(DataServiceError(f"data host {self.address}: {frame.text.decode()}"))
        elif frame.kind == Kind.PONG:
            self.busy_seconds, self.busy_measured = float(frame.json()["busy"]), time.monotonic()
        elif frame.kind == Kind.BYE:
            self.finished = True
        elif (request := self.requests.pop(frame.request, None)) is not None:
            self._take_result(frame, request)
        self._requester.due = True

    def _take_result(self, frame: Frame, request: Request) -> None:
        if frame.kind == Kind.BATCH:
            memory = self._requester.memory.empty(0) if frame.payload is None else frame.payload
            self.bytes += memory.numel()
            self._reader.receive(request, decode(frame.text, memory), memory.numel())
        elif frame.kind == Kind.END:
            self._reader.end(request)
        elif frame.kind == Kind.FAILED:
            self._reader.fail(DataServiceError(f"data host {self.address}: {frame.text.decode()}"))


class Local:
    """This process's own workers. A batch stays where it was made; its slot is free again when its last tensor is gone."""

    def __init__(self, pool: WorkerPool, requester: Requester) -> None:
        self.pool, self._requester, self._reader = pool, requester, requester.reader
        self.outstanding, self.workers, self.share = 0, pool.count, pool.count

    def request(self, requests: list[Request]) -> None:
        for one in requests:
            self.outstanding += 1
            self.pool.submit(*one.order(), partial(self._made, one))

    def _made(self, request: Request, result: Result, slot: Slot | None) -> None:
        self.outstanding -= 1
        self._requester.due = True
        if isinstance(result, Made) and slot is not None:
            memory = self._requester.memory.pinned(tensor_from_buffer(slot.view(result.bytes), slot))
            self._reader.receive(request, decode(result.description, memory), result.bytes)
        elif isinstance(result, Failed):
            self._reader.fail(DataServiceError(f"this host: {result.text}"))
        else:
            self._reader.end(request)


class Requester:
    """An event loop over the connections to data hosts and the pipes of local workers, on a thread of its own.

    Args:
        hello: The HELLO message of this rank, without the ranks whose home the host is.
        local: Makes a pool of workers of this host's own for an event loop.
        look_ahead: Bytes of batches that are ready or on their way, at most.
        prefetch: Batches that are kept ready, besides those that are being made or are on their way.
    """

    def __init__(
        self,
        servers: Sequence[str],
        hello: Mapping[str, Any],
        reader: Reader,
        local: Callable[[selectors.BaseSelector], WorkerPool] | None,
        *,
        look_ahead: int,
        prefetch: int,
        connect_timeout: float,
        host_timeout: float,
    ) -> None:
        self.reader, self.memory, self.selector = reader, ReceiveMemory(), selectors.DefaultSelector()
        self.due = True  # whether there may be something to request
        self._look_ahead, self._prefetch, self._timeout = look_ahead, prefetch, host_timeout
        self._stopping, self._reason = False, None  # type: tuple[bool, str | None]
        self._looked = 0.0  # when
        self._low = 0.0  # batches that are ready or in flight, below which the thread is to look for more
        self._shard_hosts: dict[tuple[int, int], Host | Local] = {}
        self._wakes, self._waker = socket.socketpair()
        for one in (self._wakes, self._waker):
            one.setblocking(False)
        self.selector.register(self._wakes, selectors.EVENT_READ, self._take_wake)
        self.local = None if local is None else Local(local(self.selector), self)
        rank, ranks = hello["rank"], hello["ranks"]
        homes = [home_hosts(one, ranks, len(servers)) for one in range(ranks)]
        ring = homes[rank] + [n for n in range(len(servers)) if n not in homes[rank]]
        self.hosts = [
            Host(
                servers[n],
                {**hello, "homes": [one for one in range(ranks) if n in homes[one]]},
                self,
                home_share=home_share(n, rank, ranks, len(servers)),
                connect_timeout=connect_timeout,
                host_timeout=host_timeout,
            )
            for n in ring
        ]
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def delivered(self, held: int) -> None:
        """So many batches are ready or in flight, now that one was delivered."""
        if held <= self._low:
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
            self.reader.fail(DataServiceError(f"the requester's event loop ended: {type(error).__name__}: {error}"))
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
        with self.reader.changed:
            if self.reader.plan is not None and not self._stopping:
                self._choose_hosts(now)
                self._request(self.reader.plan, now)
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
        trackers = self.reader.trackers()
        up = [host for host in self.hosts if host.up and host.wanted]
        beyond = max(LEAST_BEYOND, min(MOST_BEYOND, BYTES_BEYOND // max(1, self.reader.batch_bytes)))
        bound = max(LEAST_AHEAD, self._look_ahead // max(1, self.reader.batch_bytes))
        held = sum(tracker.in_flight + tracker.ready for tracker in trackers)
        # One that is ready for each worker besides the one it is making: workers that began together end together.
        sources: list[Host | Local] = [*up]
        if self.local is not None and not (self.hosts and plan.shards is not None):
            sources.append(self.local)
        limit = min(bound, self._prefetch + sum(2 * source.share + beyond for source in sources))
        # This host's cores are the step's first: they help where data hosts do not keep up. A batch that has to wait for one
        # before it says nothing of that.
        ahead = sum(tracker.deliverable_count(self._prefetch) for tracker in trackers)
        if up and self.local in sources and ahead >= self._prefetch:
            sources.remove(self.local)
        # None of a source's workers waits for an order, and small batches are requested together.
        room = {source: source.share + beyond - source.outstanding for source in sources}
        free = {source: left for source, left in room.items() if left >= (beyond // 2 if source in up else 1)}
        chosen: dict[Host | Local, list[Request]] = {}
        # With a host less the limit is lower, and the ready batches may reach it: all wait for one that was requested in vain.
        while free and (held < limit or any(tracker.requeued for tracker in trackers)):
            source = max(free, key=free.__getitem__)
            request = self._pending(plan, trackers, source, up, now) if free[source] > 0 else None
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
        self._request_late(up, now)

    def _pending(
        self, plan: Plan, trackers: Sequence[BatchTracker], source: Host | Local, up: Sequence[Host], now: float
    ) -> Request | None:
        """The next batch that a source can make. A shard stays at a host for an epoch, since another would begin it anew."""
        for tracker in trackers:

            def accepts(index: int, epoch: int = tracker.epoch) -> bool:
                if plan.shards is None or not up:
                    return True
                home = self._shard_hosts.get((epoch, index))
                return (home if home in up else up[index % len(up)]) is source

            key = tracker.request(accepts)
            if key is not None:
                if plan.shards is not None:
                    self._shard_hosts[tracker.epoch, key[0]] = source
                return Request(tracker, key, now, self._timeout)
        return None

    def _request_late(self, up: Sequence[Host], now: float) -> None:
        """Request a batch that does not come from another source, even if its host answers; what comes first is taken."""
        for host in up:
            for late in [one for one in host.requests.values() if now - one.sent > one.timeout]:
                late.timeout *= 2
                others: list[Host | Local] = [other for other in up if other is not host]
                sharded = late.order()[1] is not None
                if self.local is not None and not (others or sharded):
                    others = [self.local]
                source = min(others or [host], key=lambda other: other.outstanding)
                if late.tracker.request_again(late.key):
                    if sharded:
                        self._shard_hosts[late.tracker.epoch, late.key[0]] = source
                    source.request([Request(late.tracker, late.key, now, late.timeout)])
