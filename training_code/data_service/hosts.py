"""What a rank requests batches from: data hosts, over one connection each, and its own workers."""

from __future__ import annotations

import itertools
import math
import queue
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from typing import Any, Protocol

from .batches import decode, tensor_from_buffer
from .memory import ReceiveMemory, Slot
from .plan import Sequence
from .pool import WorkerPool
from .protocol import Connection, DataHostLost, DataServiceError, Frame, Kind
from .tracker import BatchTracker, Key
from .worker import Failed, Made, Result

HEARTBEAT = 2.0  # seconds between two PINGs
# Seconds, at most a third of host_timeout, in which something has to come after a PING; else the connection is broken.
ANSWER_TIMEOUT = 10.0
DONE_TIMEOUT = 10.0  # seconds in which a disconnected host may come back and receive DONE
RETRY = 0.2  # seconds between two attempts to connect


@dataclass(eq=False)
class Request:
    """One request for a batch. ``others`` are all that are in flight for the same batch, this one included."""

    tracker: BatchTracker
    key: Key
    sequence: Sequence
    sent: float
    timeout: float  # seconds until the batch is requested from another source as well
    others: set[Request] = field(default_factory=set)


class Listener(Protocol):
    """The reader, to which what comes is reported."""

    def welcome(self, host: Host, message: Mapping[str, Any]) -> None: ...
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
        listener: Listener,
        memory: ReceiveMemory,
        selector: selectors.BaseSelector,
        wake: Callable[[], None],
        *,
        home_share: Fraction,
        connect_timeout: float,
        host_timeout: float,
    ) -> None:
        self.address, self.home, self.wanted = address, home_share > 0, home_share > 0
        self.requests: dict[int, Request] = {}
        self.workers, self.busy_seconds, self.busy_measured, self.bytes, self.up = 0, 0.0, 0.0, 0, False
        self._hello, self._listener, self._memory = hello, listener, memory
        # In place of another host it is to serve as one of those whose home it is.
        self._share = home_share or Fraction(1, max(1, len(hello["homes"])))
        self._selector, self._wake = selector, wake
        self._connect_timeout, self._host_timeout = connect_timeout, host_timeout
        self._answer_timeout = min(ANSWER_TIMEOUT, host_timeout / 3)
        self._connection: Connection | None = None
        self._connecting = self._writing = self._refused = self._ever = False
        self._connected: queue.SimpleQueue[socket.socket | OSError] = queue.SimpleQueue()
        self._serials = itertools.count()
        self._began: float | None = None  # when it was first looked for
        self.answered = time.monotonic()
        self._retry_at = self._pinged = 0.0
        self._unanswered: float | None = None  # when the first PING was sent after which nothing has come
        self._why = "not tried"
        self._done: dict[str, Any] | None = None
        self._finish_until = 0.0
        self.finished = False

    @property
    def outstanding(self) -> int:
        return len(self.requests)

    @property
    def share(self) -> int:
        """Workers that this rank may keep busy; see ``plan.home_share``."""
        return math.ceil(self.workers * self._share)

    def request(self, requests: list[Request]) -> None:
        assert self._connection is not None
        orders = []
        for one in requests:
            serial = next(self._serials) % 2**32
            self.requests[serial] = one
            orders.append([serial, one.tracker.epoch, one.sequence.shard, one.sequence.number(one.key[1])])
        self._connection.send(Kind.REQUEST, orders)

    def exchange(self, events: int) -> None:
        """Receive what has arrived, as the event loop reports."""
        connection = self._connection
        if connection is None:
            return
        try:
            if events & selectors.EVENT_READ:
                before = connection.received
                for frame in connection.receive():
                    self._take(frame)
                if connection.received > before:
                    self.bytes += connection.received - before
                    self.answered, self._unanswered = time.monotonic(), None
        except OSError as error:
            self._break(str(error) or type(error).__name__)
        except Exception as error:  # what it sends is none of this protocol, or of no batch
            self._listener.fail(DataServiceError(f"data host {self.address}: {type(error).__name__}: {error}"))
            self._break(str(error))

    def flush(self) -> None:
        """Send what was noted."""
        if self._connection is None:
            return
        try:
            self._connection.flush()
        except OSError as error:
            self._break(str(error))
            return
        if self._writing != self._connection.sending:
            self._writing = self._connection.sending
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._writing else 0)
            self._selector.modify(self._connection, events, self)

    def tick(self, now: float) -> None:
        """Connect, send heartbeats, and see what is late."""
        if self._done is not None and now > self._finish_until:
            self.finished = True
        self._began = self._began or now
        if self.finished or self._refused:
            return
        if self._connection is not None:
            self._tick_connection(now)
        elif self._connecting:
            self._take_connected(now)
        elif self.wanted and now >= self._retry_at:
            self._connecting = True
            threading.Thread(target=self._connect, daemon=True).start()
        if not self.up:
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
        elif self.up and self._connection is not None:
            self._connection.send(Kind.DONE, self._done)

    def close(self) -> None:
        self.finished = True
        self._break("closed")

    # -- The connection

    def _connect(self) -> None:
        name, _, port = self.address.rpartition(":")
        try:
            self._connected.put(socket.create_connection((name, int(port)), self._answer_timeout))
        except OSError as error:
            self._connected.put(error)
        self._wake()

    def _take_connected(self, now: float) -> None:
        try:
            connected = self._connected.get_nowait()
        except queue.Empty:
            return
        self._connecting = False
        if isinstance(connected, OSError):
            self._break(str(connected))
            return
        self._connection = Connection(connected, self._memory.empty)
        self._writing, self._unanswered, self._pinged = False, now, now
        self._selector.register(self._connection, selectors.EVENT_READ, self)
        self._connection.send(Kind.HELLO, self._hello)

    def _tick_connection(self, now: float) -> None:
        assert self._connection is not None
        if self._unanswered is not None and now - self._unanswered > self._answer_timeout:
            self._break(f"nothing came for {self._answer_timeout:g} s")
        elif not self.wanted and not self.requests:
            self._break("not needed")
        elif self.up and now - self._pinged > HEARTBEAT:
            self._pinged = now
            self._unanswered = self._unanswered or now
            self._connection.send(Kind.PING)

    def _break(self, why: str) -> None:
        """The connection has ended, or none could be had: what was requested is to be requested elsewhere."""
        self._why, self.up = why, False
        self._retry_at = time.monotonic() + RETRY
        if self._connection is not None:
            self._selector.unregister(self._connection)
            self._connection.close()
            self._connection = None
        if self._done is not None and self._done["error"] is not None:
            self.finished = True  # the job fails, and SageMaker ends all its hosts
        requests, self.requests = list(self.requests.values()), {}
        self._listener.requeue(requests)

    def _look_for_loss(self, now: float) -> None:
        if not self.home or self._done is not None:
            return
        if self._ever and now - self.answered > self._host_timeout:
            when = datetime.now(UTC).replace(microsecond=0).isoformat()
            self._listener.fail(
                DataHostLost(
                    f"data host {self.address} was lost at {when}: {self._why}; not answered for {self._host_timeout:g} s"
                )
            )
        elif not self._ever and now - (self._began or now) > self._connect_timeout:
            self._listener.fail(
                DataHostLost(f"data host {self.address} never answered in {self._connect_timeout:g} s: {self._why}")
            )

    # -- Frames

    def _take(self, frame: Frame) -> None:
        if frame.kind == Kind.WELCOME:
            message = frame.json()
            self.workers, self.up, self._ever = int(message["workers"]), True, True
            self.busy_seconds, self.busy_measured = float(message["busy"]), time.monotonic()
            if self._done is not None and self._connection is not None:
                self._connection.send(Kind.DONE, self._done)
            self._listener.welcome(self, message)
        elif frame.kind == Kind.REFUSED:
            self._refused = self.finished = True
            self._listener.fail(DataServiceError(f"data host {self.address}: {frame.text.decode()}"))
        elif frame.kind == Kind.PONG:
            self.busy_seconds, self.busy_measured = float(frame.json()["busy"]), time.monotonic()
        elif frame.kind == Kind.BYE:
            self.finished = True
        else:
            self._take_result(frame)

    def _take_result(self, frame: Frame) -> None:
        request = self.requests.pop(frame.request, None)
        if request is None:
            return
        if frame.kind == Kind.BATCH:
            memory = self._memory.empty(0) if frame.payload is None else frame.payload
            self._listener.receive(request, decode(frame.text, memory), memory.numel())
        elif frame.kind == Kind.END:
            self._listener.end(request)
        elif frame.kind == Kind.FAILED:
            self._listener.fail(DataServiceError(f"data host {self.address}: {frame.text.decode()}"))


class Local:
    """This process's own workers. A batch stays where it was made; its slot is free again when its last tensor is gone."""

    def __init__(self, pool: WorkerPool, listener: Listener, memory: ReceiveMemory) -> None:
        self.pool, self._listener, self._memory = pool, listener, memory
        self.outstanding, self.workers, self.share = 0, pool.count, pool.count

    def request(self, requests: list[Request]) -> None:
        for one in requests:
            self.outstanding += 1
            number = one.sequence.number(one.key[1])
            self.pool.submit(one.tracker.epoch, one.sequence.shard, number, partial(self._made, one))

    def _made(self, request: Request, result: Result, slot: Slot | None) -> None:
        self.outstanding -= 1
        if isinstance(result, Made) and slot is not None:
            memory = self._memory.pinned(tensor_from_buffer(slot.view(result.bytes), slot))
            self._listener.receive(request, decode(result.description, memory), result.bytes)
        elif isinstance(result, Failed):
            self._listener.fail(DataServiceError(f"this host: {result.text}"))
        else:
            self._listener.end(request)
