"""Work that goes on after its request is answered, as a deployment does that builds an image."""

from __future__ import annotations

import concurrent.futures
import logging
import threading
from collections.abc import Callable

# AWS answers at once. What is done by then is told at once too; clients give up on an answer after a minute, and ask again.
ANSWER_SECONDS = 5

_log = logging.getLogger(__name__)


def begin(work: Callable[[], None]) -> None:
    """Do it on a thread of its own, and return when it is done or after a moment. Raises what it raises until then."""
    done: concurrent.futures.Future[None] = concurrent.futures.Future()

    def run() -> None:
        try:
            work()
        except BaseException as error:
            _log.exception("what went on after its answer failed")
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, daemon=True).start()
    # A TimeoutError of the work's own is the same class as that of waiting.
    if done in concurrent.futures.wait([done], ANSWER_SECONDS).done:
        done.result()
