"""The thread of a training process that has all its connections: requests batches from data hosts and from its own workers."""

from __future__ import annotations

import math
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from .hosts import Host, Listener, Local, Request
from .memory import ReceiveMemory
from .plan import Plan, home_hosts, home_share
from .pool import WorkerPool
from .protocol import DataServiceError
from .tracker import BatchTracker

TICK = 0.25  # seconds, at most, between two looks at what is late
STAND_IN_AFTER = 5.0  # seconds until another host is used in place of a home host that is not up
# Batches that are requested beyond those that workers are making: as many as these bytes hold, within these bounds.
BYTES_BEYOND, LEAST_BEYOND, MOST_BEYOND = 32 * 2**20, 2, 32
LEAST_AHEAD = 2  # batches, however large


class Reader(Listener, Protocol):
    """Whose batches are requested. ``trackers`` are those of this epoch and the next, as far as they are wanted."""

    changed: threading.Condition
    plan: Plan | None
    batch_bytes: int  # of the last batch that came

    def trackers(self) -> list[BatchTracker]: ...


class Requester:
    """An event loop over the connections to data hosts and the pipes of local workers, on a thread of its own.

    Args:
        reader: Is locked by its ``changed`` while batches are chosen.
        hello: The HELLO message of this rank, without the ranks whose home the host is.
        look_ahead: Bytes of batches that are ready or on their way, at most.
        prefetch: Batches that are kept ready, besides those that are being made or are on their way.
    """

    def __init__(
        self,
        servers: Sequence[str],
        hello: Mapping[str, Any],
        reader: Reader,
        memory: ReceiveMemory,
        local: Callable[[selectors.BaseSelector], WorkerPool] | None,
        *,
        look_ahead: int,
        prefetch: int,
        connect_timeout: float,
        host_timeout: float,
    ) -> None:
        self._reader, self._look_ahead, self._prefetch, self._timeout = reader, look_ahead, prefetch, host_timeout
        self._stopping, self._reason = False, None  # type: tuple[bool, str | None]
        self._low = 0.0  # batches that are ready or in flight, below which the thread is to look for more
        self._shard_hosts: dict[tuple[int, int], Host | Local] = {}
        self._selector = selectors.DefaultSelector()
        self._wakes, self._waker = socket.socketpair()
        for one in (self._wakes, self._waker):
            one.setblocking(False)
        self._selector.register(self._wakes, selectors.EVENT_READ)
        self.local = None if local is None else Local(local(self._selector), reader, memory)
        rank, ranks = hello["rank"], hello["ranks"]
        homes = [home_hosts(one, ranks, len(servers)) for one in range(ranks)]
        ring = homes[rank] + [n for n in range(len(servers)) if n not in homes[rank]]
        self.hosts = [
            Host(
                servers[n],
                {**hello, "homes": [one for one in range(ranks) if n in homes[one]]},
                reader,
                memory,
                self._selector,
                self.wake,
                home_share=home_share(n, rank, ranks, len(servers)),
                connect_timeout=connect_timeout,
                host_timeout=host_timeout,
            )
            for n in ring
        ]
        self._thread = threading.Thread(target=self._run, daemon=True)

    def delivered(self, held: int) -> None:
        """So many batches are ready or in flight, now that one was delivered."""
        if held <= self._low:
            self.wake()

    def start(self) -> None:
        self._thread.start()

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
            self._reader.fail(DataServiceError(f"the requester's event loop ended: {type(error).__name__}: {error}"))
        finally:
            for host in self.hosts:
                host.close()
            if self.local is not None:
                self.local.pool.stop()
            for one in (self._selector, self._wakes, self._waker):
                one.close()

    def _turn(self) -> None:
        for key, events in self._selector.select(TICK):
            if key.fileobj is self._wakes:
                self._wakes.recv(4096)
            elif self.local is not None and key.data is self.local.pool:
                self.local.pool.handle(key)
            else:
                key.data.exchange(events)
        now = time.monotonic()
        for host in self.hosts:
            host.tick(now)
        with self._reader.changed:
            if self._reader.plan is not None and not self._stopping:
                self._choose_hosts(now)
                self._request(self._reader.plan, now)
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
        trackers = self._reader.trackers()
        up = [host for host in self.hosts if host.up and host.wanted]
        beyond = max(LEAST_BEYOND, min(MOST_BEYOND, BYTES_BEYOND // max(1, self._reader.batch_bytes)))
        bound = max(LEAST_AHEAD, self._look_ahead // max(1, self._reader.batch_bytes))
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
                request = Request(tracker, key, tracker.sequence(key), now, self._timeout)
                request.others.add(request)
                return request
        return None

    def _request_late(self, up: Sequence[Host], now: float) -> None:
        """Request a batch that does not come from another source, even if its host answers; what comes first is taken."""
        for host in up:
            for late in [one for one in host.requests.values() if now - one.sent > one.timeout]:
                late.timeout *= 2
                others: list[Host | Local] = [other for other in up if other is not host]
                if self.local is not None and not (others or late.sequence.shard is not None):
                    others = [self.local]
                source = min(others or [host], key=lambda other: other.outstanding)
                again = Request(late.tracker, late.key, late.sequence, now, late.timeout, late.others)
                again.others.add(again)
                if late.sequence.shard is not None:
                    self._shard_hosts[late.tracker.epoch, late.key[0]] = source
                source.request([again])
