"""The properties of resource types that cannot be changed: another value replaces the resource.

`create_only.json` has them as CloudFormation's registry does (createOnlyProperties): tests/local_account/test_create_only.py
writes it.
"""

from __future__ import annotations

import functools
import json
from importlib import resources


def properties_of(resource_type: str) -> frozenset[str]:
    """Returns the names of a type's properties that cannot be changed."""
    return _table().get(resource_type, frozenset())


@functools.cache
def _table() -> dict[str, frozenset[str]]:
    text = resources.files(__package__).joinpath("create_only.json").read_text()
    return {name: frozenset(properties) for name, properties in json.loads(text).items()}
