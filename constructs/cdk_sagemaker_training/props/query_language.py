"""The query languages of Step Functions: what a request needs of ``jsonpath`` and of ``jsonata``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class QueryLanguage(Protocol):
    """How what an execution decides is written in a request.

    Attributes:
        NAME: Its name.
        EXAMPLE: A place in an execution's input, as Python source, for messages.
        EXECUTION_ID: The expression of the execution's ARN.
    """

    NAME: str
    EXAMPLE: str
    EXECUTION_ID: str

    def path(self, expression: str) -> str:
        """Return an expression as a value."""

    def expression(self, text: str) -> str:
        """Return text, or an expression as a value, as an operand of an expression."""

    def below(self, uri: str, folder: str) -> str:
        """Return a place below another, as a value.

        Args:
            uri: The other, with its last slash.
            folder: An expression of what follows, without a slash at its end.
        """

    def is_other(self, value: Any) -> bool:
        """Return whether a value has an expression of the other language."""

    def render(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a request as a Task state has it."""
