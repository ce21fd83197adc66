"""What requests to CloudFormation and to Cloud Control API are authorized by."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sagemaker_local_account.core.location import Location
from sagemaker_local_account.iam.policies import Call
from sagemaker_local_account.iam.service_authorization import ServiceAuthorization

_NAMES = """
CancelUpdateStack ContinueUpdateRollback CreateChangeSet CreateStack CreateStackRefactor DeleteChangeSet DeleteStack
DescribeChangeSet DescribeChangeSetHooks DescribeEvents DescribeStackEvents DescribeStackRefactor DescribeStackResource
DescribeStackResourceDrifts DescribeStackResources DescribeStacks DetectStackDrift DetectStackResourceDrift ExecuteChangeSet
ExecuteStackRefactor GetStackPolicy GetTemplate ListChangeSets ListHookResults ListStackRefactorActions ListStackRefactors
ListStackResources RecordHandlerProgress RollbackStack SetStackPolicy SignalResource TagResource UntagResource UpdateStack
UpdateTerminationProtection
"""
_ON_STACKS = frozenset(_NAMES.split())
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


def _resources_of(operation: str, request: Mapping[str, Any], location: Location) -> list[str] | None:
    """A change set that is given by its ARN is one of its own stack, whatever stack is named beside it."""
    from moto.cloudformation.models import cloudformation_backends

    change_sets = cloudformation_backends[location.account][location.region].change_sets
    change_set = change_sets.get(str(request.get("ChangeSetName") or ""))
    if change_set is None or operation not in _ON_STACKS:
        return None
    named = [str(request["StackName"])] if request.get("StackName") else []
    here = f"arn:aws:cloudformation:{location.region}:{location.account}:stack/"
    return [change_set.stack_id, *(name if name.startswith("arn:") else f"{here}{name}/*" for name in named)]


_ROLE = ("RoleARN", "cloudformation.amazonaws.com")
AUTHORIZATION = ServiceAuthorization(
    "cloudformation",
    resources_of=_resources_of,
    resources=dict.fromkeys(_ON_STACKS, "stack/{StackName}/*"),
    without_resource={"GetTemplateSummary", "ListStacks", "ValidateTemplate"},
    passed_roles=dict.fromkeys(("CreateChangeSet", "CreateStack", "DeleteStack", "UpdateStack"), _ROLE),
)
OF_CLOUD_CONTROL = ServiceAuthorization(
    "cloudformation", without_resource={"GetResource", "UpdateResource"}, further=_by_cloud_control
)
