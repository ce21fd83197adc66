"""The HTTP server of an account, on 127.0.0.1 with a thread per request, and its log file."""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from sagemaker_local_account.core import error_responses
from sagemaker_local_account.core.state import AccountError
from sagemaker_local_account.http.call_log import Formatter

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment
    from werkzeug.serving import BaseWSGIServer

_log = logging.getLogger(__name__)

# The loggers that write to the account's log.
LOGGERS = ("sagemaker_local_account", "moto")


def listen(port: int) -> socket.socket:
    """Listens on 127.0.0.1.

    Args:
        port: the port; 0 for a free one.

    Raises:
        AccountError: the port cannot be bound.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # Allows a port in TIME_WAIT, not one with a listener.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise AccountError(
            f"cannot bind 127.0.0.1:{port} ({error.strerror}); stop the process that listens there, "
            "or choose another port with --port (0 for a free one)"
        ) from error
    return listener


def make(listener: socket.socket, app: Any) -> BaseWSGIServer:
    """Returns a threaded server for a WSGI application on a listening socket, which it takes over."""
    from moto.moto_server.werkzeug_app import MotoRequestHandler
    from werkzeug.serving import make_server

    class Handler(MotoRequestHandler):
        """moto's handler with its lines in the account's log instead of the terminal."""

        protocol_version = "HTTP/1.1"

        def log(self, type: str, message: str, *args: Any) -> None:
            """Logs errors of the HTTP protocol; calls are logged by `CallLog`."""
            if type == "error":
                _log.warning("%s", " ".join((message % args if args else message).split()))

        def connection_dropped(self, error: BaseException, environ: WSGIEnvironment | None = None) -> None:
            """Closes the connection of a response that could not be sent, which the client else waits for."""
            self.close_connection = True

    server = make_server(
        "127.0.0.1", listener.getsockname()[1], app, threaded=True, request_handler=Handler, fd=listener.fileno()
    )
    listener.close()
    server.daemon_threads = True  # type: ignore[attr-defined]
    return server


def disk_full(
    environ: WSGIEnvironment, start_response: StartResponse, state: Path, error: Exception
) -> Iterable[bytes]:
    """Answers 507 for an error of a full disk: AWS's clients retry 500, 502, 503 and 504."""
    message = f"the disk of the local account's folder {state} is full: {error}. Free some space, and try again"
    _log.warning("%s %s: %s", environ["REQUEST_METHOD"], environ["REQUEST_URI"], message)
    return error_responses.error(environ, start_response, "507 Insufficient Storage", "InsufficientStorage", message)


class LogFile(logging.FileHandler):
    """The account's log file; on a full disk lines are dropped, without an error."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # it could not be opened
            self.handleError(record)

    @override
    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)

    @override
    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()


def log_to(path: Path) -> logging.Handler:
    """Makes the account's loggers write to a file, which is truncated; returns the handler for `stop_log`."""
    handler = LogFile(path, mode="w", delay=True)
    handler.setFormatter(Formatter())
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.propagate = False
    logging.getLogger("sagemaker_local_account").setLevel(logging.INFO)
    return handler


def stop_log(handler: logging.Handler) -> None:
    """Undoes `log_to`."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.removeHandler(handler)
        logger.propagate = True
    handler.close()
