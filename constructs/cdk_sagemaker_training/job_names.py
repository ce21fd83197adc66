"""What the names of a construct's jobs begin with, where nobody says: no other construct's jobs of the app begin so."""

from __future__ import annotations

import hashlib
import re

from constructs import IConstruct

_LONGEST_PREFIX = 26
_TAKEN = (
    "cdk-sagemaker-training:job-name-prefix"  # the type of the entry that each prefix has in the metadata of the app
)


def default_prefix(scope: IConstruct) -> str:
    """A prefix from a construct's path: in lower case, since SageMaker's ARNs are, and at most 26 characters long.

    It ends with a hash of the path where more would be lost than capitals and separators: a path that is too long, or not all in
    ASCII. So it does where it meets that of a construct before it, as those of `Train` and `train` do, and those of `Train` and
    `Train-2`, of which the first one's policies, for `train-*`, would hold for the other's jobs.
    """
    path = scope.node.path
    name = re.sub(r"[^a-z0-9]+", "-", path.lower()).strip("-")
    digest = hashlib.sha256(path.encode()).hexdigest()[:8]
    if not path.isascii() or not 1 <= len(name) <= _LONGEST_PREFIX:
        kept = name[: _LONGEST_PREFIX - 9].rstrip("-")
        name = f"{kept}-{digest}" if kept else digest
    if any(_meet(name, other) for other in _taken(scope)):
        # Without a hyphen, so that no pattern of another prefix and a hyphen takes it in.
        name = f"{name.replace('-', '')[: _LONGEST_PREFIX - 8]}{digest}"
    return name


def take_prefix(scope: IConstruct, prefix: str) -> None:
    """Note in the app that the names of a construct's jobs begin so."""
    scope.node.root.node.add_metadata(_TAKEN, prefix)


def _taken(scope: IConstruct) -> list[str]:
    return [str(entry.data).lower() for entry in scope.node.root.node.metadata if entry.type == _TAKEN]


def _meet(one: str, other: str) -> bool:
    """Whether the pattern of the names of one's jobs is that of the other's, or takes it in."""
    return f"{one}-".startswith(f"{other}-") or f"{other}-".startswith(f"{one}-")
