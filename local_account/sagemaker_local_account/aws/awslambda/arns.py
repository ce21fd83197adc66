"""The ARNs of functions, with and without a version or an alias, and of the queues that they use."""

from __future__ import annotations

from typing import Any


def unqualified(arn: str) -> str:
    """Returns the ARN of a function without the version or the alias that may be its last part."""
    return ":".join(arn.split(":")[:7])


def qualified(arn: str, name: str) -> str:
    """Returns the ARN of a function with the version or the alias of what names it.

    Args:
        arn: its ARN, which may have one of its own.
        name: the function's name or ARN, either with a version, an alias, or neither.
    """
    parts = name.split(":")
    return ":".join([unqualified(arn), *(parts[7:8] if name.startswith("arn:") else parts[1:2])])


def queue_url(client: Any, arn: str) -> str:
    """Returns the URL of the queue of an ARN.

    Args:
        client: of SQS.
        arn: of the queue.
    """
    account, name = arn.split(":")[4:6]
    return f"{client.meta.endpoint_url}/{account}/{name}"
