"""Default prefixes of job names, distinct for each construct of an app."""

from __future__ import annotations

import hashlib
import re

from aws_cdk import Stack
from constructs import IConstruct

from cdk_sagemaker_training.core.errors import must

_LONGEST_PREFIX = 26
_TAKEN = (
    "cdk-sagemaker-training:job-name-prefix"  # the type of the entry that each prefix has in the metadata of the app
)


def default_prefix(scope: IConstruct) -> str:
    """Return a prefix made of a construct's path, in lower case like SageMaker's ARNs, of at most 26 characters.

    The prefix ends with a hash of the path if the path is too long or not ASCII, and if the prefix collides with that of an
    earlier construct: as those of `Train` and `train` do, and those of `Train` and `Train-2`, because the policies of the first,
    for `train-*`, would apply to jobs of the second.

    Args:
        scope: The construct.
    """
    path = scope.node.path
    name = re.sub(r"[^a-z0-9]+", "-", path.lower()).strip("-")
    digest = hashlib.sha256(path.encode()).hexdigest()[:8]
    if not path.isascii() or not 1 <= len(name) <= _LONGEST_PREFIX:
        kept = name[: _LONGEST_PREFIX - 9].rstrip("-")
        name = f"{kept}-{digest}" if kept else digest
    if any(_collide(name, other) for _, other in _taken(scope)):
        # Without a hyphen, so that no pattern of another prefix and a hyphen matches it.
        name = f"{name.replace('-', '')[: _LONGEST_PREFIX - 8]}{digest}"
    return name


def reserve_prefix(scope: IConstruct, prefix: str) -> None:
    """Record the prefix of a construct's jobs in the metadata of the app.

    Args:
        scope: The construct.
        prefix: The prefix.

    Raises:
        ValueError: Another construct of the stack has it: permissions, and a deletion, would be of the jobs of both.
    """
    for path, other in _taken(scope):
        if other == prefix.lower() and f"{path}/".startswith(f"{Stack.of(scope).node.path}/"):
            rule = "be another one for each workflow and task of a stack"
            raise must("job_name_prefix", rule, repr(f"{prefix}-2"), f"{prefix!r}, which {path} has")
    scope.node.root.node.add_metadata(_TAKEN, f"{scope.node.path}:{prefix}")


def _taken(scope: IConstruct) -> list[tuple[str, str]]:
    """The paths of constructs and their prefixes, in lower case as SageMaker's ARNs were."""
    entries = [str(entry.data).rpartition(":") for entry in scope.node.root.node.metadata if entry.type == _TAKEN]
    return [(path, prefix.lower()) for path, _, prefix in entries]


def _collide(prefix: str, other: str) -> bool:
    """Whether the pattern of one prefix's job names matches the other's."""
    return f"{prefix}-".startswith(f"{other}-") or f"{other}-".startswith(f"{prefix}-")
