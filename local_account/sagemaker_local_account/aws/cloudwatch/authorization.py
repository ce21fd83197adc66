"""What requests to CloudWatch are authorized by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sagemaker_local_account.iam.service_authorization import ServiceAuthorization


def _context(operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"cloudwatch:namespace": request.get("Namespace")} if operation == "PutMetricData" else {}


AUTHORIZATION = ServiceAuthorization("cloudwatch", without_resource={"PutMetricData"}, context=_context)
