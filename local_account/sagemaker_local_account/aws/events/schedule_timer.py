"""The times of scheduled rules and schedules, on the account's clock, and the thread that looks for those that have come."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime

from sagemaker_local_account.aws.events.schedule_expressions import Expression
from sagemaker_local_account.core.clock import CLOCK

_log = logging.getLogger(__name__)

_EVERY_SECONDS = 0.2
#: How many invocations of one schedule are made when the clock passes more of its times at once.
MOST_AT_ONCE = 24


class Occurrences:
    """The times of one expression that are still to come.

    Args:
        expression: the expression.
        start: the first possible time.
        end: the last possible time; None for none.
    """

    def __init__(self, expression: Expression, start: datetime, end: datetime | None = None) -> None:
        self._times = expression.times(start)
        self._end = end
        self._next = next(self._times, None)

    @property
    def ended(self) -> bool:
        """Whether there are no more."""
        return self._next is None or (self._end is not None and self._next > self._end)

    def due(self, name: str) -> list[datetime]:
        """Returns the times that have passed since the last call, at most the last `MOST_AT_ONCE`.

        Args:
            name: of the schedule, for the log.
        """
        passed: deque[datetime] = deque(maxlen=MOST_AT_ONCE)
        count, now = 0, CLOCK.now()
        while not self.ended and self._next is not None and self._next <= now:
            passed.append(self._next)
            count += 1
            self._next = next(self._times, None)
        if count > len(passed):
            _log.warning(
                "%s: %d of its times passed at once, and it is invoked for the last %d", name, count, len(passed)
            )
        return [*passed]


class ScheduleTimer:
    """A thread that calls functions several times a second, each of which makes the invocations that are due.

    Args:
        looks: the functions.
    """

    def __init__(self, *looks: Callable[[], None]) -> None:
        self._looks = looks
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="schedules", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(_EVERY_SECONDS):
            for look in self._looks:
                try:
                    look()
                except Exception:
                    _log.exception("schedules were not looked at")
