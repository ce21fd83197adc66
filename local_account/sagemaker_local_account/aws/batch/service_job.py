"""One service job, and the rules of its requests."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from sagemaker_local_account.aws.batch.queues import TYPE, Policy, client_error
from sagemaker_local_account.aws.batch.quota_shares import Job
from sagemaker_local_account.aws.batch.scheduler import Use, Waiting
from sagemaker_local_account.core.clock import CLOCK

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
    preempting: bool = False
    preempted: list[dict[str, Any]] = field(default_factory=list)

    @property
    def machines_by_type(self) -> Counter[str]:
        """The numbers of its machines; of several types to choose from those of the first."""
        resources = self.payload["ResourceConfig"]
        groups = resources.get("InstanceGroups") or (resources.get("InstancePreferences") or [resources])[:1]
        found: Counter[str] = Counter()
        for group in groups:
            found[str(group.get("InstanceType"))] += int(
                group.get("InstanceCount") or resources.get("InstanceCount") or 1
            )
        return found

    @property
    def machines(self) -> int:
        """The number of its machines."""
        return self.machines_by_type.total()

    @property
    def of_share(self) -> Job:
        """What decides over its quota share take of it."""
        given, start = self.request, None if self.use is None else self.use.start
        priority = given.get("schedulingPriority", 0)
        return Job(self.id, self.order, given["quotaShareName"], self.machines_by_type, priority, start)

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

    @property
    def is_out_of_time(self) -> bool:
        """Whether its attempt has lasted longer than it may."""
        limit = (self.request.get("timeoutConfig") or {}).get("attemptDurationSeconds")
        return bool(limit and self.use and CLOCK.monotonic() - self.use.start > limit)

    def waits_again_after_preemption(self) -> bool:
        """Whether it waits again: it was preempted, and not more often than it says.

        "A job will be terminated when preemption retries have been exhausted. If this field is unset, preempted jobs will be
        requeued an unlimited number of times" (service model, preemptionRetriesBeforeTermination).
        """
        if not self.preempting or self.terminated:
            return False
        self.preempting = False
        self.preempted.insert(0, self.attempts[-1])
        most = (self.request.get("preemptionConfiguration") or {}).get("preemptionRetriesBeforeTermination")
        if most is not None and len(self.preempted) > most:
            return False
        del self.attempts[-1]
        self.times.pop("startedAt", None)
        self.tried -= 1
        self.status, self.reason = "RUNNABLE", "preempted"
        return True

    def summary(self, arn: str) -> dict[str, Any]:
        """The members that ListServiceJobs and DescribeServiceJob have in common.

        Args:
            arn: its ARN.
        """
        found: dict[str, Any] = {
            "jobArn": arn,
            "jobId": self.id,
            "jobName": self.request["jobName"],
            "serviceJobType": TYPE,
            "status": self.status,
            **self.times,
            **{name: self.request[name] for name in ("shareIdentifier", "quotaShareName") if name in self.request},
        }
        if self.reason:
            found["statusReason"] = self.reason
        if self.attempts:
            found["latestAttempt"] = {"serviceResourceId": self.attempts[-1]["serviceResourceId"]}
        return found

    def description(self, arn: str) -> dict[str, Any]:
        """DescribeServiceJob.

        Args:
            arn: its ARN.
        """
        given = (
            "retryStrategy",
            "schedulingPriority",
            "serviceRequestPayload",
            "timeoutConfig",
            "preemptionConfiguration",
        )
        found = {
            **self.summary(arn),
            **{name: self.request[name] for name in given if name in self.request},
            "tags": self.request.get("tags", {}),
            "jobQueue": self.queue,
            "isTerminated": self.terminated,
            "attempts": [dict(attempt) for attempt in self.attempts],
            "capacityUsage": [{"capacityUnit": "NUM_INSTANCES", "quantity": float(self.machines)}],
        }
        if "quotaShareName" in self.request:
            found["capacityUsage"] = [
                {"capacityUnit": kind, "quantity": float(count)} for kind, count in self.machines_by_type.items()
            ]
        if self.preempted:
            attempts = [dict(attempt) for attempt in self.preempted]
            found["preemptionSummary"] = {
                "preemptedAttemptCount": len(attempts),
                "recentPreemptedAttempts": attempts,
            }
        return found


def check_submission(request: Mapping[str, Any], policy: Policy | None, shares: Container[str]) -> None:
    """Checks the rules of SubmitServiceJob that its service model has as text.

    Args:
        request: its members.
        policy: the queue's scheduling policy.
        shares: the names of its quota shares that are enabled.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,128}", request["jobName"]):
        raise client_error("jobName must be up to 128 letters, numbers, hyphens and underscores")
    for member, of in (("shareIdentifier", "fair share"), ("quotaShareName", "quota share")):
        if (policy == of) != (member in request):
            must = "must" if policy == of else "must not"
            raise client_error(f"{member} {must} be specified for the job queue, by its scheduling policy")
    if policy == "quota share" and request["quotaShareName"] not in shares:
        raise client_error(f"the job queue has no quota share {request['quotaShareName']} that is enabled")
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
    """Whether a failed job is tried again: by the first condition that matches, and always where there are none.

    One that was preempted once more than it may be is not: "jobs go to FAILED" (AWS Batch guide, "Preemption").
    """
    strategy = job.request.get("retryStrategy") or {"attempts": 1}
    if job.tried >= strategy["attempts"] or any(one in job.preempted for one in job.attempts):
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
