"""A connection to a data host over which a reader asks for batches by number, and gets them as they are made."""

from __future__ import annotations

import contextlib
import json
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.flight as flight

from .batches import read
from .bodies import Incoming
from .desk import Key
from .epochs import Lane
from .errors import DataServiceError
from .memory import Memory

TRANSPORT = [("grpc.use_local_subchannel_pool", 1)]  # a connection of its own


@dataclass(frozen=True)
class Asked:
    """A batch that is asked for: by which ``epoch()`` call of the reader, which batch of which epoch."""

    run: int
    key: Key
    epoch: int
    lane: Lane


class Listener(Protocol):
    """The reader, as who brings it batches sees it."""

    def come(self, asked: Asked, batch: Any, size: int) -> None: ...
    def end(self, asked: Asked) -> None: ...
    def lost(self, asked: list[Asked]) -> None: ...
    def fail(self, error: DataServiceError) -> None: ...


class Stream:
    """Requests out, batches in. ``broken`` is called when nothing more will come of it, with why.

    ``bodies`` is the host's port for the batches' bytes. Raises ``OSError`` where it cannot be reached.
    """

    def __init__(
        self,
        address: str,
        bodies: int,
        headers: list[tuple[bytes, bytes]],
        who: Mapping[str, Any],
        listener: Listener,
        memory: Memory,
        broken: Callable[[Stream, Exception], None],
    ) -> None:
        self._address, self._listener, self._memory, self._broken = address, listener, memory, broken
        self.asked: dict[int, Asked] = {}
        self._serial = 0
        self._unsent: list[tuple[int, int, int | None, int]] = []
        self._lock, self._sending = threading.Lock(), threading.Lock()
        self._client = flight.FlightClient(f"grpc://{address}", generic_options=TRANSPORT)
        token = uuid.uuid4().hex
        self._body = Incoming(address.rpartition(":")[0], bodies, token.encode())
        descriptor = flight.FlightDescriptor.for_command(json.dumps({**who, "body": token}).encode())
        try:
            self._writer, self._reader = self._client.do_exchange(descriptor, flight.FlightCallOptions(headers=headers))
        except (pa.ArrowException, OSError):
            self._client.close()
            self._body.close()
            raise
        self._thread = threading.Thread(target=self._receive, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask(self, asked: Asked) -> None:
        """Note a request, which ``send`` sends with all others."""
        with self._lock:
            self._serial += 1
            self.asked[self._serial] = asked
            self._unsent.append((self._serial, asked.epoch, asked.lane.shard, asked.lane.number(asked.key[1])))

    def send(self) -> None:
        # In the order in which they were noted. Where they cannot be written the stream is broken, and all is taken back from it.
        with self._sending:
            with self._lock:
                unsent, self._unsent = self._unsent, []
            if unsent:
                with contextlib.suppress(pa.ArrowException, OSError):
                    self._writer.write_metadata(json.dumps(unsent).encode())

    def take_back(self) -> list[Asked]:
        """What was asked for in vain."""
        with self._lock:
            left, self.asked = list(self.asked.values()), {}
        return left

    def cancel(self) -> None:
        self._reader.cancel()
        self._body.end()

    def _receive(self) -> None:
        try:
            while True:
                self._take(self._reader.read_chunk())
        except (StopIteration, pa.ArrowException, OSError) as error:
            self._broken(self, error)
        except Exception as error:
            self._listener.fail(DataServiceError(f"data host {self._address}: {type(error).__name__}: {error}"))
        finally:
            self.close()

    def close(self) -> None:
        """Give back its connections: at its end, or where it is not to be started."""
        with contextlib.suppress(pa.ArrowException, OSError):
            self._writer.close()  # or it would say itself, and aloud, that it was cancelled
        self._client.close()
        self._body.close()

    def _take(self, chunk: Any) -> None:
        said = json.loads(chunk.app_metadata.to_pybytes())
        problem = said.get("refused") or said.get("failed")
        if problem:
            self._listener.fail(DataServiceError(f"data host {self._address}: {problem}"))
            return
        memory = self._memory.empty(said.get("bytes", 0))
        self._body.receive(memory)
        with self._lock:
            asked = self.asked.pop(said["asked"], None)
        if asked is None:  # taken back, and asked of another
            return
        if "end" in said:
            self._listener.end(asked)
        else:
            self._listener.come(asked, read(said["batch"], memory), len(memory))
