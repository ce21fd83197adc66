"""An end for every host: each that trains tells every data host that it is alive, and in the end that it is done or has failed.

tf.data service itself knows no end, and neither does a data host. A word is one line of JSON over TCP that names the job. That
guards against crossed wires; it is no secret that keeps an attacker out. The boundary is the network: the job's security group.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

HEARTBEAT_SECONDS = 2.0
ANSWER_SECONDS = 30.0  # in which a data host that has answered before answers again, or is lost
LONGEST_LINE = 65536


class DataServiceError(Exception):
    """The service cannot go on; the text says why."""


class End:
    """Hears the hosts that train, on a data host, and knows when and how the training is over.

    Args:
        training: the hosts that are to be heard.
        job: the TRAINING_JOB_ARN that they have to name.
        silence: seconds without a word of one of them, at the start or later, after which ``wait`` raises.
        port: 0 takes a free one, which ``port`` then names.
    """

    def __init__(self, training: Sequence[str], job: str, *, silence: float, port: int = 0, host: str = "") -> None:
        self._heard = dict.fromkeys(training, time.monotonic())
        self._left = set(training)
        self._job, self._silence = job, silence
        self._error: str | None = None
        self._changed = threading.Condition()
        self._server = _Server((host, port), self)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()

    def wait(self) -> None:
        """Return when every host is done. Raises ``DataServiceError`` where one failed or fell silent."""
        with self._changed:
            while self._left and self._error is None:
                quiet = min(self._left, key=self._heard.__getitem__)
                left = self._heard[quiet] + self._silence - time.monotonic()
                if left <= 0:
                    self._error = f"nothing was heard of the training host {quiet} for {self._silence:g} s"
                self._changed.wait(max(left, 0))
            if self._error is not None:
                raise DataServiceError(self._error)

    def fail(self, reason: str) -> None:
        """Let ``wait`` raise."""
        with self._changed:
            self._error = self._error or reason
            self._changed.notify_all()

    def hear(self, said: dict[str, Any]) -> str:
        """Take a host's word. Returns why it is refused, or nothing."""
        if not hmac.compare_digest(str(said.get("job")).encode(), self._job.encode()):
            return "this data host serves another training job"
        host = said.get("host")
        if host not in self._heard:
            return f"{host} is none of the hosts that train: {', '.join(self._heard)}"
        with self._changed:
            self._heard[host] = time.monotonic()
            if said.get("done"):
                self._left.discard(host)
                self._changed.notify_all()
        if said.get("error"):
            self.fail(f"the training host {host} failed: {said['error']}")
        return ""

    def __enter__(self) -> End:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False  # a stranger that says nothing holds up nobody

    def __init__(self, address: tuple[str, int], end: End) -> None:
        self.end = end
        super().__init__(address, _Line)


class _Line(socketserver.StreamRequestHandler):
    timeout = ANSWER_SECONDS

    def handle(self) -> None:
        try:
            said = json.loads(self.rfile.readline(LONGEST_LINE))
        except (OSError, ValueError):
            return
        if isinstance(said, dict) and isinstance(self.server, _Server):
            self.wfile.write(json.dumps({"refused": self.server.end.hear(said)}).encode() + b"\n")


class Voice:
    """Tells every data host, on a host that trains, that this one is alive; and how it ended.

    ``patience`` is how many seconds a data host may take to answer for the first time: machines start minutes apart.
    """

    def __init__(self, addresses: Sequence[tuple[str, int]], *, job: str, host: str, patience: float) -> None:
        self._addresses = [*addresses]
        self._who = {"job": job, "host": host}
        self._patience = patience
        self._over = threading.Event()
        for address in self._addresses:
            threading.Thread(target=self._beat, args=(address,), daemon=True).start()

    def end(self, error: str | None) -> None:
        """Tell all that this host is done, or what its error was."""
        self._over.set()
        for address in self._addresses:
            try:
                say(address, {**self._who, "done": True, "error": error}, 5.0 if error else ANSWER_SECONDS)
            except (OSError, DataServiceError) as problem:  # it ends of its own: of the silence
                print(f"the data host {address[0]} could not be told of the end: {problem}", flush=True)

    def give_up(self, reason: str) -> None:
        """End this process: a step that waits in TensorFlow for batches which no longer come hears no exception."""
        if self._over.is_set():
            return
        self.end(reason)
        print(f"{DataServiceError.__name__}: {reason}", file=sys.stderr, flush=True)
        os._exit(1)

    def _beat(self, address: tuple[str, int]) -> None:
        last, limit = time.monotonic(), self._patience
        while not self._over.is_set():
            try:
                say(address, self._who, ANSWER_SECONDS)
                last, limit = time.monotonic(), ANSWER_SECONDS
            except OSError as error:
                if time.monotonic() - last > limit:
                    self.give_up(f"the data host {address[0]} did not answer for {limit:g} s: {error}")
            except DataServiceError as error:
                self.give_up(str(error))
            self._over.wait(HEARTBEAT_SECONDS)


def say(address: tuple[str, int], words: dict[str, Any], seconds: float) -> None:
    """Tell a data host something. Raises ``OSError`` where it cannot be reached, ``DataServiceError`` where it refuses."""
    with socket.create_connection(address, timeout=seconds) as connection:
        connection.sendall(json.dumps(words).encode() + b"\n")
        with connection.makefile("rb") as answer:
            line = answer.readline(LONGEST_LINE)
    if not line:
        raise ConnectionError("the connection ended before an answer")
    if refused := json.loads(line)["refused"]:
        raise DataServiceError(f"the data host {address[0]} refused: {refused}")
