"""The training host's own workers, as one more source of batches beside the data hosts, or the only one."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

from .batches import lent, read
from .errors import DataServiceError
from .making import Answer, End, Made, Raised
from .memory import Memory
from .slots import Slot
from .streams import Asked, Listener
from .workers import Workers


class Local:
    """Makes batches in ``workers``, which this object ends when it is closed."""

    def __init__(self, workers: Workers, listener: Listener, memory: Memory) -> None:
        self._workers, self._listener, self._memory = workers, listener, memory
        self._serials = itertools.count()
        self._asked: set[int] = set()
        self.workers = workers.count

    @property
    def outstanding(self) -> int:
        return len(self._asked)

    def ask(self, asked: Asked) -> bool:
        serial = next(self._serials)
        self._asked.add(serial)
        answered = self._answered(serial, asked)
        self._workers.submit(asked.epoch, asked.lane.shard, asked.lane.number(asked.key[1]), answered)
        return True

    def send(self) -> None:
        """Nothing: what is asked for is being made."""

    def close(self) -> None:
        self._workers.stop()

    def _answered(self, serial: int, asked: Asked) -> Callable[[Answer, Slot | None], None]:
        def take(answer: Answer, slot: Slot | None) -> None:
            self._asked.discard(serial)
            if isinstance(answer, Made) and slot is not None:
                # The batch stays where it was made; its place is free again when its last tensor is gone.
                memory = self._memory.pinned(lent(slot.view(answer.bytes), slot))
                self._listener.come(asked, read(json.loads(answer.description), memory), answer.bytes)
            elif isinstance(answer, End):
                self._listener.end(asked)
            elif isinstance(answer, Raised):
                self._listener.fail(DataServiceError(f"this host: {answer.text}"))

        return take
