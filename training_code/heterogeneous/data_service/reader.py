"""A training rank's side: which batches it owns, whom it asks for them, and in which order it gives them."""

from __future__ import annotations

import contextlib
import socket
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from .asking import Asking
from .desk import Desk, checked_position
from .epochs import Plan
from .errors import DataServiceError
from .hosts import Host, Times
from .local import Local
from .memory import Memory
from .streams import Asked
from .workers import Workers


class BatchReader:
    """One rank's batches, from all data hosts, ``"host:port"`` each, and from this host's own workers where it has some.

    ``for batch in reader`` is an epoch, and the next such loop the next one; ``epoch(n)`` is one by its number. The reader
    owns the position: ``state_dict`` is it, in the middle of an epoch too, and ``load_state_dict`` goes on from there.

    Args:
        job: the TRAINING_JOB_ARN, which the data hosts hold against their own.
        patience: seconds in which each data host has to answer for the first time; reading begins with the first that does.
        lost_after: seconds without an answer after which a data host counts as lost, and the reader raises ``DataHostLost``.
        streams: connections to each data host.
        prefetch: batches that are kept ready, besides those that are being made or are on their way.
        ordered: in the order of their numbers, or else in that of their arrival.
        plan: what this rank expects the data hosts to serve; None takes it from the first that answers.
        local: workers of this host's own; the reader ends them.
        host: what this one is called.
    """

    def __init__(
        self,
        servers: Sequence[str],
        *,
        job: str,
        rank: int = 0,
        ranks: int = 1,
        patience: float = 900.0,
        lost_after: float = 30.0,
        streams: int = 2,
        prefetch: int = 4,
        ordered: bool = True,
        plan: Plan | None = None,
        local: Workers | None = None,
        host: str | None = None,
    ) -> None:
        if not servers and (local is None or plan is None):
            raise ValueError(
                "servers must name at least one data host like 'algo-1:6000' where there are no local workers"
            )
        self._rank, self._ranks, self._ordered = rank, ranks, ordered
        self._changed = threading.Condition()
        self._plan = plan
        self._memory = Memory()
        self._error: BaseException | None = None
        self._closed = False
        self._run = 0
        self._desk: Desk | None = None
        self._epoch, self._position = 0, []  # type: tuple[int, list[tuple[int, list[int]]]]
        self._upcoming = 0
        self._local = None if local is None else Local(local, self, self._memory)
        who = {"rank": rank, "ranks": ranks, "reader": uuid.uuid4().hex, "host": host or socket.gethostname()}
        who["plan"] = None if plan is None else asdict(plan)
        times = Times(patience, lost_after)
        self._hosts = [Host(server, job, who, self, self._memory, times, streams) for server in servers]
        self._asking = Asking(self._hosts, self._local, ranks, prefetch)
        for one in self._hosts:
            one.thread.start()
        try:
            with self._changed:
                while self._plan is None and self._error is None:
                    self._changed.wait()
                if self._error is not None:
                    raise self._error
        except BaseException as error:
            self.close(error)
            raise

    def __len__(self) -> int:
        """How many batches an epoch has for this rank. Raises ``TypeError`` of an iterable dataset."""
        assert self._plan is not None
        lengths = [lane.length for lane in self._plan.lanes(self._rank, self._ranks)]
        if lengths[0] is None:
            raise TypeError("an iterable dataset's batches are counted by nobody before its end")
        return lengths[0]

    def __iter__(self) -> Iterator[Any]:
        return self.epoch(self._upcoming)

    def epoch(self, number: int) -> Iterator[Any]:
        """This rank's batches of an epoch. Raises ``DataHostLost``, ``DataServiceError``."""
        with self._changed:
            assert self._plan is not None
            self._memory.of_this_device()
            position = self._position if number == self._epoch == self._upcoming else []
            desk = Desk(self._plan.lanes(self._rank, self._ranks), position, ordered=self._ordered)
            self._run += 1
            self._desk, self._epoch, self._upcoming = desk, number, number + 1
            self._asking.begin(sharded=self._plan.shards is not None)
            self._fill()
        self._send()
        return self._give(desk)

    def state_dict(self) -> dict[str, Any]:
        """The position: the epoch, and what of it was given. Ranks that step together may load any one's."""
        with self._changed:
            position = self._position if self._desk is None else self._desk.position
            return {"epoch": self._epoch, "ranks": self._ranks, "given": position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a position: the next loop gives what is left of its epoch."""
        with self._changed:
            self._desk = None
            self._epoch, self._position = checked_position(state, self._ranks)
            self._upcoming = self._epoch

    def close(self, error: BaseException | None = None) -> None:
        """Tell every data host that this rank is done, or has failed, and end the local workers."""
        with self._changed:
            if self._closed:
                return
            self._closed, self._desk = True, None
            self._changed.notify_all()
        said = None if error is None else f"{type(error).__name__}: {error}"
        for host in self._hosts:
            host.close(said)
        if self._local is not None:
            self._local.close()
        for host in self._hosts:
            host.thread.join()

    def __enter__(self) -> BatchReader:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close(error)

    # -- giving

    def _give(self, desk: Desk) -> Iterator[Any]:
        try:
            while found := self._next(desk):
                yield found.pop()  # no name is left for it here, so it is freed when its user is done with it
        finally:
            with self._changed:
                if self._desk is desk:  # it was left early
                    self._position, self._desk = desk.position, None

    def _next(self, desk: Desk) -> list[Any]:
        waited = False
        with self._changed:
            while True:
                if self._error is not None:
                    # A FailureReason begins where the toolkit first finds one of Python's own errors, as in this line.
                    raise self._error  # Exception
                if self._desk is not desk:
                    raise DataServiceError(
                        "the reader was closed, or begun to read another epoch, before this one's end"
                    )
                if found := desk.take():
                    break
                if desk.done:
                    self._epoch, self._position, self._desk = self._epoch + 1, [], None
                    return []
                waited = True
                self._changed.wait()
            self._asking.given(waited=waited)
            self._fill()
        self._send()
        return found

    def _fill(self) -> None:
        if self._desk is not None:
            self._asking.fill(self._desk, self._run, self._epoch)

    def _send(self) -> None:
        for host in self._hosts:  # without the lock, since it may take its time
            host.send()

    # -- what hosts say, on their threads

    def known(self, host: Host, answer: Mapping[str, Any]) -> None:
        plan = Plan(**answer["plan"])
        with self._changed:
            if self._plan is None:
                self._plan = plan
                self._changed.notify_all()
            differences = self._plan.differences(plan)
        if differences:
            self.fail(DataServiceError(f"data host {host.address} must serve {', '.join(differences)}"))

    def come(self, asked: Asked, batch: Any, size: int) -> None:
        with self._happened(asked.run) as desk:
            self._asking.batch_bytes = size
            if desk is not None:
                desk.come(asked.key, batch)
        self._send()

    def end(self, asked: Asked) -> None:
        with self._happened(asked.run) as desk:
            if desk is not None:
                desk.end(asked.key)
        self._send()

    def lost(self, asked: list[Asked]) -> None:
        with self._happened(self._run) as desk:
            for one in asked:
                if desk is not None and one.run == self._run:
                    desk.lost(one.key)
        self._send()

    @contextlib.contextmanager
    def _happened(self, run: int) -> Iterator[Desk | None]:
        """With the lock held, the desk for something of a run, unless that is over; then asks for what there is room for."""
        with self._changed:
            yield self._desk if run == self._run else None
            self._fill()
            if self._desk is not None and self._desk.ready:
                self._changed.notify_all()

    def fail(self, error: DataServiceError) -> None:
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()
