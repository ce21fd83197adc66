"""Service environments, job queues and scheduling policies of a region."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from sagemaker_local_account.aws.batch.scheduler import FairShare
from sagemaker_local_account.core.location import Location
from sagemaker_local_account.core.service_errors import ServiceError

TYPE = "SAGEMAKER_TRAINING"
Policy = Literal["fair share", "quota share"]

_NAMES = {
    "service-environment": ("serviceEnvironmentName", "serviceEnvironmentArn"),
    "job-queue": ("jobQueueName", "jobQueueArn"),
    "quota-share": ("quotaShareName", "quotaShareArn"),
    "scheduling-policy": ("name", "arn"),
}


def client_error(message: str) -> ServiceError:
    """Returns Batch's error for a wrong request (service model, ClientException)."""
    return ServiceError("ClientException", message)


class Resources:
    """The resources of one kind, by ARN, in the order of their creation.

    Args:
        kind: such as ``job-queue``.
        location: the account and region.
    """

    def __init__(self, kind: str, location: Location) -> None:
        self._kind = kind
        self._name, self._arn = _NAMES[kind]
        self._prefix = f"arn:aws:batch:{location.region}:{location.account}:{kind}/"
        self._found: dict[str, dict[str, Any]] = {}

    def create(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Creates one; returns its name and ARN."""
        arn = self._arn_of(request)
        if arn in self._found:
            raise client_error(f"Object already exists: {arn}")
        state = {} if self._kind == "scheduling-policy" else {"state": "ENABLED", "status": "VALID"}
        self._found[arn] = {**state, "tags": {}, **request, self._arn: arn}
        return {self._name: request[self._name], self._arn: arn}

    def update(self, request: Mapping[str, Any], member: str) -> dict[str, Any]:
        """Updates the one that a member of the request names; returns its name and ARN."""
        found = self.get(request[member])
        found.update({name: value for name, value in request.items() if name != member})
        return {self._name: found[self._name], self._arn: found[self._arn]}

    def delete(self, name: str) -> dict[str, Any]:
        """Deletes one, if it exists."""
        self._found.pop(self._as_arn(name), None)
        return {}

    def describe(self, names: list[str] | None = None) -> list[dict[str, Any]]:
        """Returns those of the names or ARNs, or all."""
        if not names:
            return [*self._found.values()]
        return [found for name in names if (found := self._found.get(self._as_arn(name))) is not None]

    def get(self, name: str) -> dict[str, Any]:
        """Returns the one with a name or ARN."""
        found = self._found.get(self._as_arn(name))
        if found is None:
            raise client_error(f"{self._kind} {name} does not exist")
        return found

    def _arn_of(self, request: Mapping[str, Any]) -> str:
        if self._kind == "quota-share":
            return f"{request['jobQueueArn']}/quota-share/{request[self._name]}"
        return f"{self._prefix}{request[self._name]}"

    def _as_arn(self, name: str) -> str:
        return name if name.startswith("arn:") else self._prefix + name


class Queues:
    """What jobs wait in, and for.

    Args:
        location: the account and region.
    """

    def __init__(self, location: Location) -> None:
        self.environments = Resources("service-environment", location)
        self.queues = Resources("job-queue", location)
        self.policies = Resources("scheduling-policy", location)
        self.shares = Resources("quota-share", location)

    def create_environment(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """CreateServiceEnvironment."""
        _check_capacity(request["capacityLimits"])
        return self.environments.create(request)

    def create_queue(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """CreateJobQueue."""
        if request.get("jobQueueType") != TYPE or request.get("computeEnvironmentOrder"):
            raise client_error(f"the local account has job queues of the type {TYPE} only")
        if request.get("jobStateTimeLimitActions"):
            raise client_error("the local account does not support jobStateTimeLimitActions")
        if not request.get("serviceEnvironmentOrder"):
            raise client_error("serviceEnvironmentOrder must have a service environment")
        environments = [self.environments.get(one["serviceEnvironment"]) for one in request["serviceEnvironmentOrder"]]
        by_type = [_is_by_type(one) for one in environments]
        quotas = self.policy_of(request) == "quota share"
        if by_type != [True] if quotas else any(by_type):
            raise client_error(
                "a queue with a quota share policy must have one service environment, whose capacity limits are instance types, "
                "and no other queue may have such a service environment"
            )
        return self.queues.create(request)

    def create_quota_share(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """CreateQuotaShare."""
        queue = self.queues.get(request["jobQueue"])
        if self.policy_of(queue) != "quota share":
            raise client_error(f"the scheduling policy of {request['jobQueue']} has no quotaSharePolicy")
        members = {name: value for name, value in request.items() if name != "jobQueue"}
        return self.shares.create({**members, "jobQueueArn": queue["jobQueueArn"]})

    def quota_shares_of(self, queue: str) -> list[dict[str, Any]]:
        """Returns the quota shares of a queue, by its name or ARN."""
        arn = self.queues.get(queue)["jobQueueArn"]
        return [one for one in self.shares.describe() if one["jobQueueArn"] == arn]

    def create_policy(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """CreateSchedulingPolicy."""
        return self.policies.create(request)

    def policy_of(self, queue: Mapping[str, Any]) -> Policy | None:
        """Returns the kind of a queue's scheduling policy; None without one."""
        arn = queue.get("schedulingPolicyArn")
        if not arn:
            return None
        return "quota share" if self.policies.get(arn).get("quotaSharePolicy") else "fair share"

    def machines(self, queue: Mapping[str, Any]) -> tuple[str, dict[str, int]]:
        """Returns the service environment of a queue with quota shares, and its machines by type; none while it is disabled."""
        environment = self.environments.get(queue["serviceEnvironmentOrder"][0]["serviceEnvironment"])
        limits = environment["capacityLimits"] if environment["state"] == "ENABLED" else []
        return environment["serviceEnvironmentArn"], {one["capacityUnit"]: int(one["maxCapacity"]) for one in limits}

    def capacity(self, queue: Mapping[str, Any]) -> dict[str, int]:
        """Returns the capacity of each of a queue's service environments, in the order in which they are tried."""
        order = sorted(queue["serviceEnvironmentOrder"], key=lambda one: one["order"])
        found = [self.environments.get(one["serviceEnvironment"]) for one in order]
        return {
            one["serviceEnvironmentArn"]: int(one["capacityLimits"][0]["maxCapacity"])
            for one in found
            if one["state"] == "ENABLED"
        }

    def fair_share(self, queue: Mapping[str, Any]) -> FairShare | None:
        """Returns a queue's scheduling policy; None without one."""
        arn = queue.get("schedulingPolicyArn")
        if not arn:
            return None
        policy = self.policies.get(arn).get("fairsharePolicy") or {}
        weights = {one["shareIdentifier"]: one.get("weightFactor", 1.0) for one in policy.get("shareDistribution", [])}
        return FairShare(weights, float(policy.get("shareDecaySeconds") or 0))


def _is_by_type(environment: Mapping[str, Any]) -> bool:
    """Whether the capacity of a service environment is of instance types, for quota shares."""
    return any(one.get("capacityUnit") != "NUM_INSTANCES" for one in environment["capacityLimits"])


def _check_capacity(limits: list[Mapping[str, Any]]) -> None:
    units = [one.get("capacityUnit", "") for one in limits]
    if units != ["NUM_INSTANCES"] and not (units and all(unit.startswith("ml.") for unit in units)):
        raise client_error("capacityLimits must be one of NUM_INSTANCES, or of instance types such as ml.m5.large")
