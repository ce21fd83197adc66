"""Checks of single props, each with the message that says what to write instead."""

from __future__ import annotations

from typing import Any

from cdk_sagemaker_training.tokens import is_unresolved
from cdk_sagemaker_training.unlisted import check_listed


def check_choice(prop: str, value: Any, choices: tuple[Any, ...], name: str = "service-values") -> None:
    """Raise ``ValueError`` unless ``value`` is one of ``choices``, which a list of what AWS takes has, or is ``unlisted``."""
    listed = not isinstance(value, bool) and value in choices
    check_listed(name, value, listed, f"{prop} must be one of {', '.join(map(repr, choices))}")


def check_text(prop: str, value: str, example: str) -> None:
    """Raise ``ValueError`` unless ``value`` is text with something in it."""
    if not is_unresolved(value) and not value:
        raise ValueError(f"{prop} must be text, like {example!r}, got {value!r}")


def check_directory(prop: str, value: str, example: str) -> None:
    """Raise ``ValueError`` unless ``value`` is an absolute path."""
    if not is_unresolved(value) and not value.startswith("/"):
        raise ValueError(f"{prop} must be an absolute path, like {example!r}, got {value!r}")
