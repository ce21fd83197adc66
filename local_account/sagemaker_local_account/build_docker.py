"""The docker daemon of a build: it runs the stand-in `docker` outside the build's host, where packages can be fetched."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Mapping
from pathlib import Path

from . import leftovers
from .bound_process import BoundProcess
from .build_host import SOCKET

_MOST_BYTES = 1 << 20


class DockerDaemon:
    """Answers the build's `docker` at a socket in its folder.

    ``home`` is the folder that the build's host sees at the same path; nothing outside it goes into an image.
    ``environment`` is that of the account's clients, acting as the build's role.
    """

    def __init__(self, folder: Path, home: Path, environment: Mapping[str, str]) -> None:
        self._home, self._folder = home, home.parent
        self._config = folder / "docker"  # a build begins without log-ins, and its own are nobody else's
        self._environment = environment
        self._running: set[BoundProcess] = set()
        self._socket = socket.socket(socket.AF_UNIX)
        directory = os.open(folder, os.O_RDONLY)
        # By way of the folder: the path of a socket may not be longer than 108 characters.
        self._socket.bind(f"/proc/self/fd/{directory}/{SOCKET}")
        os.close(directory)
        self._socket.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for running in [*self._running]:
            running.kill()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            data, descriptors, _, _ = socket.recv_fds(connection, _MOST_BYTES, 3)
            try:
                while not data.endswith(b"\n") and (more := connection.recv(_MOST_BYTES)):
                    data += more
                request = json.loads(data)
                code = self._run(request["arguments"], request["directory"], descriptors)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            connection.sendall(str(code).encode())

    def _run(self, arguments: list[str], directory: str, descriptors: list[int]) -> int:
        outside = [path for path in (".", *arguments) if not self._is_within(directory, path)]
        if outside:
            problem = f"docker: a build's folders must be within {self._home}, got {outside[0]!r} from {directory!r}\n"
            os.write(descriptors[2], problem.encode())
            return 1
        stdin, stdout, stderr = descriptors
        with (
            leftovers.held(self._folder) as held,
            BoundProcess(
                [self._environment["CDK_DOCKER"], "--config", str(self._config), *arguments],
                cwd=directory,
                env=self._environment,
                held=held,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
            ) as running,
        ):
            self._running.add(running)
            code = running.wait()
        self._running.discard(running)
        return code

    def _is_within(self, directory: str, word: str) -> bool:
        value = word.partition("=")[2] if word.startswith("--") else word
        return Path(os.path.realpath(os.path.join(directory, value))).is_relative_to(os.path.realpath(self._home))
