"""A data host as a reader sees it: streams of batches, which are opened again when they break, and a heartbeat beside them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.flight as flight

from .errors import DataHostLost, DataServiceError
from .memory import Memory
from .streams import Asked, Listener, Stream

JOB_HEADER = b"x-training-job"
HEARTBEAT = 2.0  # seconds between two
ANSWER = 10.0  # seconds in which a host answers, or its streams count as broken
GOODBYE = 10.0  # seconds in which a host that is away may come back, to be told that the training is over
RETRY = 0.2
# Looks again soon for a host that was not there.
TRANSPORT = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.initial_reconnect_backoff_ms", 200),
]


class Reader(Listener, Protocol):
    """The reader, which also learns what a host serves when it answers."""

    def known(self, host: Host, answer: Mapping[str, Any]) -> None: ...


class Host:
    """One data host, looked after by ``thread``, which is to be started. It is ``up`` while it has streams."""

    def __init__(
        self,
        address: str,
        job: str,
        who: Mapping[str, Any],
        listener: Reader,
        memory: Memory,
        times: Times,
        streams: int,
    ) -> None:
        self.address, self._memory = address, memory
        self._who, self._listener, self._times, self._count = who, listener, times, streams
        self._headers = [(JOB_HEADER, job.encode())]
        self._streams: list[Stream] = []
        self._began = self._answered = time.monotonic()
        self._ever = self._over = False
        self._why = "not tried"
        self._wake = threading.Event()
        self._goodbye: dict[str, Any] | None = None
        self._lock = threading.Lock()
        self.workers = self._bodies = 0
        self.thread = threading.Thread(target=self._keep, daemon=True)

    @property
    def up(self) -> bool:
        return bool(self._streams)

    @property
    def outstanding(self) -> int:
        return sum(len(stream.asked) for stream in self._streams)

    def ask(self, asked: Asked) -> bool:
        """Note a request, which ``send`` sends; False where the host has just been lost."""
        with self._lock:
            if not self._streams:
                return False
            if asked.lane.shard is None:
                stream = min(self._streams, key=lambda stream: len(stream.asked))
            else:  # which is made in order, so it is asked for in order
                stream = self._streams[asked.lane.shard % len(self._streams)]
            stream.ask(asked)
            return True

    def send(self) -> None:
        for stream in self._streams:
            stream.send()

    def close(self, error: str | None) -> None:
        """Tell it that this rank is done, or why it has failed; ``thread`` ends when it knows, or cannot be told."""
        self._goodbye = {"error": error}
        self._wake.set()

    def _keep(self) -> None:
        client = flight.FlightClient(f"grpc://{self.address}", generic_options=TRANSPORT)
        try:
            while self._goodbye is None and not self._over:
                self._wake.clear()
                up = self._say(client, "alive") and self._goodbye is None and (self.up or self._open())
                if up:
                    self._answered, self._ever = time.monotonic(), True
                else:
                    self._away()
                self._wake.wait(HEARTBEAT if up else RETRY)
            self._drop()
            if not self._over:
                self._part(client)
        except Exception as error:
            self._listener.fail(DataServiceError(f"data host {self.address}: {type(error).__name__}: {error}"))
        client.close()

    def _say(self, client: Any, what: str, **words: Any) -> bool:
        action = flight.Action(what, json.dumps({**self._who, **words}).encode())
        try:
            [answer] = client.do_action(
                action, flight.FlightCallOptions(timeout=self._times.answer, headers=self._headers)
            )
        except flight.FlightUnauthenticatedError as error:
            return self._refused(_short(error))
        except (pa.ArrowException, OSError) as error:
            self._why = _short(error)
            return False
        said = json.loads(answer.body.to_pybytes())
        if "refused" in said:
            return self._refused(said["refused"])
        self.workers, self._bodies = said["workers"], said["bodies"]
        self._listener.known(self, said)
        return True

    def _refused(self, why: str) -> bool:
        self._over = True
        self._listener.fail(DataServiceError(f"data host {self.address}: {why}"))
        return False

    def _open(self) -> bool:
        streams: list[Stream] = []
        try:
            for _ in range(self._count):
                streams.append(
                    Stream(
                        self.address, self._bodies, self._headers, self._who, self._listener, self._memory, self.broken
                    )
                )
        except (pa.ArrowException, OSError) as error:
            for stream in streams:
                stream.close()
            self._why = _short(error)
            return False
        with self._lock:
            self._streams = streams
        for stream in streams:
            stream.start()
        self._listener.lost([])  # which asks for what it can
        return True

    def _away(self) -> None:
        """What was asked of it is to be asked of others; and once it has been away for too long, nobody can go on."""
        self._drop()
        now = time.monotonic()
        if self._ever and now - self._answered > self._times.lost_after:
            when = datetime.now(UTC).replace(microsecond=0).isoformat()
            self._listener.fail(
                DataHostLost(
                    f"data host {self.address} was lost at {when}: {self._why}; not answered for {self._times.lost_after:g} s"
                )
            )
        elif not self._ever and now - self._began > self._times.patience:
            self._listener.fail(
                DataHostLost(f"data host {self.address} never answered in {self._times.patience:g} s: {self._why}")
            )

    def _drop(self) -> None:
        with self._lock:
            streams, self._streams = self._streams, []
        for stream in streams:
            stream.cancel()
        self._listener.lost([asked for stream in streams for asked in stream.take_back()])

    def broken(self, stream: Stream, error: Exception) -> None:
        """A stream has ended: nothing more will come of it."""
        with self._lock:
            mine = stream in self._streams
        if mine:
            self._why = _short(error)
            self._drop()
            self._wake.set()

    def _part(self, client: Any) -> None:
        assert self._goodbye is not None
        if self._goodbye["error"] is not None:
            until = 0.0  # the job fails, and SageMaker ends all its hosts
        elif self._ever:
            until = time.monotonic() + GOODBYE
        else:  # it may still come, and would then wait for a trainer; the job ends only when it does
            until = self._began + self._times.patience
        while not self._say(client, "done", **self._goodbye) and not self._over and time.monotonic() < until:
            time.sleep(RETRY)


@dataclass(frozen=True)
class Times:
    """Seconds: ``patience`` for a host's first answer, ``lost_after`` without one after it."""

    patience: float
    lost_after: float

    @property
    def answer(self) -> float:
        return min(ANSWER, self.lost_after / 3)


def _short(error: Exception) -> str:
    return str(error).partition(". gRPC client debug context")[0].strip() or type(error).__name__
