"""Rules of single props, for their declarations (``props.prop.Prop``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved

# What checks a value that is neither None nor a token: of the prop's name, the value and an example, as Python source. It raises
# `ValueError`.
Rule = Callable[[str, Any, str], None]


def at_least(least: float, most: float | None = None, *, whole: bool = True) -> Rule:
    """Return the rule of a number.

    Args:
        least: The minimum.
        most: The maximum; None for none.
        whole: Whether the number is a whole one.
    """

    def check(prop: str, value: Any, example: str) -> None:
        if value < least or (most is not None and value > most):
            bounds = f"at least {least:g}{'' if most is None else f' and at most {most:g}'}"
            raise must(prop, f"be a {'whole ' if whole else ''}number of {bounds}", example, repr(value))

    return check


def not_empty(prop: str, value: str, example: str) -> None:
    """Check that a prop is not empty text."""
    if not value:
        raise must(prop, "be text", example, repr(value))


def absolute_path(prop: str, value: str, example: str) -> None:
    """Check that a prop is an absolute path."""
    if not value.startswith("/"):
        raise must(prop, "be an absolute path", example, repr(value))


def seconds_of(prop: str, duration: Any) -> int:
    """Return the whole seconds of a time.

    Args:
        prop: Name of the prop, for the message.
        duration: A ``Duration``, or a number of seconds; may be a token.

    Raises:
        ValueError: The time is not a whole number of seconds of at least 1.
    """
    seconds = duration
    if hasattr(duration, "to_seconds"):
        if duration.is_unresolved() and duration.unit_label() != "seconds":  # CDK does not convert a token
            got = f"a token of {duration.unit_label()}"
            raise must(prop, "be in seconds where it is a token", "Duration.seconds(token)", got)
        seconds = duration.to_seconds(integral=False)
    if is_unresolved(seconds):
        return seconds  # type: ignore[no-any-return]  # a token, which CDK encodes as a float
    whole = isinstance(seconds, int) or (isinstance(seconds, float) and seconds.is_integer())
    if isinstance(seconds, bool) or not whole or seconds < 1:
        got = f"{seconds!r} seconds" if hasattr(duration, "to_seconds") else repr(duration)
        raise must(prop, "be a Duration or whole seconds, at least 1", "Duration.hours(6)", got)
    return int(seconds)


def is_time(prop: str, value: Any, example: str) -> None:
    """Check that a prop is a time of whole seconds."""
    seconds_of(prop, value)
