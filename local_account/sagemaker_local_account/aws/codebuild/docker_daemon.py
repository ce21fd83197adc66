"""The docker daemon of a build: it runs the stand-in `docker` outside the build's host, with access to package indexes."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Mapping
from pathlib import Path

from sagemaker_local_account.aws.codebuild.agent import SOCKET
from sagemaker_local_account.core.bound_process import BoundProcess
from sagemaker_local_account.runtime import leftovers

_MOST_BYTES = 1 << 20


class DockerDaemon:
    """A server for the build's `docker` on a Unix socket.

    Args:
        folder: the folder for the socket.
        home: the folder that is mounted at the same path in the build's host; paths outside of it are rejected.
        environment: the environment of the account's clients, with the credentials of the build's role.
    """

    def __init__(self, folder: Path, home: Path, environment: Mapping[str, str]) -> None:
        self._home, self._folder = home, home.parent
        self._config = folder / "docker"  # the build's own logins
        self._environment = environment
        self._running: set[BoundProcess] = set()
        self._socket = socket.socket(socket.AF_UNIX)
        directory = os.open(folder, os.O_RDONLY)
        # Through the folder's descriptor: the path of a socket is limited to 108 characters.
        self._socket.bind(f"/proc/self/fd/{directory}/{SOCKET}")
        os.close(directory)
        self._socket.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Closes the socket, and kills running commands."""
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
            leftovers.mark_in_use(self._folder) as keep_open,
            BoundProcess(
                [self._environment["CDK_DOCKER"], "--config", str(self._config), *arguments],
                cwd=directory,
                env=self._environment,
                keep_open=keep_open,
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
