"""Polls a description until it is that of something over."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

Description = dict[str, Any]


def poll(
    describe: Callable[[], Description],
    is_over: Callable[[Description], bool],
    poll_seconds: float,
    progress: Callable[[Description], None] | None,
) -> Description:
    """Call ``describe`` until what it describes is over.

    Args:
        describe: Returns a description.
        is_over: Whether a description is the last one.
        poll_seconds: Seconds between two calls.
        progress: Called with each description; None for nothing.

    Returns:
        The last description.
    """
    while True:
        described = describe()
        if progress is not None:
            progress(described)
        if is_over(described):
            return described
        time.sleep(poll_seconds)
