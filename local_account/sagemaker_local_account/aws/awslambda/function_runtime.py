"""The runtime in the process of a Lambda function: it calls the handler with one event after the other.

It is executed as a program and imports only the standard library. Its standard input is a socket: each line is an invocation,
and each line that it writes there a result.
"""

from __future__ import annotations

import glob
import importlib
import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any


class Context:
    """The handler's second argument ("AWS Lambda context object in Python")."""

    def __init__(self, members: dict[str, Any], seconds: float) -> None:
        vars(self).update(members)
        self._until = time.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        """Returns the milliseconds until the function's timeout."""
        return max(0, round((self._until - time.monotonic()) * 1000))


Handler = Callable[[Any, Context], Any]


class NoHandler(Exception):
    """The module of the handler cannot be imported."""


def main() -> None:
    """Handles the invocations that come by the standard input, until it is closed."""
    # "Layer paths for each Lambda runtime"; the Python is the account's, so that of the layer's folder is not asked for.
    of_layers = ["/opt/python", *sorted(glob.glob("/opt/python/lib/python3.*/site-packages"))]
    sys.path[:0] = [os.getcwd(), *of_layers]
    channel, output = socket.socket(fileno=os.dup(0)), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # that of the handler is empty
    handler: Handler | None = None
    for line in channel.makefile("rb"):
        given = json.loads(line)
        request_id = ""  # of an error that comes before the handler is called
        try:
            handler = handler or _imported()
            request_id = given["context"]["aws_request_id"]
            value = handler(given["event"], Context(given["context"], given["seconds"]))
            # Bytes are the payload (stepfunctions, test_variables_in_lambda_task[BASE_ASSIGN_FROM_LAMBDA_TASK_RESULT]).
            payload = value.decode() if isinstance(value, bytes) else json.dumps(value, default=_text)
            failed = False
        except Exception as error:
            traceback.print_exc()
            payload, failed = json.dumps(_details(error, request_id)), True
        channel.sendall(json.dumps({"payload": payload, "failed": failed}).encode() + b"\n")
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(output, f"\n{given['last_line']}\n".encode())


def _imported() -> Handler:
    """The handler.

    Raises:
        NoHandler: its module cannot be imported (_get_handler of AWS's awslambdaric/bootstrap.py).
    """
    module, _, name = os.environ["_HANDLER"].rpartition(".")
    try:
        handler: Handler = getattr(importlib.import_module(module.replace("/", ".")), name)
    except ImportError as error:
        raise NoHandler(f"Unable to import module '{module}': {error}") from error
    return handler


def _details(error: Exception, request_id: str) -> dict[str, Any]:
    """The members of awslambdaric's make_error, as LocalStack recorded them (stepfunctions, test_raise_exception)."""
    if isinstance(error, NoHandler):
        kind, frames = "Runtime.ImportModuleError", []
    else:
        kind = type(error).__name__
        frames = [it for it in traceback.extract_tb(error.__traceback__) if it.filename != __file__]
    return {
        "errorMessage": str(error),
        "errorType": kind,
        "requestId": request_id,
        "stackTrace": traceback.format_list(frames),
    }


def _text(value: object) -> str:
    """Encodes bytes as simplejson does, with which Lambda's runtime for Python writes results."""
    if isinstance(value, bytes):
        return value.decode()
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


if __name__ == "__main__":
    main()
