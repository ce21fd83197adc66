"""What requests to IAM are authorized by."""

from __future__ import annotations

from sagemaker_local_account.iam.service_authorization import ServiceAuthorization

_ON_ROLES = """
AttachRolePolicy CreateRole CreateServiceLinkedRole DeleteRole DeleteRolePermissionsBoundary DeleteRolePolicy
DeleteServiceLinkedRole DetachRolePolicy GenerateServiceLastAccessedDetails GetContextKeysForPrincipalPolicy GetRole
GetRolePolicy GetServiceLinkedRoleDeletionStatus ListAttachedRolePolicies ListInstanceProfilesForRole
ListPoliciesGrantingServiceAccess ListRolePolicies ListRoleTags PassRole PutRolePermissionsBoundary PutRolePolicy
SimulatePrincipalPolicy TagRole UntagRole UpdateAssumeRolePolicy UpdateRole UpdateRoleDescription
"""

AUTHORIZATION = ServiceAuthorization(
    "iam",
    resources={**dict.fromkeys(_ON_ROLES.split(), "role/{RoleName}"), "SimulatePrincipalPolicy": "{PolicySourceArn}"},
)
