"""One service job, and the rules of its requests."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from sagemaker_local_account.batch.queues import client_error
from sagemaker_local_account.batch.scheduler import Use, Waiting

ENDED = ("SUCCEEDED", "FAILED")


@dataclass
class ServiceJob:
    """One service job."""

    request: Mapping[str, Any]
    payload: Mapping[str, Any]
    id: str
    queue: str
    order: int
    status: str = "RUNNABLE"
    reason: str = ""
    terminated: bool = False
    tried: int = 0
    training_job: str = ""
    environment: str = ""
    not_before: float = 0.0
    times: dict[str, int] = field(default_factory=dict)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    use: Use | None = None

    @property
    def machines(self) -> int:
        """The number of its machines."""
        resources = self.payload["ResourceConfig"]
        groups = resources.get("InstanceGroups") or (resources.get("InstancePreferences") or [resources])[:1]
        return sum(int(group.get("InstanceCount") or resources.get("InstanceCount") or 1) for group in groups)

    @property
    def waiting(self) -> Waiting:
        """What the scheduler takes of it."""
        given = self.request
        return Waiting(
            self.id,
            self.order,
            self.machines,
            given.get("shareIdentifier", ""),
            given.get("schedulingPriority", 0),
        )


def check_submission(request: Mapping[str, Any], *, shares: bool) -> None:
    """Checks the rules of SubmitServiceJob that its service model has as text.

    Args:
        request: its members.
        shares: whether the queue has a scheduling policy.
    """
    unsupported = [name for name in ("quotaShareName", "preemptionConfiguration") if name in request]
    if unsupported:
        raise client_error(f"the local account does not support {', '.join(unsupported)}")
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,128}", request["jobName"]):
        raise client_error("jobName must be up to 128 letters, numbers, hyphens and underscores")
    if shares != ("shareIdentifier" in request):
        must = "must" if shares else "must not"
        raise client_error(f"shareIdentifier {must} be specified for the job queue, by its scheduling policy")
    if not 0 <= request.get("schedulingPriority", 0) <= 9_999:
        raise client_error("schedulingPriority must be between 0 and 9999")
    if not 1 <= request.get("retryStrategy", {"attempts": 1})["attempts"] <= 10:
        raise client_error("attempts of retryStrategy must be between 1 and 10")


def payload_of(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the CreateTrainingJob request in a request of SubmitServiceJob."""
    try:
        payload = json.loads(request["serviceRequestPayload"])
        if isinstance(payload["ResourceConfig"], dict):
            return dict(payload)
    except (ValueError, KeyError, TypeError):
        pass
    raise client_error("serviceRequestPayload must be JSON of a CreateTrainingJob request with its ResourceConfig")


def is_tried_again(job: ServiceJob, reason: str) -> bool:
    """Whether a failed job is tried again: by the first condition that matches, and always where there are none."""
    strategy = job.request.get("retryStrategy") or {"attempts": 1}
    if job.tried >= strategy["attempts"]:
        return False
    for one in strategy.get("evaluateOnExit") or []:
        if fnmatchcase(reason, one.get("onStatusReason", "*")):
            return bool(one["action"] == "RETRY")
    return True


def is_listed(job: ServiceJob, request: Mapping[str, Any]) -> bool:
    """Whether ListServiceJobs returns a job: a filter takes the place of jobStatus, but for that of shares."""
    status = request.get("jobStatus") or "RUNNING"
    for one in request.get("filters") or []:
        if one["name"] == "JOB_NAME":
            return any(fnmatchcase(job.request["jobName"].lower(), value.lower()) for value in one["values"])
        if one["name"] != "SHARE_IDENTIFIER":
            raise client_error(f"the local account does not support the filter {one['name']}")
        if job.request.get("shareIdentifier") not in one["values"]:
            return False
    return job.status == status
