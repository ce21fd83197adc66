"""Checks of single props; each error message names the prop, the rule, an example and the value."""

from __future__ import annotations

from typing import Any

from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import check_listed


def check_choice(prop: str, value: Any, choices: tuple[Any, ...], name: str = "service-values") -> None:
    """Check that a prop has one of the values that AWS accepts.

    Args:
        prop: Name of the prop, for the message.
        value: The value; a CDK token and an ``unlisted`` value pass.
        choices: The accepted values.
        name: Key in ``unlisted.LISTS`` of the list that ``choices`` comes from.

    Raises:
        ValueError: ``value`` is none of ``choices``.
    """
    listed = not isinstance(value, bool) and value in choices
    check_listed(name, value, listed, f"{prop} must be one of {', '.join(map(repr, choices))}")


def check_text(prop: str, value: str, example: str) -> None:
    """Check that a prop is not empty text.

    Args:
        prop: Name of the prop, for the message.
        value: The text; a CDK token passes.
        example: A valid value, for the message.

    Raises:
        ValueError: ``value`` is empty.
    """
    if not is_unresolved(value) and not value:
        raise ValueError(f"{prop} must be text, like {example!r}, got {value!r}")


def check_directory(prop: str, value: str, example: str) -> None:
    """Check that a prop is an absolute path.

    Args:
        prop: Name of the prop, for the message.
        value: The path; a CDK token passes.
        example: A valid value, for the message.

    Raises:
        ValueError: ``value`` does not begin with a slash.
    """
    if not is_unresolved(value) and not value.startswith("/"):
        raise ValueError(f"{prop} must be an absolute path, like {example!r}, got {value!r}")


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
        try:
            seconds = duration.to_seconds(integral=False)
        except RuntimeError as error:  # jsii's: CDK does not convert a token of another unit
            raise ValueError(
                f"{prop} must be in seconds where it is a token, like Duration.seconds(token): {error}"
            ) from error
    if is_unresolved(seconds):
        return seconds  # type: ignore[no-any-return]  # a token, which CDK encodes as a float
    whole = isinstance(seconds, int) or (isinstance(seconds, float) and seconds.is_integer())
    if isinstance(seconds, bool) or not whole or seconds < 1:
        got = f"{seconds!r} seconds" if hasattr(duration, "to_seconds") else repr(duration)
        raise ValueError(f"{prop} must be a Duration or whole seconds, at least 1, like Duration.hours(6), got {got}")
    return int(seconds)
