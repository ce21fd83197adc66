"""What CloudFormation's registry says of resource types: which properties cannot be changed, and which attribute is the id.

`resource_schemas.json` has it, which tests/local_account/test_resource_schemas.py writes.
"""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any


def create_only(resource_type: str) -> frozenset[str]:
    """Returns the names of a type's properties that cannot be changed: another value replaces the resource."""
    return frozenset(_schemas().get(resource_type, {}).get("createOnlyProperties", ()))


def primary_identifier(resource_type: str) -> str | None:
    """Returns the attribute of a type that identifies its resources; None where it is several, or not known."""
    found: str | None = _schemas().get(resource_type, {}).get("primaryIdentifier")
    return found


@functools.cache
def _schemas() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(
        resources.files(__package__).joinpath("resource_schemas.json").read_text()
    )
    return found
