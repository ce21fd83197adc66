"""Checks of single props, each with the message that says what to write instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cdk_sagemaker_training.tokens import is_unresolved
from cdk_sagemaker_training.unlisted import check_listed


def check_choice(prop: str, value: Any, choices: tuple[Any, ...], name: str = "service-values") -> None:
    """Raise ``ValueError`` unless ``value`` is one of ``choices``, which a list of what AWS takes has, or is ``unlisted``."""
    listed = not isinstance(value, bool) and value in choices
    check_listed(name, value, listed, f"{prop} must be one of {', '.join(map(repr, choices))}")


def check_flag(prop: str, value: Any) -> None:
    """Raise ``ValueError`` unless ``value`` is True or False: the request's shape depends on it, so no token will do."""
    if not isinstance(value, bool):
        raise ValueError(f"{prop} must be True or False, like True, got {value!r}")


def check_text(prop: str, value: Any, example: str) -> None:
    """Raise ``ValueError`` unless ``value`` is text with something in it."""
    if not is_unresolved(value) and (not isinstance(value, str) or not value):
        raise ValueError(f"{prop} must be text, like {example!r}, got {value!r}")


def check_directory(prop: str, value: Any, example: str) -> None:
    """Raise ``ValueError`` unless ``value`` is an absolute path."""
    if not is_unresolved(value) and (not isinstance(value, str) or not value.startswith("/")):
        raise ValueError(f"{prop} must be an absolute path, like {example!r}, got {value!r}")


def words(prop: str, value: Any, example: Sequence[str]) -> tuple[str, ...]:
    """``value`` as a tuple of words; raises ``ValueError`` for one text, whose letters would be taken for them."""
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise ValueError(f"{prop} must be a list of words, like {list(example)}, got {value!r}")
    for word in value:
        if not isinstance(word, str):
            raise ValueError(f"{prop} must be a list of words, like {list(example)}, got {word!r} in it")
    return tuple(value)
