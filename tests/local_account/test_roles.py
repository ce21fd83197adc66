"""Roles, which stacks that are deployed beside each other make while others are looked for."""

from __future__ import annotations

from moto.iam.models import iam_backends
from running_account import Running


def test_a_role_is_found_while_another_is_made(running: Running) -> None:
    """A deployment of four stacks at once failed by "dictionary changed size during iteration"."""
    first = running.role("first-of-two", "lambda.amazonaws.com")
    looked_through = iter(iam_backends["123456789012"]["aws"].get_roles())
    found = [next(looked_through)]
    running.role("second-of-two", "lambda.amazonaws.com")
    assert first in {role.arn for role in [*found, *looked_through]}
