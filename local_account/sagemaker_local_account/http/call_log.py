"""The access log `account.log`: a line per call, and a stack trace only for a defect of the account itself.

A call's line is `TIME SERVICE OPERATION CALLER JOB STATUS DURATION`, with `-` for a missing field:

    2026-01-01T00:00:00Z sagemaker CreateTrainingJob arn:aws:iam::123456789012:root my-job 200 12 ms
    2026-01-01T00:00:01Z s3 GetObject arn:aws:sts::123456789012:assumed-role/Jobs/SageMaker - 404/NoSuchKey 3 ms
"""

from __future__ import annotations

import logging
import re
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from sagemaker_local_account.core import error_responses
from sagemaker_local_account.core.request_body import drop_invalid_length
from sagemaker_local_account.http.call_names import OPERATION, job_of, operation_of, service_of
from sagemaker_local_account.iam.authentication import KEY

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_HEAD_BYTES = 65536  # of an error's body, from which its code is read
_calls = logging.getLogger("sagemaker_local_account.calls")
_log = logging.getLogger(__name__)


class Formatter(logging.Formatter):
    """Formats lines with the time in UTC; a call's line has no level and no logger."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    @override
    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))

    @override
    def format(self, record: logging.LogRecord) -> str:
        return (
            f"{self.formatTime(record)} {record.getMessage()}" if record.name == _calls.name else super().format(record)
        )


class CallLog:
    """WSGI middleware that logs each call, and answers an unhandled exception with InternalFailure.

    Args:
        app: the application behind it.
        caller_of: returns the ARN of an access key's principal.
        log: the log file, which the message of an InternalFailure names.
    """

    def __init__(self, app: WSGIApplication, *, caller_of: Callable[[str], str], log: Path) -> None:
        self._app = app
        self._caller_of = caller_of
        self._file = log

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Calls the application behind it; the call is logged when its response has been sent."""
        drop_invalid_length(environ)
        call = _Call(environ, start_response)
        try:
            call.body = self._app(environ, call.start)
        except Exception as error:
            if isinstance(error, ConnectionError) and _has_left(environ):
                self._write(call, "ClientDisconnected")
                raise
            # Also for a broken connection of the account's own: without a response the client would wait for ever.
            call.body = self._failed(call)
        return _Answer(self, call)

    def _failed(self, call: _Call) -> Iterable[bytes]:
        """Logs an unhandled exception with its trace, and answers InternalFailure."""
        _log.exception("request %s: %s %s failed", call.id, service_of(call.environ), call.operation)
        message = f"the local account failed to answer; its log says why, at request {call.id}: {self._file}"
        return error_responses.error(call.environ, call.start, "500 Internal Server Error", "InternalFailure", message)

    def _write(self, call: _Call, error: str | None = None) -> None:
        key = call.environ.get(KEY)
        _calls.info(
            "%s %s %s %s %s %d ms",
            service_of(call.environ),
            call.operation,
            self._caller_of(key) if key else "-",
            call.job,
            "/".join(filter(None, [call.status or "-", error or call.error_code()])),
            round((time.monotonic() - call.began) * 1000),
        )


def _has_left(environ: WSGIEnvironment) -> bool:
    """Whether the client has closed its connection."""
    try:
        return environ["werkzeug.socket"].recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except (KeyError, OSError):
        return True


class _Call:
    """A call and its response as far as it has begun."""

    def __init__(self, environ: WSGIEnvironment, start_response: StartResponse) -> None:
        self.environ = environ
        self.id = environ[error_responses.REQUEST_ID] = str(uuid.uuid4())
        self.began = time.monotonic()
        # Before the body is consumed.
        self.operation = environ[OPERATION] = operation_of(environ)
        self.job = job_of(environ)
        self.status = ""
        self.head = b""
        self.body: Iterable[bytes] = []
        self._code = ""
        self._start_response = start_response

    def start(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        self.status = status.partition(" ")[0]
        self._code = next((value for name, value in headers if name.lower() == "x-amzn-errortype"), "")
        return self._start_response(status, headers, exc_info)

    def error_code(self) -> str:
        """AWS's error code, from the header or from the body, as JSON or XML."""
        if self.status < "400":
            return ""
        found = re.search(rb'"__type"\s*:\s*"([^"]+)"|<Code>([^<]+)</Code>|"code"\s*:\s*"([^"]+)"', self.head)
        code = self._code or (next(filter(None, found.groups())).decode() if found else "")
        return code.rpartition("#")[2].partition(":")[0]


class _Answer:
    """A response's body; the call is logged when it has been sent or the client has disconnected."""

    def __init__(self, log: CallLog, call: _Call) -> None:
        self._log, self._call = log, call

    def __iter__(self) -> Iterator[bytes]:
        try:
            for data in self._call.body:
                self._keep(data)
                yield data
        except ConnectionError:
            raise
        except Exception:
            began = bool(self._call.status)
            body = self._log._failed(self._call)
            if began:  # the headers have been sent: the connection is closed
                raise ConnectionAbortedError from None
            yield from body

    def _keep(self, data: bytes) -> None:
        if self._call.status >= "400" and len(self._call.head) < _HEAD_BYTES:
            self._call.head += data

    def close(self) -> None:
        close = getattr(self._call.body, "close", None)
        if close is not None:
            close()
        self._log._write(self._call)
