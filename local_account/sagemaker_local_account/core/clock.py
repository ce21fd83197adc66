"""The account's clock: the machine's, and what it was advanced by, so that a test of days takes seconds.

Its timers are those of Step Functions (Wait, Retry, an execution's TimeoutSeconds), of training jobs (MaxRuntimeInSeconds,
MaxWaitTimeInSeconds, MaxPendingTimeInSeconds, the end of an interruption), of EventBridge's rules and schedules, and of
CloudWatch's alarms; the times of jobs and of executions are its own too. What clients and hosts time themselves, signatures,
credentials, and the timestamps of logs and histories are the machine's.
"""

from __future__ import annotations

import datetime
import math
import threading
import time
from collections.abc import Callable


class Clock:
    """A clock that can be advanced; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ahead = 0.0
        self.watchers: set[Callable[[float], None]] = set()  # called with the seconds before it is advanced

    @property
    def ahead(self) -> float:
        """The seconds by which it is ahead of the machine's."""
        with self._lock:
            return self._ahead

    def monotonic(self) -> float:
        """Returns seconds, of which only differences have a meaning."""
        return time.monotonic() + self.ahead

    def now(self) -> datetime.datetime:
        """Returns the time, in UTC."""
        return datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=self.ahead)

    def advance(self, seconds: float) -> None:
        """Advances the clock; what waits for a time that has then passed goes on at its next look.

        Args:
            seconds: more than 0.

        Raises:
            ValueError: the clock would go backwards, or not at all.
        """
        if not (isinstance(seconds, int | float) and math.isfinite(seconds) and seconds > 0):
            raise ValueError(f"seconds must be a number above 0, like 1200, got {seconds!r}")
        for watcher in [*self.watchers]:
            watcher(seconds)
        with self._lock:
            self._ahead += seconds

    def reset(self) -> None:
        """Sets the clock to the machine's, for a new account."""
        with self._lock:
            self._ahead = 0.0


#: The clock of the process's account; like moto's state it belongs to the process.
CLOCK = Clock()
