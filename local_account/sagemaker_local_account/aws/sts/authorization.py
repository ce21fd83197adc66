"""What requests to STS are authorized by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sagemaker_local_account.iam.service_authorization import ServiceAuthorization


def _context(operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"sts:externalid": request.get("ExternalId")} if operation == "AssumeRole" else {}


AUTHORIZATION = ServiceAuthorization(
    "sts", resources={"AssumeRole": "{RoleArn}"}, without_resource={"GetCallerIdentity"}, context=_context
)
