"""The serving process of a data host: one event loop over its port, its workers' pipes and its parent's.

It keeps no account of an epoch: any batch can be requested from any data host, at any time. A peer is served only if it names the
server's own job. That guards against crossed wires; it is no secret that keeps an attacker out.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import selectors
import socket
import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from .memory import Slot
from .plan import Plan
from .pool import Payload, WorkerPool
from .protocol import VERSION, Connection, Frame, Kind, ProtocolError
from .worker import End, Failed, Made, Result

HELLO_TIMEOUT = 10.0  # seconds until a peer without HELLO is disconnected
PEER_TIMEOUT = 60.0  # seconds until one is from which nothing comes, not even a PING
MAX_UNIDENTIFIED = 128  # peers without HELLO; of more the oldest is disconnected
MAX_REQUESTS = 4096  # that a peer may have in flight
REPORT_EVERY = 1.0  # seconds, at most so often, between two reports of the same thing to the parent


@dataclass(frozen=True)
class Settings:
    """How a serving process is to serve."""

    payload: Payload
    plan: Plan
    workers: int
    job: str


def serve(settings: Settings, listener: socket.socket, parent: Any) -> None:
    """Serve until the parent sends "stop", or is gone."""
    pool: WorkerPool | None = None
    try:
        selector = selectors.DefaultSelector()
        pool = WorkerPool(settings.payload, settings.plan, settings.workers, selector)
        server = _Server(settings, selector, listener, pool, parent)
        pool.start()
        server.run()
    except (EOFError, BrokenPipeError):  # the parent is gone
        pass
    except Exception as error:
        with contextlib.suppress(OSError):
            parent.send(("unable", f"{type(error).__name__}: {error}"))
    finally:
        if pool is not None:
            pool.stop()
        os._exit(0)


class _Peer:
    """One connection; ``rank`` is None until HELLO."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.received_at = time.monotonic()
        self.rank: int | None = None
        self.reader = self.host = ""
        self.requests = 0
        self.writing = self.closing = False


class _Server:
    def __init__(
        self,
        settings: Settings,
        selector: selectors.BaseSelector,
        listener: socket.socket,
        pool: WorkerPool,
        parent: Any,
    ) -> None:
        self._plan, self._job, self._pool, self._parent = settings.plan, settings.job, pool, parent
        self._selector, self._listener = selector, listener
        self._peers: set[_Peer] = set()
        self._ranks: int | None = None
        self._homes: list[int] = []
        self._reported: dict[Any, float] = {}
        selector.register(listener, selectors.EVENT_READ)
        selector.register(parent, selectors.EVENT_READ)

    def run(self) -> None:
        checked = time.monotonic()
        while True:
            for key, events in self._selector.select(1.0):
                if key.data is self._pool:
                    self._pool.handle(key)
                elif key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj is self._parent:
                    self._parent.recv()  # "stop"
                    return
                elif key.data in self._peers:
                    self._exchange(key.data, events)
            if time.monotonic() - checked > 1.0:
                checked = time.monotonic()
                self._disconnect_idle()

    # -- Peers

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it is gone, or there are no more files
            accepted, _ = self._listener.accept()
            peer = _Peer(Connection(accepted))
            self._peers.add(peer)
            self._selector.register(accepted, selectors.EVENT_READ, peer)
            unidentified = [one for one in self._peers if one.rank is None]
            if len(unidentified) > MAX_UNIDENTIFIED:
                self._disconnect(min(unidentified, key=lambda one: one.received_at))

    def _disconnect_idle(self) -> None:
        now = time.monotonic()
        for peer in list(self._peers):
            if now - peer.received_at > (HELLO_TIMEOUT if peer.rank is None else PEER_TIMEOUT):
                self._disconnect(peer)

    def _disconnect(self, peer: _Peer) -> None:
        if peer in self._peers:
            self._peers.remove(peer)
            self._selector.unregister(peer.connection)
            peer.connection.close()

    def _exchange(self, peer: _Peer, events: int) -> None:
        """Whatever a peer sends ends nobody but itself."""
        try:
            if events & selectors.EVENT_READ:
                for frame in peer.connection.receive():
                    self._take(peer, frame)
                if peer.rank is not None:
                    peer.received_at = time.monotonic()
            self._flush(peer)
        except OSError:
            self._disconnect(peer)
        except (ProtocolError, KeyError, TypeError, ValueError, AttributeError) as error:
            who = "a peer without HELLO" if peer.rank is None else f"rank {peer.rank} on {peer.host}"
            print(f"disconnected {who}: {type(error).__name__}: {error}", flush=True)
            self._disconnect(peer)

    def _flush(self, peer: _Peer) -> None:
        if peer not in self._peers:
            return
        peer.connection.flush()
        if peer.closing and not peer.connection.sending:
            self._disconnect(peer)
        elif peer.writing != peer.connection.sending:
            peer.writing = peer.connection.sending
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.writing else 0)
            self._selector.modify(peer.connection, events, peer)

    # -- Frames

    def _take(self, peer: _Peer, frame: Frame) -> None:
        if peer.closing:
            return
        if frame.kind == Kind.HELLO:
            self._hello(peer, frame.json())
        elif peer.rank is None:
            raise ProtocolError(f"the first frame must be HELLO, got {Kind(frame.kind).name}")
        elif frame.kind == Kind.REQUEST:
            for request, epoch, shard, number in frame.json():
                self._request(peer, request, epoch, shard, number)
        elif frame.kind == Kind.PING:
            self._report("alive", peer.rank, self._homes, once=True)
            peer.connection.send(Kind.PONG, {"busy": self._pool.busy_seconds})
        elif frame.kind == Kind.DONE:
            self._report("done", peer.rank, self._homes, frame.json()["error"])
            peer.connection.send(Kind.BYE)
            peer.closing = True
        else:
            raise ProtocolError(f"a data host takes no {Kind(frame.kind).name}")

    def _hello(self, peer: _Peer, message: dict[str, Any]) -> None:
        refusal = self._refusal(message)
        if refusal is not None:
            peer.connection.send(Kind.REFUSED, refusal)
            peer.closing = True
            return
        peer.rank, peer.reader, peer.host = int(message["rank"]), str(message["reader"]), str(message["host"])
        self._ranks, self._homes = int(message["ranks"]), [int(rank) for rank in message["homes"]]
        for one in list(self._peers):  # the same reader's, of which no end was seen
            if one is not peer and one.rank == peer.rank:
                self._disconnect(one)
        self._report("alive", peer.rank, self._homes)
        welcome = {"plan": asdict(self._plan), "workers": self._pool.count, "busy": self._pool.busy_seconds}
        peer.connection.send(Kind.WELCOME, welcome)

    def _refusal(self, message: dict[str, Any]) -> str | None:
        """Why a peer is not served, if it is not."""
        if not hmac.compare_digest(str(message["job"]).encode(), self._job.encode()):
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
                return (
                    f"rank {rank} is a process on {other.host}, and another on {host}: "
                    "only one group of hosts can train"
                )
        return None

    def _request(self, peer: _Peer, request: int, epoch: int, shard: int | None, number: int) -> None:
        most = self._plan.batches
        known = number < most if most is not None else shard is not None and 0 <= shard < (self._plan.shards or 0)
        if not (
            known and epoch >= 0 and number >= 0 and 0 <= request < 2**32 and (shard is None) == (most is not None)
        ):
            raise ProtocolError(f"there is no batch {number} of shard {shard} of epoch {epoch}")
        if peer.requests >= MAX_REQUESTS:
            raise ProtocolError(f"at most {MAX_REQUESTS} batches can be requested at once")
        peer.requests += 1
        self._pool.submit(epoch, shard, number, partial(self._made, peer, request))

    def _made(self, peer: _Peer, request: int, result: Result, slot: Slot | None) -> None:
        peer.requests -= 1
        if isinstance(result, Failed):
            self._report("failed", result.text)
        if peer not in self._peers or peer.closing:
            return
        if isinstance(result, Made) and slot is not None:
            payload = slot.view(result.bytes)
            peer.connection.send(Kind.BATCH, result.description, request=request, payload=payload, owner=slot)
            self._report("served", once=True)
        elif isinstance(result, End):
            peer.connection.send(Kind.END, request=request)
        elif isinstance(result, Failed):
            peer.connection.send(Kind.FAILED, result.text, request=request)
        try:
            self._flush(peer)
        except OSError:
            self._disconnect(peer)

    def _report(self, *report: Any, once: bool = False) -> None:
        """Send a report to the parent; ``once``: unless the same was sent within ``REPORT_EVERY``."""
        now = time.monotonic()
        if once and now - self._reported.get(report[:2], 0.0) < REPORT_EVERY:
            return
        self._reported[report[:2]] = now
        self._parent.send(report)
