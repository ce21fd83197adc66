"""The training jobs of a region: CreateTrainingJob, DescribeTrainingJob, ListTrainingJobs, StopTrainingJob, and tags."""

from __future__ import annotations

import builtins
import dataclasses
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sagemaker_local_account.aws.sagemaker import prerequisites, role_calls
from sagemaker_local_account.aws.sagemaker.job_context import JobContext
from sagemaker_local_account.aws.sagemaker.job_lifecycle import Job, check_devices
from sagemaker_local_account.aws.sagemaker.rules import as_listed, check_rules
from sagemaker_local_account.aws.sagemaker.scheduler import groups_of
from sagemaker_local_account.aws.sts.sessions import RoleSessions, session_name
from sagemaker_local_account.core.clients import OF_JOBS, Clients
from sagemaker_local_account.core.location import Location
from sagemaker_local_account.core.service_errors import ServiceError, check, refused
from sagemaker_local_account.faults import Faults, Quota
from sagemaker_local_account.iam.authorizer import AccessDenied, Authorizer
from sagemaker_local_account.images.image_store import ImageStore
from sagemaker_local_account.runtime.devices import is_newer
from sagemaker_local_account.runtime.limits import Limits
from sagemaker_local_account.runtime.spec import Fidelity
from sagemaker_local_account.storage.file_systems import FileSystems

SERVICE = "sagemaker.amazonaws.com"

_MOST_LISTED = 100
_LISTED = 10


class TrainingJobs:
    """The training jobs of one region, which run on this machine.

    Args:
        folder: the folder for the jobs' hosts.
        endpoint_url: the account's endpoint.
        location: the account and region.
        root: returns a client of a service with the root's credentials.
        clients: the account's clients.
        sessions: the credentials of the jobs' roles.
        authorizer: evaluates the permissions of the jobs' roles.
        images: resolves training images.
        file_systems: mounts file systems.
        on_change: called with a job's description after each change of its status.
        devices: accelerators per instance type, instead of the type's own.
        fidelity: how closely hosts resemble AWS's.
        host_seed: deals the numbers of hosts to instance groups; None for a seed of each job, its name.
        limits: the memory, processes and disk of hosts.
        faults: the faults to inject.
    """

    def __init__(
        self,
        *,
        folder: Path,
        endpoint_url: str,
        location: Location,
        root: Callable[[str], Any],
        clients: Clients,
        sessions: RoleSessions,
        authorizer: Authorizer,
        images: ImageStore,
        file_systems: FileSystems,
        on_change: Callable[[dict[str, Any]], None],
        devices: Mapping[str, int],
        fidelity: Fidelity,
        host_seed: int | None,
        limits: Limits,
        faults: Faults,
    ) -> None:
        self._arn = f"arn:aws:sagemaker:{location.region}:{location.account}:training-job/"
        self._root = root
        self._location = location
        self._sessions = sessions
        self._authorizer = authorizer
        self._faults = faults
        self._file_systems = file_systems
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}
        check_devices(devices)
        self._newer_types = frozenset(filter(is_newer, devices))
        folder.mkdir(parents=True, exist_ok=True)
        self._context = JobContext(
            folder=folder,
            endpoint_url=endpoint_url,
            region=location.region,
            client=lambda service, keys: clients.client(service, location.region, keys, OF_JOBS),
            images=images,
            file_systems=file_systems,
            credentials=lambda role, job: sessions.credentials(role, SERVICE, job),
            devices=devices,
            fidelity=fidelity,
            host_seed=host_seed,
            limits=limits,
            faults=faults,
            on_change=on_change,
        )

    @property
    def host_seed(self) -> int | None:
        """The seed of the host numbers of jobs that are created from now on."""
        return self._context.host_seed

    @host_seed.setter
    def host_seed(self, seed: int | None) -> None:
        self._context = dataclasses.replace(self._context, host_seed=seed)

    def create(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """CreateTrainingJob."""
        check("CreateTrainingJob", as_listed(request, self._newer_types))
        check_rules(request)
        name = request["TrainingJobName"]
        prerequisites.check_buckets(request, self._location.region, self._root("s3"))
        self._file_systems.check(request, self._location.region)
        # ARNs contain the job's name in lower case.
        arn = self._arn + name.lower()
        self._check_role(request, arn)
        self._check_quotas(request)
        job = Job(request, arn, self._context)
        with self._lock:
            if name in self._jobs:
                raise ServiceError(
                    "ResourceInUse", "Training job names must be unique within an AWS account and region"
                )
            self._jobs[name] = job
        job.start()
        return {"TrainingJobArn": job.arn}

    def describe(self, name: str) -> dict[str, Any]:
        """DescribeTrainingJob."""
        return self._job(name).description()

    def metric_series(self, name: str) -> dict[str, builtins.list[tuple[datetime, float]]]:
        """Returns the values of each metric of a job by time."""
        return self._job(name).metric_series()

    def stop(self, name: str) -> None:
        """StopTrainingJob."""
        job = self._job(name)
        if not job.stop():
            raise refused(
                # The service's message, as in awslabs/benchmark-ai 928.
                f"The request was rejected because the training job is in status {job.status}."
            )

    def list(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """ListTrainingJobs."""
        check("ListTrainingJobs", request)
        with self._lock:
            jobs = [job.summary() for job in self._jobs.values()]
        found = [job for job in jobs if _fits(job, request)]
        key = {"Name": "TrainingJobName", "Status": "TrainingJobStatus"}.get(request.get("SortBy", ""), "CreationTime")
        found.sort(key=lambda job: job[key], reverse=request.get("SortOrder") == "Descending")
        first = int(request.get("NextToken") or 0)
        last = first + min(request.get("MaxResults") or _LISTED, _MOST_LISTED)
        # After paging: a page may be empty and another follow, as documented for StatusEquals.
        status = request.get("StatusEquals")
        shown = [job for job in found[first:last] if status in (None, job["TrainingJobStatus"])]
        page: dict[str, Any] = {"TrainingJobSummaries": shown}
        if last < len(found):
            page["NextToken"] = str(last)
        return page

    def tags_of(self, name: str) -> dict[str, str]:
        """Returns the tags of a job; none of one that does not exist."""
        with self._lock:
            job = self._jobs.get(name)
        return {} if job is None else dict(job.tags)

    def add_tags(self, arn: str, tags: builtins.list[Mapping[str, str]]) -> dict[str, Any]:
        """AddTags."""
        job = self._job_by_arn(arn)
        job.tags.update({tag["Key"]: tag["Value"] for tag in tags})
        return self.list_tags(arn)

    def list_tags(self, arn: str) -> dict[str, Any]:
        """ListTags."""
        return {"Tags": [{"Key": key, "Value": value} for key, value in self._job_by_arn(arn).tags.items()]}

    def delete_tags(self, arn: str, keys: builtins.list[str]) -> dict[str, Any]:
        """DeleteTags."""
        tags = self._job_by_arn(arn).tags
        for key in keys:
            tags.pop(key, None)
        return {}

    def lose_host(self, name: str, host: str) -> None:
        """Kills a host of a job, such as ``algo-1``, as if its machine had failed; for tests."""
        self._job(name).lose_host(host)

    def close(self) -> None:
        """Kills all jobs; returns when their processes have ended."""
        with self._lock:
            jobs = [*self._jobs.values()]
        for job in jobs:
            job.abort()

    def _job(self, name: str) -> Job:
        with self._lock:
            job = self._jobs.get(name)
        if job is None:
            raise refused("Requested resource not found.")
        return job

    def _job_by_arn(self, arn: str) -> Job:
        with self._lock:
            job = next((job for job in self._jobs.values() if job.arn == arn), None)
        if job is None:
            raise ServiceError("ResourceNotFound", f"the account has no training job {arn}")
        return job

    def _check_role(self, request: Mapping[str, Any], job_arn: str) -> None:
        """Checks the trust policy of the job's role, and the permissions that SageMaker checks when a job is created."""
        arn = request["RoleArn"]
        try:
            self._sessions.credentials(arn, SERVICE, job_arn)
        except LookupError as error:
            raise refused(
                f"Could not assume role {arn}. Please ensure that the role exists and allows principal '{SERVICE}' to "
                f"assume the role: {error}"
            ) from None
        role = self._authorizer.role(arn, session_name(SERVICE))
        for what, calls in {
            "Access denied for the training image": role_calls.image_calls(request),
            "Access denied for VpcConfig": role_calls.network_calls(request, self._location),
            "Access denied for FileSystemDataSource": role_calls.file_system_calls(request, self._location),
            "Access denied for VolumeKmsKeyId": role_calls.key_calls(request, self._location),
        }.items():
            for call in calls:
                try:
                    self._authorizer.check(role, call, self._location.region)
                except AccessDenied as denied:
                    raise refused(f"{what}: {denied}") from None

    def _check_quotas(self, request: Mapping[str, Any]) -> None:
        for _, instance_type, count in groups_of(request):
            for quota in self._faults.of(Quota, job=request["TrainingJobName"]):
                used = self._in_use(instance_type) + quota.in_use
                over = quota.instance_type == instance_type and used + count > quota.limit
                if over and self._faults.consume(quota):
                    raise ServiceError(
                        "ResourceLimitExceeded",
                        f"The account-level service limit '{instance_type} for training job usage' is {quota.limit} "
                        f"Instances, with current utilization of {used} Instances and a request delta of {count} "
                        "Instances. Please use AWS Service Quotas to request an increase for this quota. If AWS Service "
                        "Quotas is not available, contact AWS support to request an increase for this quota.",
                    )

    def _in_use(self, instance_type: str) -> int:
        with self._lock:
            running = [job.request for job in self._jobs.values() if job.status in ("InProgress", "Stopping")]
        return sum(count for request in running for _, kind, count in groups_of(request) if kind == instance_type)


def _fits(job: Mapping[str, Any], request: Mapping[str, Any]) -> bool:
    """Whether a job matches the filters of ListTrainingJobs other than StatusEquals."""
    if request.get("NameContains", "").lower() not in job["TrainingJobName"].lower():
        return False
    for member in ("CreationTime", "LastModifiedTime"):
        after, before = request.get(f"{member}After"), request.get(f"{member}Before")
        if after is not None and job[member] <= _time(after):
            return False
        if before is not None and job[member] >= _time(before):
            return False
    return True


def _time(value: Any) -> datetime:
    # JSON 1.1 has times as seconds since 1970.
    return datetime.fromtimestamp(float(value), UTC)
