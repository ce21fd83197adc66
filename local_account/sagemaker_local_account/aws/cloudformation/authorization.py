"""What requests to CloudFormation and to Cloud Control API are authorized by."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sagemaker_local_account.core.location import Location
from sagemaker_local_account.iam.policies import Call
from sagemaker_local_account.iam.service_authorization import ServiceAuthorization

_ON_STACKS = """
CancelUpdateStack ContinueUpdateRollback CreateChangeSet CreateStack CreateStackRefactor DeleteChangeSet DeleteStack
DescribeChangeSet DescribeChangeSetHooks DescribeEvents DescribeStackEvents DescribeStackRefactor DescribeStackResource
DescribeStackResourceDrifts DescribeStackResources DescribeStacks DetectStackDrift DetectStackResourceDrift ExecuteChangeSet
ExecuteStackRefactor GetStackPolicy GetTemplate ListChangeSets ListHookResults ListStackRefactorActions ListStackRefactors
ListStackResources RecordHandlerProgress RollbackStack SetStackPolicy SignalResource TagResource UntagResource UpdateStack
UpdateTerminationProtection
"""
_ON_MACHINES = {
    "cloudformation:GetResource": "states:DescribeStateMachine",
    "cloudformation:UpdateResource": "states:UpdateStateMachine",
}


def _by_cloud_control(call: Call, request: Mapping[str, Any], location: Location) -> Iterator[Call]:
    """What Cloud Control API calls with the caller's permissions; a patch gives a role by `/RoleArn` alone (cloud_control.py)."""
    if call.action not in _ON_MACHINES:
        return
    yield Call(_ON_MACHINES[call.action], str(request.get("Identifier", "*")), {})
    try:
        patch = json.loads(request.get("PatchDocument") or "[]")
    except (ValueError, TypeError):  # the service itself rejects it
        return
    for operation in patch if isinstance(patch, list) else []:
        if isinstance(operation, dict) and operation.get("path") == "/RoleArn" and "value" in operation:
            yield Call("iam:PassRole", str(operation["value"]), {"iam:passedtoservice": ("states.amazonaws.com",)})


_ROLE = ("RoleARN", "cloudformation.amazonaws.com")
AUTHORIZATION = ServiceAuthorization(
    "cloudformation",
    resources=dict.fromkeys(_ON_STACKS.split(), "stack/{StackName}/*"),
    without_resource={"GetTemplateSummary", "ListStacks", "ValidateTemplate"},
    passed_roles=dict.fromkeys(("CreateChangeSet", "CreateStack", "DeleteStack", "UpdateStack"), _ROLE),
)
OF_CLOUD_CONTROL = ServiceAuthorization(
    "cloudformation", without_resource={"GetResource", "UpdateResource"}, further=_by_cloud_control
)
