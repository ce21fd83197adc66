"""What becomes of an epoch's batches at a reader: to be asked, asked, here, given. No thread, no socket: only the account."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .epochs import Lane

Key = tuple[int, int]  # the lane, and which of its batches


@dataclass
class _Account:
    """One lane's: batches below ``given`` are given, and those of ``beyond``; those from ``asked`` on were never asked for."""

    lane: Lane
    given: int = 0
    beyond: set[int] = field(default_factory=set)
    asked: int = 0
    back: list[int] = field(default_factory=list)  # asked for in vain, in order
    here: dict[int, Any] = field(default_factory=dict)
    length: float = float("inf")

    @property
    def over(self) -> bool:
        return self.given >= self.length

    def next(self) -> int | None:
        """The first that can be asked for."""
        self.asked = max(self.asked, self.given)
        while self.asked in self.beyond:
            self.asked += 1
        first = self.back[0] if self.back else self.asked
        return first if first < self.length else None

    def give(self, n: int) -> Any:
        self.beyond.add(n)
        while self.given in self.beyond:
            self.beyond.remove(self.given)
            self.given += 1
        return self.here.pop(n)


class Desk:
    """The batches of one rank's epoch, from a position on. Each is given once, however often it has to be asked for.

    ``position`` is, for each lane, how many batches were given and which beyond those.
    """

    def __init__(
        self, lanes: Sequence[Lane], position: Sequence[tuple[int, Sequence[int]]] = (), *, ordered: bool
    ) -> None:
        self._accounts = [_Account(lane, length=float("inf") if lane.length is None else lane.length) for lane in lanes]
        for account, (given, beyond) in zip(self._accounts, position, strict=False):
            # Ranks may differ by one batch, so that another rank's position can be one beyond this one's end.
            account.given = account.asked = int(min(given, account.length))
            account.beyond = set(beyond)
        self._ordered = ordered
        self._arrived: deque[Key] = deque()
        self.asked = 0  # asked for, and not here
        self.here = 0  # and not given

    @property
    def done(self) -> bool:
        return all(account.over for account in self._accounts)

    @property
    def position(self) -> list[tuple[int, list[int]]]:
        return [(account.given, sorted(account.beyond)) for account in self._accounts]

    def lane(self, key: Key) -> Lane:
        return self._accounts[key[0]].lane

    def ask(self, accepts: Callable[[int], bool] = lambda lane: True) -> Key | None:
        """The next batch to ask for, of the lanes that are accepted; None where there is none."""
        found = [
            (n, number)
            for number, account in enumerate(self._accounts)
            if accepts(number) and (n := account.next()) is not None
        ]
        if not found:
            return None
        n, number = min(found)
        account = self._accounts[number]
        if account.back:
            heapq.heappop(account.back)
        else:
            account.asked += 1
        self.asked += 1
        return number, n

    def lost(self, key: Key) -> None:
        """It was asked for in vain, and is to be asked for again."""
        self.asked -= 1
        heapq.heappush(self._accounts[key[0]].back, key[1])

    def come(self, key: Key, batch: Any) -> None:
        self.asked -= 1
        account = self._accounts[key[0]]
        if key[1] < account.length:
            account.here[key[1]] = batch
            self.here += 1
            if not self._ordered:
                self._arrived.append(key)

    def end(self, key: Key) -> None:
        """The lane has no such batch."""
        self.asked -= 1
        account = self._accounts[key[0]]
        account.length = min(account.length, key[1])
        account.back = [n for n in account.back if n < account.length]

    @property
    def ready(self) -> bool:
        """Whether ``take`` would give one, or there is none left."""
        return self._turn() is not None or self.done

    def take(self) -> list[Any]:
        """The batch whose turn it is, if it is here: a list of one or none."""
        key = self._turn()
        if key is None:
            return []
        self.here -= 1
        if not self._ordered:
            self._arrived.popleft()
        return [self._accounts[key[0]].give(key[1])]

    def _turn(self) -> Key | None:
        if not self._ordered:
            return self._arrived[0] if self._arrived else None
        first = min(
            ((account.given, number) for number, account in enumerate(self._accounts) if not account.over), default=None
        )
        if first is None or first[0] not in self._accounts[first[1]].here:
            return None
        return first[1], first[0]


def checked_position(state: Mapping[str, Any], ranks: int) -> tuple[int, list[tuple[int, list[int]]]]:
    """The epoch and the position in it of a ``state_dict``. Raises ``ValueError`` where it is of another number of ranks."""
    if state["ranks"] != ranks:
        raise ValueError(f"state_dict must be of as many ranks as read now, {ranks}, got one of {state['ranks']}")
    return int(state["epoch"]), [(int(given), list(beyond)) for given, beyond in state["given"]]
