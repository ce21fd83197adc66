"""The serving process of a data host: answers what training ranks ask for, over Arrow Flight (gRPC) and the sockets beside it.

It holds no state of an epoch: any batch can be asked of any data host, at any time. A call is answered only if it names the
server's own job. That guards against crossed wires; it is no secret that keeps an attacker out.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from .bodies import Bodies
from .epochs import Plan
from .making import Answer, End, Made, Raised
from .processes import Payload, fork_from_the_parents_forkserver
from .slots import Slot
from .workers import Workers

JOB_HEADER = "x-training-job"
NOTHING = pa.schema([])  # that messages of a stream would hold, besides their metadata
Answers = queue.SimpleQueue[tuple[int, Answer, Slot | None] | None]


@dataclass(frozen=True)
class Settings:
    """How a serving process is to serve."""

    payload: Payload
    plan: Plan
    workers: int
    job: str
    host: str


def serve(settings: Settings, port: int, parent: Any, patience: float) -> None:
    """Serve until the parent says stop, or is gone. Tells it the port, what ranks say, and that batches leave."""
    fork_from_the_parents_forkserver()
    words = _Words(parent)
    workers = Workers(settings.payload, settings.plan, settings.workers)
    try:
        server = _listening(settings, port, workers, words, time.monotonic() + patience)
        words.say("port", server.port)
        parent.recv()
    except EOFError:
        pass
    except Exception as error:
        words.say("unable", f"{type(error).__name__}: {error}")
    finally:
        workers.stop()
        os._exit(0)  # calls under way, of ranks that are gone perhaps, end no other way


def _listening(settings: Settings, port: int, workers: Workers, words: _Words, until: float) -> _Flight:
    """The server, as soon as the port is free of the one before it."""
    while True:
        try:
            return _Flight(settings, port, workers, words)
        except (pa.ArrowException, OSError):
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


class _Words:
    """What the serving process says to its parent."""

    def __init__(self, parent: Any) -> None:
        self._parent, self._lock = parent, threading.Lock()
        self._served = 0.0

    def say(self, *words: Any) -> None:
        with self._lock:
            try:
                self._parent.send(words)
            except OSError:
                os._exit(1)  # it is gone

    def served(self) -> None:
        if time.monotonic() - self._served > 1:
            self._served = time.monotonic()
            self.say("served")


@dataclass
class _Rank:
    """Who reads as this rank: a process of one host. Another one may only after that one's streams are gone."""

    reader: str = ""
    host: str = ""
    streams: int = 0


@dataclass
class _Ranks:
    count: int | None = None
    known: dict[int, _Rank] = field(default_factory=dict)


class _Flight(flight.FlightServerBase):  # type: ignore[misc]
    def __init__(self, settings: Settings, port: int, workers: Workers, words: _Words) -> None:
        super().__init__(f"grpc://{settings.host}:{port}", middleware={"job": _OnlyOneJob(settings.job)})
        self._plan, self._workers, self._words = settings.plan, workers, words
        self._bodies = Bodies(settings.host)
        self._ranks = _Ranks()
        self._lock = threading.Lock()

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        said = json.loads(action.body.to_pybytes())
        problem = self._claim(said)
        if problem is not None:
            return [json.dumps({"refused": problem}).encode()]
        if action.type == "done":
            self._words.say("done", said["rank"], said["ranks"], said["error"])
        else:
            self._words.say("heard", said["rank"], said["ranks"])
        answer = {"plan": asdict(self._plan), "workers": self._workers.count, "bodies": self._bodies.port}
        return [json.dumps(answer).encode()]

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """One stream of a rank's: it asks for batches by number, and they come as they are made."""
        said = json.loads(descriptor.command)
        problem = self._claim(said, stream=True)
        writer.begin(NOTHING)
        if problem is not None:
            writer.write_metadata(json.dumps({"refused": problem}).encode())
            return
        try:
            with self._bodies.connection(said["body"].encode()) as body:
                self._exchange(reader, writer, body)
        finally:
            with self._lock:
                self._ranks.known[said["rank"]].streams -= 1

    def _exchange(self, reader: Any, writer: Any, body: socket.socket) -> None:
        answers: Answers = queue.SimpleQueue()
        # The stream is gone when this returns, so who reads from it must have ended before.
        asking = threading.Thread(target=self._hear, args=(reader, answers, body), daemon=True)
        asking.start()
        try:
            self._answer(writer, answers, body)
        finally:
            asking.join()

    def _hear(self, reader: Any, answers: Answers, body: socket.socket) -> None:
        try:
            while True:
                for asked, epoch, shard, number in json.loads(reader.read_chunk().app_metadata.to_pybytes()):
                    self._workers.submit(epoch, shard, number, _to(answers, asked))
        except (StopIteration, pa.ArrowException, OSError):
            answers.put(None)
            with contextlib.suppress(OSError):  # it has ended
                body.shutdown(socket.SHUT_RDWR)  # or an answer under way would wait for who is gone

    def _answer(self, writer: Any, answers: Answers, body: socket.socket) -> None:
        while (item := answers.get()) is not None:
            asked, answer, slot = item
            del item
            if isinstance(answer, Made) and slot is not None:
                writer.write_metadata(
                    f'{{"asked":{asked},"bytes":{answer.bytes},"batch":{answer.description}}}'.encode()
                )
                body.sendall(slot.view(answer.bytes))
                self._words.served()
            elif isinstance(answer, End):
                writer.write_metadata(json.dumps({"asked": asked, "end": True}).encode())
            elif isinstance(answer, Raised):
                self._words.say("failed", answer.text)
                writer.write_metadata(json.dumps({"asked": asked, "failed": answer.text}).encode())
            del slot  # which is free now

    def _claim(self, said: Mapping[str, Any], *, stream: bool = False) -> str | None:
        """Note who speaks as which rank. Returns why it is refused, if it is."""
        rank, ranks, reader, host = said["rank"], said["ranks"], said["reader"], said["host"]
        with self._lock:
            if said.get("plan") is not None:
                differences = self._plan.differences(Plan(**said["plan"]))
                if differences:
                    return f"it serves {', '.join(differences)} of rank {rank} on {host}"
            if self._ranks.count not in (None, ranks) or not 0 <= rank < ranks:
                return f"it serves {self._ranks.count} ranks, got rank {rank} of {ranks} on {host}"
            self._ranks.count = ranks
            known = self._ranks.known.setdefault(rank, _Rank())
            if known.reader != reader:
                if known.streams:
                    return (
                        f"rank {rank} is a process on {known.host}, and one on {host} says that it is: "
                        "only one group of hosts can train"
                    )
                known.reader, known.host = reader, host
            known.streams += stream
            return None


class _OnlyOneJob(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    def __init__(self, job: str) -> None:
        super().__init__()
        self._job = job

    def start_call(self, info: Any, headers: Mapping[str, Sequence[str]]) -> None:
        given = headers.get(JOB_HEADER, [""])[0]
        if not hmac.compare_digest(given.encode(), self._job.encode()):
            raise flight.FlightUnauthenticatedError("this data host serves another training job")


def _to(answers: Answers, asked: int) -> Callable[[Answer, Slot | None], None]:
    """Who puts what has become of a request to the other answers of its stream."""
    return lambda answer, slot: answers.put((asked, answer, slot))
