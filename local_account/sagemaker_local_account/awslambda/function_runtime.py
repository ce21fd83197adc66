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
        returned = json.dumps(handler(given["event"], Context(given["context"], given["seconds"])))
    except Exception as error:
        traceback.print_exc()
        result.write_text(json.dumps({"errorMessage": str(error), "errorType": type(error).__name__}))
        return 1
    result.write_text(returned)
    return 0


if __name__ == "__main__":
    sys.exit(main())
