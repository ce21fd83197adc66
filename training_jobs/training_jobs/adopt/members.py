"""A request from which members are taken until none is left, and what became of those that differ."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Difference:
    """A member whose value in the stack's request is another one than the job's.

    Attributes:
        member: Its path, such as ``"CheckpointConfig.S3Uri"``.
        value: The job's value; None where only the stack's request has the member.
        why: What the stack sends instead, and why.
    """

    member: str
    value: Any
    why: str


class Members:
    """The members of a request that are not yet in the stack.

    Attributes:
        differences: What was found to differ, also by the parts.
    """

    def __init__(self, request: Mapping[str, Any], path: str = "", differences: list[Difference] | None = None) -> None:
        """Copy a request.

        Args:
            request: The request, or a structure of it.
            path: The structure's path.
            differences: Of the whole request.
        """
        self.differences: list[Difference] = [] if differences is None else differences
        self._rest: dict[str, Any] = copy.deepcopy(dict(request))
        self._path = path

    def take(self, path: str) -> Any:
        """Remove a member and return its value; None where there is none.

        Args:
            path: Of the member.
        """
        *outer, name = path.split(".")
        structure: Any = self._rest
        for part in outer:
            structure = structure.get(part) or {}
        return structure.pop(name, None)

    def parts(self, path: str, name: str) -> list[Members]:
        """Remove a list of structures and return them.

        Args:
            path: Of the list.
            name: The member that distinguishes its structures.
        """
        return [
            Members(one, f"{self._path}{path}[{one.get(name, number)}].", self.differences)
            for number, one in enumerate(self.take(path) or [])
        ]

    def differs(self, member: str, value: Any, why: str) -> None:
        """Note that a member differs.

        Args:
            member: Its path.
            value: The job's value; None for a member that only the stack's request has.
            why: As in ``Difference``.
        """
        self.differences.append(Difference(self._path + member, value, why))

    def finish(self, why: str = "no prop sets this member: left out") -> None:
        """Note each member that was not taken.

        Args:
            why: As in ``Difference``.
        """
        for member, value in _leaves(self._rest):
            self.differs(member, value, why)
        self._rest = {}


def _leaves(structure: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in structure.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{path}{name}.")
        elif value not in (None, [], {}):
            yield path + name, value
