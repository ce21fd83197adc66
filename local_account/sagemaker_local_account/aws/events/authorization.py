"""What requests to EventBridge are authorized by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sagemaker_local_account.core.location import Location
from sagemaker_local_account.iam.service_authorization import ServiceAuthorization

_ON_RULES = {"DescribeRule": "Name", "PutRule": "Name", "PutTargets": "Rule"}


def _resources_of(operation: str, request: Mapping[str, Any], location: Location) -> list[str] | None:
    """A rule of another bus than the default one has the bus in its ARN, and each event is of a bus."""
    here = f"arn:aws:events:{location.region}:{location.account}:"
    if operation == "PutEvents":
        entries = [it for it in request.get("Entries") or [] if isinstance(it, dict)]
        buses = [str(it.get("EventBusName") or "default") for it in entries] or ["default"]
        return [bus if bus.startswith("arn:") else f"{here}event-bus/{bus}" for bus in dict.fromkeys(buses)]
    name = request.get(_ON_RULES.get(operation, ""))
    if not name:
        return None
    bus = str(request.get("EventBusName") or "default").rpartition("/")[2]
    return [f"{here}rule/{name}" if bus == "default" else f"{here}rule/{bus}/{name}"]


AUTHORIZATION = ServiceAuthorization(
    "events", resources_of=_resources_of, passed_roles={"PutTargets": ("RoleArn", "events.amazonaws.com")}
)
