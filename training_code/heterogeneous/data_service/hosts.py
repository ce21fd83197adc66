"""A data host as a reader sees it: streams of batches, which are opened again when they break, and a heartbeat beside them."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.flight as flight

from .batches import memory_at, read
from .desk import Key
from .epochs import Lane
from .errors import DataHostLost, DataServiceError

JOB_HEADER = b"x-training-job"
HEARTBEAT = 2.0  # seconds between two
ANSWER = 10.0  # seconds in which a host answers, or its streams count as broken
GOODBYE = 10.0  # seconds in which a host that is away may come back, to be told that the training is over
RETRY = 0.2
# A connection of its own for each stream, which looks again soon for a host that was not there.
TRANSPORT = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.initial_reconnect_backoff_ms", 200),
]
# By half more throughput: large frames, and a window in which whole batches fit.
STREAM_TRANSPORT = [
    *TRANSPORT,
    ("grpc.http2.max_frame_size", 16 * 2**20 - 1),
    ("grpc.http2.lookahead_bytes", 64 * 2**20),
]


@dataclass(frozen=True)
class Asked:
    """A batch that is asked for: by which ``epoch()`` call of the reader, which batch of which epoch."""

    run: int
    key: Key
    epoch: int
    lane: Lane


class Listener(Protocol):
    """The reader that hosts bring their batches to."""

    def known(self, host: Host, answer: Mapping[str, Any]) -> None: ...
    def come(self, asked: Asked, batch: Any) -> None: ...
    def end(self, asked: Asked) -> None: ...
    def lost(self, asked: list[Asked]) -> None: ...
    def fail(self, error: DataServiceError) -> None: ...
    def pinned(self, memory: Any) -> Any: ...


class Host:
    """One data host, looked after by a thread. It is ``up`` while it has streams."""

    def __init__(
        self, address: str, job: str, who: Mapping[str, Any], listener: Listener, times: Times, streams: int
    ) -> None:
        self.address = address
        self._who, self._listener, self._times, self._count = who, listener, times, streams
        self._headers = [(JOB_HEADER, job.encode())]
        self._streams: list[_Stream] = []
        self._serial = 0
        self._began = self._answered = time.monotonic()
        self._ever = self._over = False
        self._why = "not tried"
        self._wake = threading.Event()
        self._goodbye: dict[str, Any] | None = None
        self._lock = threading.Lock()
        self.workers = 0
        self.thread = threading.Thread(target=self._keep, daemon=True)
        self.thread.start()

    @property
    def up(self) -> bool:
        return bool(self._streams)

    @property
    def outstanding(self) -> int:
        return sum(len(stream.asked) for stream in self._streams)

    def ask(self, asked: Asked) -> bool:
        """Ask for a batch; False where the host has just been lost."""
        with self._lock:
            if not self._streams:
                return False
            if asked.lane.shard is None:
                stream = min(self._streams, key=lambda stream: len(stream.asked))
            else:  # which is made in order, so it is asked for in order
                stream = self._streams[asked.lane.shard % len(self._streams)]
            self._serial += 1
            return stream.ask(self._serial, asked)

    def close(self, error: str | None) -> None:
        """Tell it that this rank is done, or why it has failed; ``thread`` ends when it knows, or cannot be told."""
        self._goodbye = {"error": error}
        self._wake.set()

    def _keep(self) -> None:
        client = flight.FlightClient(f"grpc://{self.address}", generic_options=TRANSPORT)
        while self._goodbye is None and not self._over:
            self._wake.clear()
            if self._say(client, "alive") and self._goodbye is None:
                if not self._streams:
                    self._open()
                self._wake.wait(HEARTBEAT)
            else:
                self._away()
                self._wake.wait(RETRY)
        self._drop()
        if not self._over:
            self._part(client)
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
        self._answered, self._ever, self.workers = time.monotonic(), True, said["workers"]
        self._listener.known(self, said)
        return True

    def _refused(self, why: str) -> bool:
        self._over = True
        self._listener.fail(DataServiceError(f"data host {self.address}: {why}"))
        return False

    def _open(self) -> None:
        streams = [_Stream(self, self._headers, self._who) for _ in range(self._count)]
        with self._lock:
            self._streams = streams
        for stream in streams:
            stream.start()
        self._listener.lost([])  # which asks for what it can

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

    def broken(self, stream: _Stream, error: Exception) -> None:
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
        return min(ANSWER, max(self.lost_after, 1.0))


class _Stream:
    """Requests out, batches in, over one connection."""

    def __init__(self, host: Host, headers: list[tuple[bytes, bytes]], who: Mapping[str, Any]) -> None:
        self._host = host
        self.asked: dict[int, Asked] = {}
        self._lock = threading.Lock()
        self._client = flight.FlightClient(f"grpc://{host.address}", generic_options=STREAM_TRANSPORT)
        descriptor = flight.FlightDescriptor.for_command(json.dumps(who).encode())
        self._writer, self._reader = self._client.do_exchange(descriptor, flight.FlightCallOptions(headers=headers))
        self._thread = threading.Thread(target=self._receive, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask(self, serial: int, asked: Asked) -> bool:
        with self._lock:
            self.asked[serial] = asked
        request = [serial, asked.epoch, asked.lane.shard, asked.lane.number(asked.key[1])]
        # Where it cannot be written the stream is broken, and what was asked for is taken back from it.
        with contextlib.suppress(pa.ArrowException, OSError):
            self._writer.write_metadata(json.dumps(request).encode())
        return True

    def take_back(self) -> list[Asked]:
        with self._lock:
            left, self.asked = list(self.asked.values()), {}
        return left

    def cancel(self) -> None:
        self._reader.cancel()

    def _receive(self) -> None:
        try:
            while True:
                self._take(self._reader.read_chunk())
        except (StopIteration, pa.ArrowException, OSError) as error:
            self._host.broken(self, error)
        except Exception as error:
            self._host._listener.fail(
                DataServiceError(f"data host {self._host.address}: {type(error).__name__}: {error}")
            )
        finally:
            with contextlib.suppress(pa.ArrowException, OSError):
                self._writer.close()  # or it would say itself, and aloud, that it was cancelled
            self._client.close()

    def _take(self, chunk: Any) -> None:
        said = json.loads(chunk.app_metadata.to_pybytes())
        listener, address = self._host._listener, self._host.address
        if "refused" in said or "failed" in said:
            listener.fail(DataServiceError(f"data host {address}: {said.get('refused') or said.get('failed')}"))
            return
        batch = None if "end" in said else read(said["batch"], listener.pinned(_memory(chunk.data)))
        with self._lock:
            asked = self.asked.pop(said["asked"], None)
        if asked is None:  # taken back, and asked of another
            return
        if batch is None:
            listener.end(asked)
        else:
            listener.come(asked, batch)


def _memory(data: Any) -> Any:
    """The bytes of a batch as uint8 tensor: where they came, if tensors of any dtype can lie there."""
    if data is None:
        return memory_at(0, 0, None)
    buffer = data.column(0).buffers()[2]
    memory = memory_at(buffer.address, buffer.size, buffer)
    return memory if buffer.address % 16 == 0 else memory.clone()


def _short(error: Exception) -> str:
    return str(error).partition(". gRPC client debug context")[0].strip() or type(error).__name__
