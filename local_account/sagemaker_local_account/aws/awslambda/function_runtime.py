"""The runtime in the process of a Lambda function: it calls the handler with the event, and writes its result.

It is executed as a program and imports only the standard library.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any


class Context:
    """The handler's second argument ("AWS Lambda context object in Python")."""

    def __init__(self, members: dict[str, Any], seconds: float) -> None:
        vars(self).update(members)
        self._until = time.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        """Returns the milliseconds until the function's timeout."""
        return max(0, round((self._until - time.monotonic()) * 1000))


def main() -> int:
    """Runs the handler of the invocation in the file `sys.argv[1]`; returns the exit code."""
    given = json.loads(Path(sys.argv[1]).read_text())
    result = Path(given["result"])
    sys.path.insert(0, os.getcwd())
    try:
        module, _, name = os.environ["_HANDLER"].rpartition(".")
        handler = getattr(importlib.import_module(module.replace("/", ".")), name)
        value = handler(given["event"], Context(given["context"], given["seconds"]))
        # Bytes are the payload (stepfunctions, test_variables_in_lambda_task[BASE_ASSIGN_FROM_LAMBDA_TASK_RESULT]).
        returned = value if isinstance(value, bytes) else json.dumps(value, default=_text).encode()
    except Exception as error:
        traceback.print_exc()
        frames = [it for it in traceback.extract_tb(error.__traceback__) if it.filename != __file__]
        # The members of awslambdaric's make_error, as LocalStack recorded them (stepfunctions, test_raise_exception).
        details = {
            "errorMessage": str(error),
            "errorType": type(error).__name__,
            "requestId": given["context"]["aws_request_id"],
            "stackTrace": traceback.format_list(frames),
        }
        result.write_text(json.dumps(details))
        return 1
    result.write_bytes(returned)
    return 0


def _text(value: object) -> str:
    """Encodes bytes as simplejson does, with which Lambda's runtime for Python writes results."""
    if isinstance(value, bytes):
        return value.decode()
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


if __name__ == "__main__":
    sys.exit(main())
