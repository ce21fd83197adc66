"""Generates docs/resource-types.md, docs/create-training-job.md and docs/fidelity.md from the code: `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path

from sagemaker_local_account.aws.registry import RESOURCE_TYPES
from sagemaker_local_account.aws.resource_types import ResourceType
from sagemaker_local_account.aws.sagemaker import unsupported_fields
from sagemaker_local_account.core import fidelity

_PRINTED = "<!-- Written by `make docs`; a test holds it against the code. -->"
_TYPES = f"""# Resource types

{_PRINTED}

The resource types of stacks that can be deployed to the local account. A type that is not in this table, and a property that is
not listed with its type, fail the deployment before any resource is created, with the name and logical id.

- **real**: CloudFormation creates, updates and deletes it, its API returns it, and it has the effect in the third column.
- **emulated**: the account itself does the work of one of CDK's Lambda functions.
- **inert**: it has no effect, for the reason in the third column.

| type | here | what it does | properties |
|---|---|---|---|"""


_MEMBERS = f"""# CreateTrainingJob in the local account

{_PRINTED}

Every member of the request that is not in this table has the same effect as on AWS; input mode `Pipe`, and every `S3DataType`
except `S3Prefix` and `ManifestFile`, are rejected.

- **rejected**: a request with it fails, with its name and the reason; unless it is false or empty.
- **inert**: it is accepted and returned by DescribeTrainingJob, and has no effect, for the reason given.

| member | here | why |
|---|---|---|"""


_FIDELITY = f"""# How far an answer can be trusted

{_PRINTED}

What the local account answers, by service, and on what basis. `local-account fidelity` prints the same, and the web page shows
it; an execution that used an assumed behavior says so once in the account's log.

- **recorded**: others ran it on AWS and published the answers; so many of them are equal here.
- **documented**: AWS's pages or service models have it, and the account does what they say.
- **assumed**: neither. [What AWS does not document](unknowns.md) has the assumptions that the constructs depend on, with tests
  that run in an account of yours."""


def pages() -> dict[str, str]:
    """Returns the text of each page, by file name."""
    return {"create-training-job.md": _members(), "fidelity.md": _fidelity(), "resource-types.md": _resource_types()}


def _fidelity() -> str:
    parts = [_FIDELITY]
    for service, rows in fidelity.services().items():
        parts += [f"\n## {service}\n", "| feature | basis | |", "|---|---|---|"]
        parts += [f"| {row.feature} | {row.kind} | {row.basis} |" for row in rows]
    return "\n".join(parts) + "\n"


def _members() -> str:
    kinds = {"rejected": unsupported_fields.REFUSED, "inert": unsupported_fields.INERT}
    rows = [f"| `{name}` | {kind} | {why} |" for kind, named in kinds.items() for name, why in named.items()]
    return "\n".join([_MEMBERS, *sorted(rows)]) + "\n"


def _resource_types() -> str:
    return "\n".join([_TYPES, *(_row(name, RESOURCE_TYPES[name]) for name in sorted(RESOURCE_TYPES))]) + "\n"


def _row(name: str, of: ResourceType) -> str:
    properties = ", ".join(sorted(of.properties)) or "any"
    return f"| `{name}` | {of.kind} | {of.note} | {properties} |"


if __name__ == "__main__":
    for name, text in pages().items():
        Path(sys.argv[1], name).write_text(text)
