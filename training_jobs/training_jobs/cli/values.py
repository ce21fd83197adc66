"""What is said of a value that an option does not take: the rule, an example and the value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperCommand

_RULES = {
    "int_parsing": "must be a whole number, like 4",
    "float_parsing": "must be a number, like 0.5",
    "greater_than_equal": "must be at least {ge:g}, like {ge:g}",
    "less_than_equal": "must be at most {le:g}, like {le:g}",
}


class Command(TyperCommand):
    """A command of typer, whose errors of values say what was given; older versions of typer say so themselves."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the arguments that are left.

        Args:
            ctx: As typer has it.
            args: The arguments.

        Raises:
            BadParameter: A value is none that its option takes.
        """
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            errors = getattr(error.__cause__, "errors", None)  # pydantic's
            if errors is not None:
                error.message = message_of(errors()[0])
            raise


def message_of(error: Mapping[str, Any]) -> str:
    """Return what is said of one of pydantic's errors.

    Args:
        error: With its ``type``, ``msg``, ``input`` and ``ctx``.
    """
    rule = _RULES.get(error["type"])
    if rule is None:
        message = str(error["msg"]).removeprefix("Value error, ")
        return message if repr(error["input"]) in message else f"{message}, got {error['input']!r}"
    return f"{rule.format(**error.get('ctx', {}))}, got {error['input']!r}"
