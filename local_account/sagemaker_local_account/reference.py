"""Writes the pages of docs/ that are lists of what the code has: `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path

from . import members, resources
from .resource_types import TYPES, ResourceType

_PRINTED = "<!-- Written by `make docs`; a test holds it against the code. -->"
_TYPES = f"""# Resource types

{_PRINTED}

What a stack may contain that is deployed to the account on this machine. A type that is not in this table fails the deployment
before anything is made, with its name and logical id, and so does a property that is not listed with its type.

- **real**: its API shows it, CloudFormation creates, updates and deletes it, and it does the work that is said here.
- **emulated**: the account itself does what on AWS a function of CDK's does.
- **inert**: it does nothing here, for the reason given.

| type | here | what it does | properties |
|---|---|---|---|"""


_MEMBERS = f"""# CreateTrainingJob in the account on this machine

{_PRINTED}

Every member of the request that is not in this table does what it does on AWS; input mode `Pipe`, and every `S3DataType`
but `S3Prefix` and `ManifestFile`, are refused.

- **refused**: a request that has it is refused by name, for the reason given; unless it is false or empty.
- **inert**: it is taken and shown by DescribeTrainingJob, and has no effect, for the reason given.

| member | here | why |
|---|---|---|"""


def pages() -> dict[str, str]:
    """The text of each page, by its file's name."""
    return {"create-training-job.md": _members(), "resource-types.md": _resource_types()}


def _members() -> str:
    kinds = {"refused": members.REFUSED, "inert": members.INERT}
    rows = [f"| `{name}` | {kind} | {why} |" for kind, named in kinds.items() for name, why in named.items()]
    return "\n".join([_MEMBERS, *sorted(rows)]) + "\n"


def _resource_types() -> str:
    types = {**{name: _of_class(name) for name in resources.NATIVE}, **TYPES}
    return "\n".join([_TYPES, *(_row(name, types[name]) for name in sorted(types))]) + "\n"


def _row(name: str, of: ResourceType) -> str:
    properties = ", ".join(sorted(of.properties)) or "any"
    return f"| `{name}` | {of.kind} | {of.note} | {properties} |"


def _of_class(name: str) -> ResourceType:
    """A type that is only where it is made: the first line of its class says what it is."""
    said = (resources.NATIVE[name].__doc__ or "").strip().splitlines()
    return ResourceType("emulated", said[0] if said else "")


if __name__ == "__main__":
    for name, text in pages().items():
        Path(sys.argv[1], name).write_text(text)
