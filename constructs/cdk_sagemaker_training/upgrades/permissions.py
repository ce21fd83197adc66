"""The permissions that a template grants: who may do what, one row for each action and resource."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from cdk_sagemaker_training.upgrades.assembly import Stack, text

_POLICIES = {"AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"}
# Properties of resources that hold a policy of who may use them.
_OF_RESOURCES = ("AssumeRolePolicyDocument", "PolicyDocument", "KeyPolicy", "RepositoryPolicyText", "ResourcePolicy")


def permissions(stack: Stack) -> dict[str, set[str]]:
    """Return the permissions of a stack by logical id: what a role may do, or who may use another resource.

    Statements are split by action and resource, so that it makes no difference in which policy or statement one is.

    Args:
        stack: The stack.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for name, resource in stack.resources().items():
        properties = resource.get("Properties", {})
        kind = resource["Type"]
        if kind in _POLICIES:
            owners = [owner for member in ("Roles", "Users", "Groups") for owner in properties.get(member, [])]
            for owner in owners or [{"Ref": name}]:
                found[_logical_id(owner)] |= set(_rows(properties.get("PolicyDocument")))
            continue
        for policy in properties.get("Policies", []) if kind == "AWS::IAM::Role" else ():
            found[name] |= set(_rows(policy["PolicyDocument"]))
        for policy in properties.get("ManagedPolicyArns", []):
            found[name].add(f"managed policy {text(policy)}")
        for member in _OF_RESOURCES:
            found[name] |= set(_rows(properties.get(member)))
        if kind == "AWS::Lambda::Permission":
            found[_logical_id(properties["FunctionName"])].add(
                f"Allow {properties['Action']} to {text(properties['Principal'])} from {text(properties.get('SourceArn', '*'))}"
            )
    return {name: rows for name, rows in found.items() if rows}


def _rows(document: Any) -> Iterator[str]:
    if not isinstance(document, Mapping) or not isinstance(document.get("Statement", None), list | Mapping):
        return
    for statement in _listed(document["Statement"]):
        # All else than what is split: Principal, NotAction, NotResource, Condition; a Sid names it and grants nothing.
        rest = {key: value for key, value in statement.items() if key not in ("Sid", "Effect", "Action", "Resource")}
        suffix = f" with {text(rest)}" if rest else ""
        for action in _listed(statement.get("Action", "")):
            for resource in _listed(statement.get("Resource", "")):
                on = f" on {text(resource)}" if resource else ""
                yield f"{statement.get('Effect', 'Allow')} {action}{on}{suffix}"


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _logical_id(reference: Any) -> str:
    """The logical id that a reference names; the text of any other value."""
    if isinstance(reference, Mapping):
        if "Ref" in reference:
            return str(reference["Ref"])
        if "Fn::GetAtt" in reference:
            return str(_listed(reference["Fn::GetAtt"])[0]).partition(".")[0]
    return reference if isinstance(reference, str) else json.dumps(reference, sort_keys=True)
