"""A data host: a process that serves batches, and what keeps it running until every training rank is done or has failed.

The serving process is one event loop over the host's port, its workers' pipes and its parent's. It keeps no account of an epoch:
any batch can be requested from any data host, at any time. A peer is served only if it names the server's own job. That guards
against crossed wires; it is no secret that keeps an attacker out.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import multiprocessing
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from torch.utils.data import Dataset

from .plan import Plan
from .pool import NICE, Payload, Slot, WorkerPool, describe_exit, start_process
from .protocol import VERSION, Connection, DataServiceError, Frame, Kind, ProtocolError, TrainerFailed
from .worker import Failed, Made, Order, Result

# So many deaths of the serving process in so many seconds, without a batch, end the data host.
MAX_DEATHS, WITHIN = 5, 60.0
BACKLOG = 1024  # connections that wait for a serving process
STOP_TIMEOUT = 10.0  # seconds until a serving process that does not end is killed
# Seconds in which an error of the dataset reaches the ranks, which then report that they have failed.
DATASET_ERROR_WAIT = 10.0
HELLO_TIMEOUT = 10.0  # seconds until a peer without HELLO is disconnected
PEER_TIMEOUT = 60.0  # seconds until one is from which nothing comes, not even a PING
MAX_UNIDENTIFIED = 128  # peers without HELLO; of more the oldest is disconnected
MAX_REQUESTS = 4096  # that a peer may have in flight


class BatchServer:
    """Serves batches of a dataset to all training ranks of a job, from ``workers`` processes.

    It listens itself, and its serving process inherits the socket. So peers that connect while there is none, since one has
    died or has yet to start, wait for the next.

    Args:
        dataset: Map-style or iterable; it is pickled to the workers, as are ``collate_fn`` and the others.
        job: The TRAINING_JOB_ARN that peers have to name.
        port: 0 takes a free one, which ``port`` then names.
        heartbeat_timeout: Seconds without a heartbeat of a rank, at the start or later, after which ``wait`` raises.
        shards: Of an iterable dataset, the same on all data hosts and at least one for each rank; None is one for each worker.
        options: ``batch_size``, and if they are wanted ``seed``, ``shuffle``, ``drop_last`` and ``even``; see ``read_batches``.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        *,
        job: str,
        workers: int = 2,
        port: int = 0,
        host: str = "0.0.0.0",
        heartbeat_timeout: float = 300.0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        sampler: Any = None,
        worker_init_fn: Callable[[int], object] | None = None,
        shards: int | None = None,
        **options: Any,
    ) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, like 4, got {workers}")
        plan = Plan.of(dataset, shards=shards or workers, sampler=sampler, **options)
        payload = Payload.of(dataset, collate_fn, sampler, worker_init_fn)
        self._timeout = heartbeat_timeout
        self._started = time.monotonic()
        # When the last heartbeat came of each rank whose home this host is, inf once it is done; of rank 0 until one says which.
        self._heard = {0: self._started}
        self._error: DataServiceError | None = None
        self._inform_until = 0.0  # until when ranks receive an error of the dataset, before this host ends with it
        self._deaths: deque[float] = deque(maxlen=MAX_DEATHS)
        self._stopping = False
        self._changed = threading.Condition()
        try:
            self._listener = socket.create_server((host, port), backlog=BACKLOG)
        except OSError as error:
            raise DataServiceError(f"the data host cannot serve: {error}") from error
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._arguments = (payload, plan, workers, job, self._listener)
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
                now = time.monotonic()
                rank, heard = min(self._heard.items(), key=lambda item: item[1])
                left = heard + self._timeout - now
                if self._error is not None:
                    left = 0.0 if math.inf in self._heard.values() else self._inform_until - now
                elif heard == math.inf:
                    return
                elif left <= 0:
                    self._error = TrainerFailed(f"no heartbeat of training rank {rank} for {self._timeout:g} s")
                if self._error is not None and left <= 0:
                    raise self._error
                self._changed.wait(left)

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
        modules = self._arguments[0].modules
        self._process = start_process(modules, _serve, theirs, *self._arguments, daemon=False)
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
                    often = f"{len(self._deaths)} times without a batch"
                    self._fail(DataServiceError(f"{ended}, {often}, and is not restarted"))
                    return
                print(f"{ended}; another is started", flush=True)
                self._start()

    def _take(self, what: str, about: Any = None, ranks: Sequence[int] = (), error: str | None = None) -> None:
        """A report: the first batch was "served", the dataset has "failed", or rank ``about`` of these is "alive" or "done"."""
        with self._changed:
            if what == "served":
                self._deaths.clear()
            elif what == "failed":
                self._inform_until = self._inform_until or time.monotonic() + DATASET_ERROR_WAIT
                self._fail(DataServiceError(about))
            else:
                if ranks:
                    self._heard = {rank: self._heard.get(rank, self._started) for rank in ranks}
                if self._heard.get(about, math.inf) != math.inf:
                    self._heard[about] = math.inf if what == "done" else time.monotonic()
                if error is not None:
                    self._fail(TrainerFailed(f"training rank {about} failed: {error}"))
                self._changed.notify_all()

    def _fail(self, error: DataServiceError) -> None:
        self._error = self._error or error
        self._changed.notify_all()


def _serve(parent: Any, payload: Payload, plan: Plan, workers: int, job: str, listener: socket.socket) -> None:
    """The serving process: serve until the parent sends "stop", or is gone."""
    pool: WorkerPool | None = None
    try:
        selector = selectors.DefaultSelector()
        pool = WorkerPool(payload, plan, workers, selector, forks=True, nice=NICE)
        server = _Server(plan, job, selector, listener, pool, parent)
        pool.start()
        server.run()
    except (EOFError, BrokenPipeError):  # the parent is gone
        pass
    except Exception as error:
        with contextlib.suppress(OSError):
            parent.send(("failed", f"the data host cannot serve: {type(error).__name__}: {error}"))
    finally:
        if pool is not None:
            pool.stop()
        os._exit(0)


class _Peer:
    """One connection; ``rank`` is None until HELLO."""

    def __init__(self, sock: socket.socket, server: _Server) -> None:
        self.since = time.monotonic()
        self.rank: int | None = None
        self.reader = self.host = ""
        self.requests = 0
        self.connection = Connection(sock, server.selector, partial(server.take, self), partial(server.lose, self))


class _Server:
    def __init__(
        self,
        plan: Plan,
        job: str,
        selector: selectors.BaseSelector,
        listener: socket.socket,
        pool: WorkerPool,
        parent: Any,
    ) -> None:
        self.selector = selector
        self._plan, self._job, self._listener, self._pool, self._parent = plan, job, listener, pool, parent
        self._peers: set[_Peer] = set()
        self._unsent: set[_Peer] = set()  # to whom batches are to be sent, those of a worker's message together
        self._ranks: int | None = None
        self._homes: list[int] = []
        self._served = self._stopping = False
        selector.register(listener, selectors.EVENT_READ, self._accept)
        selector.register(parent, selectors.EVENT_READ, self._stop)

    def run(self) -> None:
        checked = time.monotonic()
        while not self._stopping:
            for key, events in self.selector.select(1.0):
                key.data(events)
            while self._unsent:
                self._unsent.pop().connection.flush()
            if (now := time.monotonic()) - checked > 1.0:
                checked = now
                for peer in list(self._peers):
                    last, most = peer.connection.received_at, PEER_TIMEOUT
                    if peer.rank is None:
                        last, most = peer.since, HELLO_TIMEOUT
                    if now - last > most:
                        self.lose(peer)

    def lose(self, peer: _Peer, error: Exception | None = None) -> None:
        """Disconnect a peer; with an error it has lost its connection: whatever it sends closes its own only."""
        self._peers.discard(peer)
        peer.connection.close()
        if error is not None and not isinstance(error, OSError):
            who = "a peer without HELLO" if peer.rank is None else f"rank {peer.rank} on {peer.host}"
            print(f"disconnected {who}: {type(error).__name__}: {error}", flush=True)

    def take(self, peer: _Peer, frame: Frame) -> None:
        """A peer's frame."""
        if frame.kind == Kind.HELLO:
            self._hello(peer, frame.json())
        elif peer.rank is None:
            raise ProtocolError(f"the first frame must be HELLO, got {Kind(frame.kind).name}")
        elif frame.kind == Kind.REQUEST:
            for request, *order in frame.json():
                self._request(peer, request, Order(*order))
        elif frame.kind == Kind.PING:
            self._parent.send(("alive", peer.rank, self._homes))
            peer.connection.send(Kind.PONG, busy=self._pool.busy_seconds)
        elif frame.kind == Kind.DONE:
            self._parent.send(("done", peer.rank, self._homes, frame.json()["error"]))
            peer.connection.send(Kind.BYE, last=True)
        else:
            raise ProtocolError(f"a data host takes no {Kind(frame.kind).name}")

    def _stop(self, _: int) -> None:
        self._parent.recv()
        self._stopping = True

    def _accept(self, _: int) -> None:
        with contextlib.suppress(OSError):  # it is gone, or there are no more files
            self._peers.add(_Peer(self._listener.accept()[0], self))
            unidentified = [one for one in self._peers if one.rank is None]
            if len(unidentified) > MAX_UNIDENTIFIED:
                self.lose(min(unidentified, key=lambda one: one.since))

    def _hello(self, peer: _Peer, message: dict[str, Any]) -> None:
        refusal = self._refusal(message)
        if refusal is not None:
            peer.connection.send(Kind.REFUSED, refusal, last=True)
            return
        peer.rank, peer.reader, peer.host = int(message["rank"]), str(message["reader"]), str(message["host"])
        self._ranks, self._homes = int(message["ranks"]), [int(rank) for rank in message["homes"]]
        for one in list(self._peers):  # the same reader's, of which no end was seen
            if one is not peer and one.rank == peer.rank:
                self.lose(one)
        self._parent.send(("alive", peer.rank, self._homes))
        welcome = {"plan": asdict(self._plan), "workers": self._pool.count}
        peer.connection.send(Kind.WELCOME, welcome, busy=self._pool.busy_seconds)

    def _refusal(self, message: dict[str, Any]) -> str | None:
        """Why a peer is not served, if it is not."""
        if message["job"] != self._job:
            return "this data host serves another training job"
        if message["version"] != VERSION:
            return f"this data host has version {VERSION} of the protocol, got {message['version']}"
        rank, ranks, host = int(message["rank"]), int(message["ranks"]), message["host"]
        if message["plan"] is not None and (differences := self._plan.differences(Plan(**message["plan"]))):
            return f"it serves {', '.join(differences)} of rank {rank} on {host}"
        if self._ranks not in (None, ranks) or not 0 <= rank < ranks:
            return f"it serves {self._ranks} ranks, got rank {rank} of {ranks} on {host}"
        for other in self._peers:
            if other.rank == rank and other.reader != message["reader"]:
                processes = f"a process on {other.host}, and another on {host}"
                return f"rank {rank} is {processes}: only one group of hosts can train"
        return None

    def _request(self, peer: _Peer, request: int, order: Order) -> None:
        plan, known = self._plan, order.epoch >= 0 and order.first >= 0 and 1 <= order.size <= self._plan.batch_size
        if plan.length is None:
            known = known and order.shard is not None and 0 <= order.shard < (plan.shards or 0)
        else:
            known = known and order.shard is None and order.first < plan.length
        if not (known and 0 <= request < 2**32):
            raise ProtocolError(f"there is no such batch: {order}")
        if peer.requests >= MAX_REQUESTS:
            raise ProtocolError(f"at most {MAX_REQUESTS} batches can be requested at once")
        peer.requests += 1
        self._pool.submit(order, partial(self._made, peer, request))

    def _made(self, peer: _Peer, request: int, result: Result, slot: Slot | None) -> None:
        peer.requests -= 1
        kind, text, payload = Kind.END, None, memoryview(b"")
        if isinstance(result, Failed):
            kind, text = Kind.FAILED, result.text
            self._parent.send(("failed", text))
        elif not isinstance(result, Made):
            text = result.description
        elif slot is not None:
            kind, text, payload = Kind.BATCH, result.description, slot.view(result.bytes)
            if not self._served:
                self._served = True
                self._parent.send(("served",))
        if peer in self._peers:
            busy = self._pool.busy_seconds
            peer.connection.send(kind, text, request=request, busy=busy, payload=payload, owner=slot)
            self._unsent.add(peer)
