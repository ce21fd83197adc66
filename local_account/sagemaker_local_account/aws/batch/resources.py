"""Batch's resources in CloudFormation: service environments, job queues of training jobs, quota shares, scheduling policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from sagemaker_local_account.aws.batch.queues import Queues
from sagemaker_local_account.aws.batch.service_jobs import ServiceJobs
from sagemaker_local_account.aws.resource_base import Properties, ResourceBase, replace_unless
from sagemaker_local_account.aws.resource_types import ServiceResources, real

_regions: Mapping[str, tuple[Queues, ServiceJobs]]


def install(regions: Mapping[str, tuple[Queues, ServiceJobs]]) -> None:
    """Sets the queues and service jobs of each region."""
    global _regions
    _regions = regions


class _Resource(ResourceBase):
    """A resource whose physical id is its ARN."""

    @property
    def _queues(self) -> Queues:
        return _regions[self.region_name][0]

    @property
    def _jobs(self) -> ServiceJobs:
        return _regions[self.region_name][1]

    def _request(self, member: str, name: str) -> dict[str, Any]:
        """The properties as the API has them, with the name that the template gives or the generated one."""
        given = _as_in_the_api(self.properties)
        return {**given, member: given.get(member, name)}


class ServiceEnvironment(_Resource):
    """AWS::Batch::ServiceEnvironment."""

    @override
    def create(self) -> None:
        request = self._request("serviceEnvironmentName", self.physical_resource_id)
        self.physical_resource_id = self._queues.create_environment(request)["serviceEnvironmentArn"]

    @override
    def update(self, former: Properties) -> None:
        replace_unless(self.properties, former, {"CapacityLimits", "State", "Tags"})
        request = self._request("serviceEnvironment", self.physical_resource_id)
        self._queues.environments.update(request, "serviceEnvironment")
        self._jobs.wake()

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        self._queues.environments.delete(self.physical_resource_id)

    @override
    def attributes(self) -> dict[str, str]:
        return {"ServiceEnvironmentArn": self.physical_resource_id}


class JobQueue(_Resource):
    """AWS::Batch::JobQueue of the type SAGEMAKER_TRAINING."""

    @override
    def create(self) -> None:
        request = self._request("jobQueueName", self.physical_resource_id)
        self.physical_resource_id = self._queues.create_queue(request)["jobQueueArn"]

    @override
    def update(self, former: Properties) -> None:
        changeable = {"Priority", "SchedulingPolicyArn", "ServiceEnvironmentOrder", "State", "Tags"}
        replace_unless(self.properties, former, changeable)
        self._queues.queues.update(self._request("jobQueue", self.physical_resource_id), "jobQueue")
        self._jobs.wake()

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        self._jobs.delete_queue(self.physical_resource_id)

    @override
    def attributes(self) -> dict[str, str]:
        return {"JobQueueArn": self.physical_resource_id}


class QuotaShare(_Resource):
    """AWS::Batch::QuotaShare."""

    @override
    def create(self) -> None:
        given = _as_in_the_api(self.properties)
        self.physical_resource_id = self._queues.create_quota_share(given)["quotaShareArn"]
        self._jobs.wake()

    @override
    def update(self, former: Properties) -> None:
        replace_unless(
            self.properties,
            former,
            {"CapacityLimits", "PreemptionConfiguration", "ResourceSharingConfiguration", "State", "Tags"},
        )
        given = _as_in_the_api({name: value for name, value in self.properties.items() if name != "JobQueue"})
        self._jobs.update_quota_share({**given, "quotaShareArn": self.physical_resource_id})

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        self._queues.shares.delete(self.physical_resource_id)

    @override
    def attributes(self) -> dict[str, str]:
        return {"QuotaShareArn": self.physical_resource_id}


class SchedulingPolicy(_Resource):
    """AWS::Batch::SchedulingPolicy."""

    @override
    def create(self) -> None:
        self.physical_resource_id = self._queues.create_policy(self._request("name", self.physical_resource_id))["arn"]

    @override
    def update(self, former: Properties) -> None:
        replace_unless(self.properties, former, {"FairsharePolicy", "QuotaSharePolicy", "Tags"})
        self._queues.policies.update(self._request("arn", self.physical_resource_id), "arn")
        self._jobs.wake()

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        self._queues.policies.delete(self.physical_resource_id)

    @override
    def attributes(self) -> dict[str, str]:
        return {"Arn": self.physical_resource_id}


def _as_in_the_api(value: Any) -> Any:
    """CloudFormation's PascalCase in the API's camelCase, and its text of numbers as numbers; tags are as they are."""
    if isinstance(value, dict):
        return {
            name[:1].lower() + name[1:]: item if name == "Tags" else _number(name, _as_in_the_api(item))
            for name, item in value.items()
        }
    return [_as_in_the_api(item) for item in value] if isinstance(value, list) else value


def _number(name: str, value: Any) -> Any:
    if name in ("BorrowLimit", "MaxCapacity", "Order", "Priority", "ShareDecaySeconds", "ComputeReservation"):
        return int(value)
    return float(value) if name == "WeightFactor" else value


RESOURCES = ServiceResources(
    types={
        "AWS::Batch::JobQueue": real(
            "of the type SAGEMAKER_TRAINING: its service jobs become training jobs of the account",
            "JobQueueName JobQueueType Priority SchedulingPolicyArn ServiceEnvironmentOrder State Tags",
            made_by=JobQueue,
            longest_name=128,
        ),
        "AWS::Batch::QuotaShare": real(
            "limits the machines of the jobs of a share, which are lent, borrowed and taken back",
            "CapacityLimits JobQueue PreemptionConfiguration QuotaShareName ResourceSharingConfiguration State Tags",
            made_by=QuotaShare,
            longest_name=128,
        ),
        "AWS::Batch::SchedulingPolicy": real(
            "fair shares, or quota shares",
            "FairsharePolicy Name QuotaSharePolicy Tags",
            made_by=SchedulingPolicy,
            longest_name=128,
        ),
        "AWS::Batch::ServiceEnvironment": real(
            "limits the machines of running jobs, in NUM_INSTANCES or by type",
            "CapacityLimits ServiceEnvironmentName ServiceEnvironmentType State Tags",
            made_by=ServiceEnvironment,
            longest_name=128,
        ),
    },
)
