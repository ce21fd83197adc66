"""Reads the account's own JSON files; one that is damaged is named, with what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_object(file: Path, error: type[Exception], remedy: str) -> dict[str, Any]:
    """Returns the object in a file.

    Args:
        file: the file.
        error: what is raised where it holds none, such as the half of one after a full disk or a power failure.
        remedy: what to do then, for the message.

    Raises:
        OSError: it cannot be read.
    """
    try:
        found = json.loads(file.read_text())
    except ValueError as why:  # UnicodeDecodeError too
        raise error(f"{file} is damaged ({why}); {remedy}") from None
    if not isinstance(found, dict):
        raise error(f"{file} is damaged (it holds {type(found).__name__}); {remedy}")
    return found
