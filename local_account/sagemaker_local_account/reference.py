"""Prints docs/resource-types.md (`make docs`)."""

from __future__ import annotations

from . import resources
from .resource_types import TYPES, ResourceType

_HEAD = """# Resource types

<!-- Printed by `make docs`; a test holds it against the code. -->

What a stack may contain that is deployed to the account on this machine. A type that is not in this table fails the deployment
before anything is made, with its name and logical id, and so does a property that is not listed with its type.

- **real**: its API shows it, CloudFormation creates, updates and deletes it, and it does the work that is said here.
- **emulated**: the account itself does what on AWS a function of CDK's does.
- **inert**: it does nothing here, for the reason given.

| type | here | what it does | properties |
|---|---|---|---|"""


def page() -> str:
    types = {**{name: _of_class(name) for name in resources.NATIVE}, **TYPES}
    return "\n".join([_HEAD, *(_row(name, types[name]) for name in sorted(types))]) + "\n"


def _row(name: str, of: ResourceType) -> str:
    properties = ", ".join(sorted(of.properties)) or "any"
    return f"| `{name}` | {of.kind} | {of.note} | {properties} |"


def _of_class(name: str) -> ResourceType:
    """A type that is only where it is made: the first line of its class says what it is."""
    said = (resources.NATIVE[name].__doc__ or "").strip().splitlines()
    return ResourceType("emulated", said[0] if said else "")


if __name__ == "__main__":
    print(page(), end="")
