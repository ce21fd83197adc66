"""The HTTP server of an account: on 127.0.0.1 only, a thread per request, its lines in the account's log."""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import answers
from .call_log import Formatter
from .state import AccountError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment
    from werkzeug.serving import BaseWSGIServer

_log = logging.getLogger(__name__)

# Whose lines the log has.
LOGGERS = ("sagemaker_local_account", "moto")


def listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # A port just given free by an earlier account is free; one with a listener still is not.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise AccountError(
            f"port {port} of 127.0.0.1 cannot be had ({error.strerror}); stop what listens there, "
            "or choose another with --port (0 takes a free one)"
        ) from error
    return listener


def make(listener: socket.socket, app: Any) -> BaseWSGIServer:
    from moto.moto_server.werkzeug_app import MotoRequestHandler
    from werkzeug.serving import make_server

    class Handler(MotoRequestHandler):
        """moto's handler with its lines in the account's log instead of the terminal."""

        protocol_version = "HTTP/1.1"

        def log(self, type: str, message: str, *args: Any) -> None:
            """What is no call: a request that is no HTTP. Calls have lines of their own."""
            if type == "error":
                _log.warning("%s", " ".join((message % args if args else message).split()))

    server = make_server(
        "127.0.0.1", listener.getsockname()[1], app, threaded=True, request_handler=Handler, fd=listener.fileno()
    )
    listener.close()
    server.daemon_threads = True  # type: ignore[attr-defined]
    return server


def disk_full(
    environ: WSGIEnvironment, start_response: StartResponse, state: Path, error: Exception
) -> Iterable[bytes]:
    """Refuse what takes space that is not there; not with a status that AWS's clients try again (500, 502, 503, 504)."""
    message = f"the disk of the local account's folder {state} is full: {error}. Make room, and try again"
    _log.warning("%s %s: %s", environ["REQUEST_METHOD"], environ["REQUEST_URI"], message)
    return answers.error(environ, start_response, "507 Insufficient Storage", "InsufficientStorage", message)


class LogFile(logging.FileHandler):
    """The account's log. Lines for which its disk has no room are lost, and nothing else is."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # it could not be opened
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()


def log_to(path: Path) -> logging.Handler:
    handler = LogFile(path, mode="w", delay=True)
    handler.setFormatter(Formatter())
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.propagate = False
    logging.getLogger("sagemaker_local_account").setLevel(logging.INFO)
    return handler


def stop_log(handler: logging.Handler) -> None:
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.removeHandler(handler)
        logger.propagate = True
    handler.close()
