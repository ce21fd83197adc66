"""Default prefixes of job names, distinct for each construct of an app, and names of the state machines that start jobs."""

from __future__ import annotations

import hashlib
import re
from weakref import WeakKeyDictionary

from aws_cdk import Stack, Token
from constructs import IConstruct

from cdk_sagemaker_training.core.errors import must

_LONGEST_STACK, _LONGEST_ID = 24, 37  # of a name of 80 characters ("Quotas related to accounts"), with two hashes
_LONGEST_PATH = 17  # of a prefix of 26 characters, with a hyphen and eight of a hash
_TAKEN = (
    "cdk-sagemaker-training:job-name-prefix"  # the type of the entry that each prefix has in the metadata of the app
)

# Of each stack, whose name does not change: a call behind the CDK takes a tenth of a millisecond, and a workflow needs its
# prefix eight times.
_prefixes: WeakKeyDictionary[Stack, str] = WeakKeyDictionary()


def default_prefix(scope: IConstruct) -> str:
    """Return a prefix made of a construct's path and a hash of it and of the stack's name, of at most 26 characters.

    It is in lower case like SageMaker's ARNs. By the hash it does not change when another construct comes, the policies of one
    construct, for `train-1a2b3c4d-*`, never apply to jobs of another, such as `train-big-5e6f7a8b-...`, and two deployments of
    one app under two names of its stack in one account have each their own.
    """
    path, stack = scope.node.path, Stack.of(scope)
    kept = _kept(path.lower(), _LONGEST_PATH)
    named = path if Token.is_unresolved(stack.stack_name) else f"{stack.stack_name}:{path}"
    digest = _digest(named)
    name = f"{kept}-{digest}" if kept else digest
    if any(_collide(name, other) for _, other in _taken(scope)):
        # With that of a prop. Without a hyphen, so that no pattern of another prefix and a hyphen matches it.
        name = name.replace("-", "")
    return name


def machines_prefix(stack: Stack) -> str:
    """Return how the names of the state machines begin whose executions' jobs a stack's guard watches over.

    It is the stack's alone in its account and region, as the stack's name is, so that a rule and a policy for all of them need
    not name each.
    """
    if stack not in _prefixes:
        named, top = "", stack
        while Token.is_unresolved(top.stack_name) and top.nested_stack_parent is not None:
            named, top = stack.node.path, top.nested_stack_parent
        known = top.node.path if Token.is_unresolved(top.stack_name) else top.stack_name
        _prefixes[stack] = f"{_kept(known, _LONGEST_STACK)}-{_digest(f'{known}:{named}')}-"
    return _prefixes[stack]


def machine_name(scope: IConstruct) -> str:
    """Return the name of a construct's state machine, of at most 80 characters."""
    stack = Stack.of(scope)
    path = scope.node.path.removeprefix(f"{stack.node.path}/")
    return f"{machines_prefix(stack)}{_kept(path, _LONGEST_ID)}-{_digest(path)}"


def _kept(text: str, longest: int) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text)[:longest].strip("-")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def reserve_prefix(scope: IConstruct, prefix: str) -> list[tuple[str, str]]:
    """Record the prefix of a construct's jobs in the metadata of the app.

    Returns:
        The paths and prefixes of other constructs of the app whose jobs' names the prefix's pattern matches, or the reverse.

    Raises:
        ValueError: Another construct of the stack has it: permissions, and a deletion, would be of the jobs of both.
    """
    taken, lower = _taken(scope), prefix.lower()
    for path, other in taken:
        if other == lower and f"{path}/".startswith(f"{Stack.of(scope).node.path}/"):
            rule = "be another one for each workflow and task of a stack"
            raise must("job_name_prefix", rule, repr(f"{prefix}-2"), f"{prefix!r}, which {path} has")
    scope.node.root.node.add_metadata(_TAKEN, f"{scope.node.path}:{prefix}")
    return [(path, other) for path, other in taken if other != lower and _collide(lower, other)]


def _taken(scope: IConstruct) -> list[tuple[str, str]]:
    """The paths of constructs and their prefixes, in lower case as SageMaker's ARNs were."""
    entries = [str(entry.data).rpartition(":") for entry in scope.node.root.node.metadata if entry.type == _TAKEN]
    return [(path, prefix.lower()) for path, _, prefix in entries]


def _collide(prefix: str, other: str) -> bool:
    """Whether the pattern of one prefix's job names matches the other's."""
    return f"{prefix}-".startswith(f"{other}-") or f"{other}-".startswith(f"{prefix}-")
