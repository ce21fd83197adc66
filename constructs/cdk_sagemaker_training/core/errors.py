"""The one form of an error about a prop."""

from __future__ import annotations


def must(prop: str, rule: str, example: str, got: str) -> ValueError:
    """Return the error of a prop that breaks a rule, like ``count must be at least 1, like 2, got 0``.

    Args:
        prop: Name of the prop, with a place in it where that tells more, like ``"channels['images'].groups"``.
        rule: What follows "must", in lower case, like ``"be at least 1"``.
        example: Values that keep the rule, as Python source; empty where the rule itself has the value.
        got: The value, as Python source, and what it contradicts, like ``"True with network_isolation=True"``.
    """
    like = f", like {example}" if example else ""
    return ValueError(f"{prop} must {rule}{like}, got {got}")
