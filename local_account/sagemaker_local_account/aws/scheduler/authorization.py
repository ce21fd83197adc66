"""What requests to EventBridge Scheduler are authorized by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sagemaker_local_account.iam.service_authorization import ServiceAuthorization

_SCHEDULES = ("CreateSchedule", "DeleteSchedule", "GetSchedule", "UpdateSchedule")
_GROUPS = ("CreateScheduleGroup", "DeleteScheduleGroup", "GetScheduleGroup")
_ROLE = ("RoleArn", "scheduler.amazonaws.com")


def _members(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of a schedule: its group is by default "default", and the role is its target's."""
    target = request.get("Target")
    role = target.get("RoleArn") if isinstance(target, dict) else None
    group = request.get("GroupName") or "default"
    return {**request, "GroupName": group, "RoleArn": role}


AUTHORIZATION = ServiceAuthorization(
    "scheduler",
    resources={
        **dict.fromkeys(_SCHEDULES, "schedule/{GroupName}/{Name}"),
        **dict.fromkeys(_GROUPS, "schedule-group/{Name}"),
    },
    without_resource={"ListScheduleGroups", "ListSchedules"},
    passed_roles=dict.fromkeys(("CreateSchedule", "UpdateSchedule"), _ROLE),
    members=_members,
)
