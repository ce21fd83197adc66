"""Heartbeats: every training host reports to every data host that it is alive, and finally that it has finished or failed.

tf.data service itself does not end with the training. A message is one line of JSON over TCP with the job's ARN, which detects
misdirected messages and is not a secret: access is limited by the job's security group.
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
ANSWER_SECONDS = 30.0  # after which a data host that has answered before is lost
LONGEST_LINE = 65536


class DataServiceError(Exception):
    """The service has failed; the message says why."""


class End:
    """Receives heartbeats on a data host, until the training has ended.

    Args:
        training: the training hosts.
        job: the TRAINING_JOB_ARN that messages must have.
        heartbeat_timeout: seconds without a heartbeat of one of them, also at the start, after which ``wait`` raises.
        port: 0 for a free one, which is then the attribute ``port``.
    """

    def __init__(
        self, training: Sequence[str], job: str, *, heartbeat_timeout: float, port: int = 0, host: str = ""
    ) -> None:
        self._last_heartbeat = dict.fromkeys(training, time.monotonic())
        self._left = set(training)
        self._job, self._heartbeat_timeout = job, heartbeat_timeout
        self._error: str | None = None
        self._changed = threading.Condition()
        self._server = _Server((host, port), self)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()

    def wait(self) -> None:
        """Return when every host has finished. Raises ``DataServiceError`` where one failed or sends no heartbeats."""
        with self._changed:
            while self._left and self._error is None:
                quiet = min(self._left, key=self._last_heartbeat.__getitem__)
                left = self._last_heartbeat[quiet] + self._heartbeat_timeout - time.monotonic()
                if left <= 0:
                    self._error = f"no heartbeat of the training host {quiet} for {self._heartbeat_timeout:g} s"
                self._changed.wait(max(left, 0))
            if self._error is not None:
                raise DataServiceError(self._error)

    def fail(self, reason: str) -> None:
        """Let ``wait`` raise."""
        with self._changed:
            self._error = self._error or reason
            self._changed.notify_all()

    def receive(self, message: dict[str, Any]) -> str:
        """Handle a message. Returns the reason why it is rejected, or ""."""
        if not hmac.compare_digest(str(message.get("job")).encode(), self._job.encode()):
            return "this data host serves another training job"
        host = message.get("host")
        if host not in self._last_heartbeat:
            return f"{host} is none of the hosts that train: {', '.join(self._last_heartbeat)}"
        with self._changed:
            self._last_heartbeat[host] = time.monotonic()
            if message.get("done"):
                self._left.discard(host)
                self._changed.notify_all()
        if message.get("error"):
            self.fail(f"the training host {host} failed: {message['error']}")
        return ""

    def __enter__(self) -> End:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False  # idle connections do not block the end

    def __init__(self, address: tuple[str, int], end: End) -> None:
        self.end = end
        super().__init__(address, _Line)


class _Line(socketserver.StreamRequestHandler):
    timeout = ANSWER_SECONDS

    def handle(self) -> None:
        try:
            message = json.loads(self.rfile.readline(LONGEST_LINE))
        except (OSError, ValueError):
            return
        if isinstance(message, dict) and isinstance(self.server, _Server):
            self.wfile.write(json.dumps({"refused": self.server.end.receive(message)}).encode() + b"\n")


class Heartbeats:
    """Sends heartbeats from a training host to every data host, and finally its result.

    ``connect_timeout``: seconds until the first answer of a data host: machines start minutes apart.
    """

    def __init__(self, addresses: Sequence[tuple[str, int]], *, job: str, host: str, connect_timeout: float) -> None:
        self._addresses = [*addresses]
        self._who = {"job": job, "host": host}
        self._connect_timeout = connect_timeout
        self._over = threading.Event()
        for address in self._addresses:
            threading.Thread(target=self._beat, args=(address,), daemon=True).start()

    def end(self, error: str | None) -> None:
        """Report to all data hosts that this host has finished, or its error."""
        self._over.set()
        for address in self._addresses:
            try:
                send(address, {**self._who, "done": True, "error": error}, 5.0 if error else ANSWER_SECONDS)
            except (OSError, DataServiceError) as problem:  # the data host ends by its heartbeat timeout
                print(f"the end was not reported to the data host {address[0]}: {problem}", flush=True)

    def give_up(self, reason: str) -> None:
        """End this process: an exception does not reach a step that waits for batches in TensorFlow."""
        if self._over.is_set():
            return
        self.end(reason)
        print(f"{DataServiceError.__name__}: {reason}", file=sys.stderr, flush=True)
        os._exit(1)

    def _beat(self, address: tuple[str, int]) -> None:
        last, limit = time.monotonic(), self._connect_timeout
        while not self._over.is_set():
            try:
                send(address, self._who, ANSWER_SECONDS)
                last, limit = time.monotonic(), ANSWER_SECONDS
            except OSError as error:
                if time.monotonic() - last > limit:
                    self.give_up(f"the data host {address[0]} did not answer for {limit:g} s: {error}")
            except DataServiceError as error:
                self.give_up(str(error))
            self._over.wait(HEARTBEAT_SECONDS)


def send(address: tuple[str, int], message: dict[str, Any], seconds: float) -> None:
    """Send a message to a data host. Raises ``OSError`` where it cannot be reached, ``DataServiceError`` where it rejects it."""
    with socket.create_connection(address, timeout=seconds) as connection:
        connection.sendall(json.dumps(message).encode() + b"\n")
        with connection.makefile("rb") as answer:
            line = answer.readline(LONGEST_LINE)
    if not line:
        raise ConnectionError("the connection ended before an answer")
    if refused := json.loads(line)["refused"]:
        raise DataServiceError(f"the data host {address[0]} rejected the message: {refused}")
