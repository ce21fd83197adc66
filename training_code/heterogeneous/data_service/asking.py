"""Whom a reader asks for which of its batches, and for how many at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .desk import Desk
from .hosts import Host
from .local import Local
from .streams import Asked

# Batches that are asked for beyond those that workers are at: as many as these bytes hold, within these bounds.
BYTES_BEYOND, LEAST_BEYOND, MOST_BEYOND = 32 * 2**20, 2, 32


class Asking:
    """Shares out a rank's batches to hosts that are up, and to local workers where those let the training wait.

    ``sharded`` says that the batches are an iterable dataset's. The reader's lock is held in each call.
    """

    def __init__(self, hosts: Sequence[Host], local: Local | None, ranks: int, prefetch: int) -> None:
        self._hosts, self._local, self._ranks, self._prefetch = hosts, local, ranks, prefetch
        self._homes: dict[int, Host | Local] = {}
        self.batch_bytes = BYTES_BEYOND  # of the last that came
        self.sharded = False
        self._without_waiting = 0  # batches that were given since the training last waited for one

    def begin(self, *, sharded: bool) -> None:
        """An epoch, in which shards may be asked of other hosts than in the one before."""
        self.sharded = sharded
        self._homes = {}

    def given(self, *, waited: bool) -> None:
        """The training was given a batch, for which it had to wait or not."""
        self._without_waiting = 0 if waited else self._without_waiting + 1

    def fill(self, desk: Desk, run: int, epoch: int) -> None:
        """Ask for as many batches as there is room for."""
        up = [host for host in self._hosts if host.up]
        ahead = {host: self._ahead(host) for host in up}
        free = {host: ahead[host][0] - host.outstanding for host in up}
        free = {host: room for host, room in free.items() if room >= ahead[host][1]}
        # One that is ready for each worker besides the one it is at: workers that began together end together.
        most = self._prefetch + sum(room + self._workers(host) for host, (room, _) in ahead.items())
        while free and desk.asked + desk.here < most:
            host = max(free, key=free.__getitem__)
            if free[host] > 0 and self._ask(desk, host, self._accepted(host, up), run, epoch):
                free[host] -= 1
            else:
                del free[host]
        if self._local is not None and not (self._hosts and self.sharded):
            # Its cores are the step's first: they help where it has had to wait while each worker made a batch.
            room = self._ahead(self._local)[0]
            most += room + self._local.workers
            needed = not up or self._without_waiting <= sum(self._workers(source) for source in (*up, self._local))
            while needed and self._local.outstanding < room and desk.asked + desk.here < most:
                if not self._ask(desk, self._local, lambda lane: True, run, epoch):
                    break

    def _ahead(self, source: Host | Local) -> tuple[int, int]:
        """How many batches may be asked of a source at once, and how many of those are asked for together.

        None of its workers shall wait for an order, and small batches shall not wait for the network's answers.
        """
        workers = self._workers(source)
        beyond = max(LEAST_BEYOND, min(MOST_BEYOND, BYTES_BEYOND // max(1, self.batch_bytes)))
        return workers + beyond, beyond // 2

    def _workers(self, source: Host | Local) -> int:
        """This rank's share of a source's workers."""
        return -(-source.workers // (self._ranks if isinstance(source, Host) else 1))

    def _ask(self, desk: Desk, source: Host | Local, accepted: Callable[[int], bool], run: int, epoch: int) -> bool:
        key = desk.ask(accepted)
        if key is None:
            return False
        self._homes[key[0]] = source
        if source.ask(Asked(run, key, epoch, desk.lane(key))):
            return True
        desk.lost(key)
        return False

    def _accepted(self, host: Host, up: Sequence[Host]) -> Callable[[int], bool]:
        """Of which lanes a host is asked: a shard stays where it is for an epoch, since another host would begin it anew."""
        if not self.sharded:
            return lambda lane: True
        return lambda lane: (self._homes[lane] if self._homes.get(lane) in up else up[lane % len(up)]) is host
