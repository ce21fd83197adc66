"""The data service as discrete events: what a batch passes from a worker to a rank, for benchmarks/scale.py."""

from __future__ import annotations

import heapq
import math
import random
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "training_code"))

from data_service.plan import home_shares
from data_service.reader import LOOK_AHEAD
from data_service.requester import LEAST_AHEAD, requests_beyond

BATCH = 8192 * 3144  # bytes
STEPS = 200  # of each rank, of which the first half is not counted: it uses up what was made at the start


@dataclass(frozen=True)
class Setup:
    """A job: ``gbit`` is the network's rate of each machine, ``serve`` and ``receive`` are CPU seconds for each GB.

    ``machine_gbit``: the rate of the machines that train, where it is another. ``step``: seconds of the training's own step.
    """

    hosts: int
    ranks: int
    prepare: float
    gbit: float = 25.0
    batch_bytes: int = BATCH
    workers: int = 16
    ranks_of_machine: int = 8
    prefetch: int = 4
    look_ahead: int = LOOK_AHEAD  # bytes of each training machine, shared by its ranks
    serve: float = 0.16
    receive: float = 0.20
    machine_gbit: float | None = None
    step: float = 0.0
    steps: int = STEPS

    @property
    def machines(self) -> int:
        return -(-self.ranks // self.ranks_of_machine)

    @property
    def limits(self) -> dict[str, float]:
        """Batches a second that each resource allows, over all machines."""
        gigabytes = self.batch_bytes / 1e9
        return {
            "workers": self.hosts * self.workers / self.prepare,
            "network": min(self.hosts * self.gbit, self.machines * (self.machine_gbit or self.gbit)) / 8 / gigabytes,
            "serving": self.hosts / (self.serve * gigabytes) if self.serve else float("inf"),
            "receiving": self.ranks / (self.receive * gigabytes) if self.receive else float("inf"),
            # A rank reads in order, so a batch that takes the longest holds up those that are in flight after it.
            "look-ahead": self.ranks * self.bound / (1.2 * self.prepare),
        }

    @property
    def bound(self) -> int:
        """Batches of a rank that are ready or in flight."""
        return max(LEAST_AHEAD, self.look_ahead // min(self.ranks, self.ranks_of_machine) // self.batch_bytes)


@dataclass(frozen=True)
class Result:
    """Batches a second over all ranks, and the most of a machine: connections, and batches in memory."""

    rate: float
    first: float  # seconds until every rank has a batch
    host_connections: int
    rank_connections: int
    host_batches: int
    rank_batches: int  # ready or in flight


@dataclass
class _Link:
    """What serves one batch at a time: a process, or one direction of a network card."""

    free: float = 0.0

    def take(self, now: float, seconds: float) -> float:
        self.free = max(now, self.free) + seconds
        return self.free


@dataclass
class _Host:
    idle: int
    orders: deque[Callable[[], None]] = field(default_factory=deque)
    serving: _Link = field(default_factory=_Link)
    network: _Link = field(default_factory=_Link)
    held: int = 0
    most: int = 0


@dataclass
class _Rank:
    homes: dict[int, int]  # the host's number, and its workers that the rank may keep busy
    network: _Link
    receiving: _Link = field(default_factory=_Link)
    in_flight: dict[int, int] = field(default_factory=dict)
    ready: set[int] = field(default_factory=set)
    requested: int = 0
    delivered: int = 0
    most: int = 0


class Simulation:
    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count, self._received, self._now, self._dice = 0, 0, 0.0, random.Random(0)
        homes = [
            {n: math.ceil(setup.workers * share) for n, share in home_shares(rank, setup.ranks, setup.hosts).items()}
            for rank in range(setup.ranks)
        ]
        machines = [_Link() for _ in range(setup.machines)]
        self._ranks = [_Rank(one, machines[rank // setup.ranks_of_machine]) for rank, one in enumerate(homes)]
        self._hosts = [_Host(setup.workers) for _ in range(setup.hosts)]
        self._beyond = requests_beyond(setup.batch_bytes, setup.hosts, setup.ranks)

    def run(self) -> Result:
        setup, first, began, before, steps, free = self.setup, 0.0, 0.0, 0, 0, 0.0
        for rank in self._ranks:
            self._request(rank)
        while steps < setup.steps:
            self._now, _, act = heapq.heappop(self._events)
            act()
            while (
                steps < setup.steps and self._now >= free and all(rank.delivered in rank.ready for rank in self._ranks)
            ):
                first = first or self._now
                if setup.step:
                    free = self._now + setup.step
                    self._at(free, lambda: None)
                if steps == setup.steps // 2:
                    began, before = self._now, self._received
                steps += 1
                for rank in self._ranks:
                    rank.ready.remove(rank.delivered)
                    rank.delivered += 1
                    self._request(rank)
        # Where the step is the limit, more is received than used until the look-ahead is full.
        counted = steps - 1 - setup.steps // 2 if setup.step else (self._received - before) / setup.ranks
        rate = counted * setup.ranks / (self._now - began)
        connected = [sum(number in rank.homes for rank in self._ranks) for number in range(setup.hosts)]
        ranks_here = min(setup.ranks, setup.ranks_of_machine)
        of_machine = max(
            sum(len(rank.homes) for rank in self._ranks[n : n + ranks_here]) for n in range(0, setup.ranks, ranks_here)
        )
        return Result(
            rate,
            first,
            max(connected),
            of_machine,
            max(host.most for host in self._hosts),
            max(rank.most for rank in self._ranks),
        )

    def _at(self, when: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, act))

    def _request(self, rank: _Rank) -> None:
        """As the service's Requester does."""
        room = {n: share + self._beyond - rank.in_flight.get(n, 0) for n, share in rank.homes.items()}
        most = self.setup.prefetch + sum(2 * share + self._beyond for share in rank.homes.values())
        held = rank.requested - rank.delivered
        while held < min(most, self.setup.bound) and (n := max(room, key=room.__getitem__)) is not None and room[n] > 0:
            room[n] -= 1
            rank.in_flight[n] = rank.in_flight.get(n, 0) + 1
            self._hosts[n].orders.append(partial(self._prepare, self._hosts[n], n, rank, rank.requested))
            rank.requested, held = rank.requested + 1, held + 1
            self._dispatch(self._hosts[n])
        rank.most = max(rank.most, held)

    def _dispatch(self, host: _Host) -> None:
        while host.idle and host.orders:
            host.idle -= 1
            host.orders.popleft()()

    def _prepare(self, host: _Host, n: int, rank: _Rank, number: int) -> None:
        host.held += 1
        host.most = max(host.most, host.held)
        seconds = self.setup.prepare * self._dice.uniform(0.8, 1.2)
        self._at(self._now + seconds, partial(self._send, host, n, rank, number))

    def _send(self, host: _Host, n: int, rank: _Rank, number: int) -> None:
        host.idle += 1
        gigabytes = self.setup.batch_bytes / 1e9
        wire = gigabytes * 8 / self.setup.gbit
        served = host.serving.take(self._now, gigabytes * self.setup.serve)
        sent = host.network.take(served, wire)

        def release() -> None:
            host.held -= 1

        def arrive() -> None:  # while it is sent, where the card is free
            taken = wire * self.setup.gbit / (self.setup.machine_gbit or self.setup.gbit)
            self._at(rank.network.take(self._now, taken), partial(self._receive, n, rank, number))

        self._at(sent - wire, arrive)
        self._at(sent, release)
        self._dispatch(host)

    def _receive(self, n: int, rank: _Rank, number: int) -> None:
        received = rank.receiving.take(self._now, self.setup.batch_bytes / 1e9 * self.setup.receive)

        def deliver() -> None:
            self._received += 1
            rank.in_flight[n] -= 1
            rank.ready.add(number)
            self._request(rank)

        self._at(received, deliver)
