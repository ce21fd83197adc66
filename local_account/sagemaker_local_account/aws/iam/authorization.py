"""What requests to IAM are authorized by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sagemaker_local_account.core.location import Location
from sagemaker_local_account.iam.service_authorization import ServiceAuthorization

_NAMES = """
AttachRolePolicy CreateRole CreateServiceLinkedRole DeleteRole DeleteRolePermissionsBoundary DeleteRolePolicy
DeleteServiceLinkedRole DetachRolePolicy GenerateServiceLastAccessedDetails GetContextKeysForPrincipalPolicy GetRole
GetRolePolicy GetServiceLinkedRoleDeletionStatus ListAttachedRolePolicies ListInstanceProfilesForRole
ListPoliciesGrantingServiceAccess ListRolePolicies ListRoleTags PassRole PutRolePermissionsBoundary PutRolePolicy
SimulatePrincipalPolicy TagRole UntagRole UpdateAssumeRolePolicy UpdateRole UpdateRoleDescription
"""
_ON_ROLES = frozenset(_NAMES.split())


def _resources_of(operation: str, request: Mapping[str, Any], location: Location) -> list[str] | None:
    """The role's own ARN, which has its path."""
    from moto.iam.exceptions import NotFoundException
    from moto.iam.models import iam_backends

    name = str(request.get("RoleName") or "")
    if operation not in _ON_ROLES or not name:
        return None
    if operation == "CreateRole":
        return [f"arn:aws:iam::{location.account}:role{request.get('Path') or '/'}{name}"]
    try:
        return [str(iam_backends[location.account]["aws"].get_role(name).arn)]
    except NotFoundException:
        return [f"arn:aws:iam::{location.account}:role/{name}"]


AUTHORIZATION = ServiceAuthorization(
    "iam",
    resources_of=_resources_of,
    resources={**dict.fromkeys(_ON_ROLES, "role/{RoleName}"), "SimulatePrincipalPolicy": "{PolicySourceArn}"},
)
