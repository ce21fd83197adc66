"""What requests to STS are authorized by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sagemaker_local_account.core.location import Location
from sagemaker_local_account.iam.policies import Call
from sagemaker_local_account.iam.service_authorization import ServiceAuthorization


def _context(operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"sts:externalid": request.get("ExternalId")} if operation == "AssumeRole" else {}


def _with_session(call: Call, request: Mapping[str, Any], location: Location) -> Iterator[Call]:
    """Tags and a source identity of a session require actions of their own (IAM's guide, "Pass session tags in AWS STS")."""
    if call.action == "sts:AssumeRole":
        if any(name.startswith(("Tags.", "TransitiveTagKeys.")) for name in request):
            yield Call("sts:TagSession", call.resource, call.context)
        if request.get("SourceIdentity"):
            yield Call("sts:SetSourceIdentity", call.resource, call.context)


AUTHORIZATION = ServiceAuthorization(
    "sts",
    resources={"AssumeRole": "{RoleArn}"},
    without_resource={"GetCallerIdentity"},
    context=_context,
    further=_with_session,
)
