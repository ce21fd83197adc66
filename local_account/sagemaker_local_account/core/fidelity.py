"""How far an answer of the account can be trusted: what is recorded on AWS, documented by AWS, or assumed.

The rows are data, `fidelity.toml`. `local-account fidelity`, the web page and docs/fidelity.md show them, and an execution that
uses an assumed behavior says so once in the account's log.
"""

from __future__ import annotations

import functools
import logging
import textwrap
import threading
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["recorded", "documented", "assumed"]

_log = logging.getLogger(__name__)
_COLUMNS = 80


@dataclass(frozen=True)
class Row:
    """An operation or feature of a service.

    Args:
        feature: what it is.
        recorded: where AWS's answers are; "" for none, as below.
        documented: AWS's page.
        assumed: what is done here.
        answers: how many of AWS's answers are known.
        equal: how many of them are equal here.
        rest: why the others are not.
        id: names a row whose use by an execution is logged.
    """

    feature: str
    recorded: str = ""
    documented: str = ""
    assumed: str = ""
    answers: int = 0
    equal: int = 0
    rest: str = ""
    id: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError unless it is of one kind."""
        if sum(map(bool, (self.recorded, self.documented, self.assumed))) != 1:
            raise ValueError(f"{self.feature}: must have one of recorded, documented and assumed")
        if bool(self.recorded) != bool(self.answers) or not 0 <= self.equal <= self.answers:
            raise ValueError(f"{self.feature}: answers and equal must be counts of recorded answers")
        if bool(self.rest) != (self.equal < self.answers):
            raise ValueError(f"{self.feature}: rest must say why {self.answers - self.equal} answers are not equal")

    @property
    def kind(self) -> Kind:
        """Which of the three it is."""
        return "recorded" if self.recorded else "documented" if self.documented else "assumed"

    @property
    def basis(self) -> str:
        """The counts and the source, the page, or the assumption."""
        if self.recorded:
            rest = f"; the rest: {self.rest}" if self.rest else ""
            return f"{self.equal} of {self.answers} answers equal{rest} ({self.recorded})"
        return self.documented or self.assumed


@functools.cache
def services() -> Mapping[str, list[Row]]:
    """Returns the rows by service."""
    read = tomllib.loads(Path(__file__).with_name("fidelity.toml").read_text())
    return {service: [Row(**row) for row in rows] for service, rows in read.items()}


def as_text() -> str:
    """Returns all rows, at most 80 columns wide."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for service, rows in services().items():
        yield service
        for row in rows:
            first = f"  {row.kind:<11}"
            rest = " " * len(first)
            for text, begins, goes_on in ((row.feature, first, rest), (row.basis, f"{rest}  ", f"{rest}  ")):
                # Names of repositories stay whole.
                yield from textwrap.wrap(
                    text, _COLUMNS, initial_indent=begins, subsequent_indent=goes_on, break_on_hyphens=False
                )


class Assumptions:
    """Logs which executions used assumed behaviors, each once."""

    def __init__(self) -> None:
        self._rows = {row.id: row for rows in services().values() for row in rows if row.id}
        self._logged: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def used(self, execution: str, id: str) -> None:
        """Logs that an execution used the behavior of a row, the first time.

        Args:
            execution: its ARN.
            id: of the row.
        """
        row = self._rows[id]
        with self._lock:
            if (execution, id) in self._logged:
                return
            self._logged.add((execution, id))
        _log.info(
            "%s used what AWS neither documents nor answered on record: %s: %s (local-account fidelity)",
            execution,
            row.feature,
            row.assumed,
        )

    def forget(self) -> None:
        """Forgets the executions of an earlier account."""
        with self._lock:
            self._logged.clear()


#: Of the process's account.
ASSUMPTIONS = Assumptions()
