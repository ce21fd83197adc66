"""IAM's roles and managed policies in CloudFormation; moto drops ManagedPolicyArns, and supports few updates."""

from __future__ import annotations

import json
from typing import Any

from moto.iam.models import IAMBackend, ManagedPolicy, Role, iam_backends

from sagemaker_local_account.aws.resource_types import ServiceResources, real
from sagemaker_local_account.core.patches import CREATE, UPDATE, patch

_moto_create_policy = ManagedPolicy.create_from_cloudformation_json
_moto_create_role = Role.create_from_cloudformation_json


def install() -> None:
    """Patches moto's roles and managed policies."""
    patch(IAMBackend, "get_roles", _roles, "self")
    patch(Role, "create_from_cloudformation_json", _create_role, CREATE)
    patch(Role, "update_from_cloudformation_json", _update_role, UPDATE)
    patch(ManagedPolicy, "create_from_cloudformation_json", _create_policy, CREATE)
    patch(ManagedPolicy, "update_from_cloudformation_json", _update_policy, UPDATE)


def _roles(self: IAMBackend) -> list[Role]:
    """The roles, of which moto looks for one while stacks that are deployed beside each other make others."""
    return [*self.roles.values()]


def _delete_role(role: Role, account_id: str, region_name: str) -> None:
    """Deletes a role after its inline policies and its attachments of managed policies."""
    iam = iam_backends[account_id]["aws"]
    _settle_policies(role, {}, account_id)
    role.policies.clear()
    iam.delete_role(role.name)


def _create_role(
    cls: Any, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **_: Any
) -> Role:
    """Creates a role with ManagedPolicyArns, which moto drops."""
    role: Any = _moto_create_role(resource_name, cloudformation_json, account_id, region_name)
    properties = cloudformation_json["Properties"]
    _settle_policies(role, properties, account_id)
    role.account_inline = _inline(properties)
    return role


def _update_role(
    cls: Any,
    original_resource: Any,
    new_resource_name: str,
    cloudformation_json: Any,
    account_id: str,
    region_name: str,
) -> Role:
    """Updates a role; moto updates the description only. Inline policies that are resources of their own stay."""
    properties = cloudformation_json["Properties"]
    role = original_resource
    if properties.get("RoleName", role.name) != role.name or properties.get("Path", role.path) != role.path:
        raise NotImplementedError  # it is replaced
    document = properties["AssumeRolePolicyDocument"]
    role.assume_role_policy_document = document if isinstance(document, str) else json.dumps(document)
    role.description = properties.get("Description", "")
    role.max_session_duration = properties.get("MaxSessionDuration", 3600)
    role.permissions_boundary_arn = properties.get("PermissionsBoundary", "")
    for name in role.account_inline - _inline(properties):
        role.policies.pop(name, None)
    for policy in properties.get("Policies", []):
        document = policy["PolicyDocument"]
        role.put_policy(policy["PolicyName"], document if isinstance(document, str) else json.dumps(document))
    role.account_inline = _inline(properties)
    _settle_policies(role, properties, account_id)
    role.tags = [dict(tag) for tag in properties.get("Tags", [])]
    return role


def _inline(properties: dict[str, Any]) -> set[str]:
    """The names of the inline policies in the properties of a role."""
    return {policy["PolicyName"] for policy in properties.get("Policies", [])}


def _settle_policies(role: Role, properties: dict[str, Any], account_id: str) -> None:
    """Attaches the managed policies in the properties, and detaches others."""
    wanted = set(properties.get("ManagedPolicyArns", []))
    for arn, policy in [*role.managed_policies.items()]:
        if arn not in wanted:
            policy.detach_from(role)
    for arn in wanted - set(role.managed_policies):
        iam_backends[account_id]["aws"].attach_role_policy(arn, role.name)


def _document(properties: Any) -> Any:
    """A document, which a template may have as its text: LocalStack's recorded test_managedpolicy_with_fn_sub_json_string."""
    given = properties["PolicyDocument"]
    try:
        return json.loads(given) if isinstance(given, str) else given
    except ValueError:
        return given  # which IAM refuses


def _create_policy(
    cls: Any, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **_: Any
) -> ManagedPolicy:
    properties = cloudformation_json["Properties"]
    given = {**cloudformation_json, "Properties": {**properties, "PolicyDocument": _document(properties)}}
    policy: ManagedPolicy = _moto_create_policy(resource_name, given, account_id, region_name)
    return policy


def _update_policy(
    cls: Any,
    original_resource: ManagedPolicy,
    new_resource_name: str,
    cloudformation_json: Any,
    account_id: str,
    region_name: str,
) -> ManagedPolicy:
    """Updates a managed policy, which moto cannot, and which cannot be replaced if it has a name."""
    properties = cloudformation_json["Properties"]
    policy = original_resource
    if properties.get("ManagedPolicyName", policy.name) != policy.name:
        raise NotImplementedError
    iam = iam_backends[account_id]["aws"]
    for version in [version for version in policy.versions if version.version_id != policy.default_version_id]:
        iam.delete_policy_version(policy.arn, version.version_id)
    iam.create_policy_version(policy.arn, json.dumps(_document(properties)), "true")
    for kind, holders in (("Roles", iam.roles), ("Users", iam.users), ("Groups", iam.groups)):
        for holder in holders.values():
            wanted = holder.name in properties.get(kind, [])
            if policy.arn in holder.managed_policies and not wanted:
                policy.detach_from(holder)
            elif wanted and policy.arn not in holder.managed_policies:
                policy.attach_to(holder)
    return policy


def _delete_policy(policy: ManagedPolicy, account_id: str, region_name: str) -> None:
    iam = iam_backends[account_id]["aws"]
    for holder in [*iam.roles.values(), *iam.users.values(), *iam.groups.values()]:
        if policy.arn in holder.managed_policies:
            policy.detach_from(holder)
    iam.delete_policy(policy.arn)


RESOURCES = ServiceResources(
    types={
        "AWS::IAM::AccessKey": real("signs requests to the account", "Status UserName"),
        "AWS::IAM::InstanceProfile": real(
            "stored; there are no instances", "InstanceProfileName Path Roles", longest_name=128
        ),
        "AWS::IAM::ManagedPolicy": real(
            "evaluated", "Description Groups ManagedPolicyName Path PolicyDocument Roles Users", longest_name=128
        ),
        "AWS::IAM::Policy": real("evaluated", "Groups PolicyDocument PolicyName Roles Users"),
        "AWS::IAM::Role": real(
            "assumed by jobs, executions, builds and functions; its permissions are evaluated",
            "AssumeRolePolicyDocument Description ManagedPolicyArns MaxSessionDuration Path PermissionsBoundary Policies "
            "RoleName Tags",
            longest_name=64,
        ),
        "AWS::IAM::User": real("can have access keys", "Path UserName", longest_name=64),
    },
    delete={ManagedPolicy: _delete_policy, Role: _delete_role},
    install=install,
)
