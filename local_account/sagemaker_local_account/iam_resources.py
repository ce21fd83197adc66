"""IAM's roles, as CloudFormation makes them: moto leaves out a role's managed policies, and hardly updates any of it."""

from __future__ import annotations

import json
from typing import Any

from moto.iam.models import Role, iam_backends

_moto_create_role = Role.create_from_cloudformation_json


def install() -> None:
    Role.create_from_cloudformation_json = classmethod(_create_role)  # type: ignore
    Role.update_from_cloudformation_json = classmethod(_update_role)


def delete_role(role: Role, account_id: str, region_name: str) -> None:
    """Delete a role with what its stack gave it: its inline policies, and the managed policies attached to it."""
    iam = iam_backends[account_id]["aws"]
    _settle_policies(role, {}, account_id)
    role.policies.clear()
    iam.delete_role(role.name)


def _create_role(
    cls: Any, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **_: Any
) -> Role:
    """moto drops ManagedPolicyArns."""
    role: Role = _moto_create_role(resource_name, cloudformation_json, account_id, region_name)
    _settle_policies(role, cloudformation_json["Properties"], account_id)
    return role


def _update_role(
    cls: Any,
    original_resource: Role,
    new_resource_name: str,
    cloudformation_json: Any,
    account_id: str,
    region_name: str,
) -> Role:
    """moto updates the description only."""
    properties = cloudformation_json["Properties"]
    role = original_resource
    if properties.get("RoleName", role.name) != role.name or properties.get("Path", role.path) != role.path:
        raise NotImplementedError  # it is replaced
    document = properties["AssumeRolePolicyDocument"]
    role.assume_role_policy_document = document if isinstance(document, str) else json.dumps(document)
    role.description = properties.get("Description", "")
    role.max_session_duration = properties.get("MaxSessionDuration", 3600)
    role.permissions_boundary_arn = properties.get("PermissionsBoundary", "")
    for policy in properties.get("Policies", []):
        role.put_policy(policy["PolicyName"], policy["PolicyDocument"])
    _settle_policies(role, properties, account_id)
    return role


def _settle_policies(role: Role, properties: dict[str, Any], account_id: str) -> None:
    """Attach the managed policies that a role shall have, and detach the others."""
    wanted = set(properties.get("ManagedPolicyArns", []))
    for arn, policy in [*role.managed_policies.items()]:
        if arn not in wanted:
            policy.detach_from(role)
    for arn in wanted - set(role.managed_policies):
        iam_backends[account_id]["aws"].attach_role_policy(arn, role.name)
