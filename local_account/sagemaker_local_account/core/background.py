"""Work that continues after its request is answered, such as a deployment."""

from __future__ import annotations

import concurrent.futures
import logging
import threading
from collections.abc import Callable

# AWS answers at once; work that ends within this time is answered with its result. Clients time out after 60 seconds and retry.
ANSWER_SECONDS = 5

_log = logging.getLogger(__name__)


def begin(work: Callable[[], None]) -> None:
    """Starts work on a separate thread; returns when it ends, at the latest after ANSWER_SECONDS.

    Raises:
        Exception: what the work raised within that time.
    """
    done: concurrent.futures.Future[None] = concurrent.futures.Future()

    def run() -> None:
        try:
            work()
        except BaseException as error:
            _log.exception("work in the background failed")
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, daemon=True).start()
    # Not result(timeout): the work itself may raise a TimeoutError.
    if done in concurrent.futures.wait([done], ANSWER_SECONDS).done:
        done.result()
