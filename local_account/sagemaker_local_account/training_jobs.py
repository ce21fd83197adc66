"""SageMaker's training jobs, as its API has them: create, describe, list, stop, and their tags."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import prerequisites, sagemaker_calls
from .api_calls import Place
from .clients import OF_JOBS, Clients
from .devices import is_newer
from .faults import Faults, Quota
from .file_systems import FileSystems
from .images import ImageStore
from .job import Job, Surroundings, check_devices
from .limits import Limits
from .permissions import AccessDenied, Permissions
from .plan import groups_of
from .service_errors import ServiceError, check, refused
from .sessions import Sessions, session_name
from .spec import Fidelity
from .validation import as_listed, check_rules

SERVICE = "sagemaker.amazonaws.com"

_MOST_LISTED = 100
_LISTED = 10


class TrainingJobs:
    """The training jobs of one region of an account, each of which runs on this machine, in ``folder``.

    ``root`` gives the account's own client of a service; ``sessions`` and ``clients`` act as the jobs' roles, as far as
    ``permissions`` let them; ``file_systems`` is what is mounted into them. ``on_change`` gets a job's
    description each time its status changes. ``devices`` are the accelerators of a type, where it shall have fewer than it has;
    ``fidelity`` is how like AWS's a host is; ``limits`` are what a host may take of this machine; ``faults`` is what shall go
    wrong.
    """

    def __init__(
        self,
        *,
        folder: Path,
        endpoint_url: str,
        place: Place,
        root: Callable[[str], Any],
        clients: Clients,
        sessions: Sessions,
        permissions: Permissions,
        images: ImageStore,
        file_systems: FileSystems,
        on_change: Callable[[dict[str, Any]], None],
        devices: Mapping[str, int],
        fidelity: Fidelity,
        limits: Limits,
        faults: Faults,
    ) -> None:
        self._arn = f"arn:aws:sagemaker:{place.region}:{place.account}:training-job/"
        self._root = root
        self._place = place
        self._sessions = sessions
        self._permissions = permissions
        self._faults = faults
        self._file_systems = file_systems
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}
        check_devices(devices)
        self._newer_types = frozenset(filter(is_newer, devices))
        folder.mkdir(parents=True, exist_ok=True)
        self._surroundings = Surroundings(
            folder=folder,
            endpoint_url=endpoint_url,
            region=place.region,
            client=lambda service, keys: clients.client(service, place.region, keys, OF_JOBS),
            images=images,
            file_systems=file_systems,
            credentials=lambda role, job: sessions.of(role, SERVICE, job),
            devices=devices,
            fidelity=fidelity,
            limits=limits,
            faults=faults,
            on_change=on_change,
        )

    def create(self, request: Mapping[str, Any]) -> dict[str, Any]:
        check("CreateTrainingJob", as_listed(request, self._newer_types))
        check_rules(request)
        name = request["TrainingJobName"]
        prerequisites.check_buckets(request, self._place.region, self._root("s3"))
        self._file_systems.check(request, self._place.region)
        # An ARN has the job's name in lower case.
        arn = self._arn + name.lower()
        self._check_role(request, arn)
        self._check_quotas(request)
        job = Job(request, arn, self._surroundings)
        with self._lock:
            if name in self._jobs:
                raise ServiceError(
                    "ResourceInUse", "Training job names must be unique within an AWS account and region"
                )
            self._jobs[name] = job
        job.start()
        return {"TrainingJobArn": job.arn}

    def describe(self, name: str) -> dict[str, Any]:
        return self._job(name).description()

    def stop(self, name: str) -> None:
        job = self._job(name)
        if not job.stop():
            raise refused(
                # The text that several have seen, such as awslabs/benchmark-ai 928.
                f"The request was rejected because the training job is in status {job.status}."
            )

    def list(self, request: Mapping[str, Any]) -> dict[str, Any]:
        check("ListTrainingJobs", request)
        with self._lock:
            jobs = [job.summary() for job in self._jobs.values()]
        found = [job for job in jobs if _fits(job, request)]
        key = {"Name": "TrainingJobName", "Status": "TrainingJobStatus"}.get(request.get("SortBy", ""), "CreationTime")
        found.sort(key=lambda job: job[key], reverse=request.get("SortOrder") == "Descending")
        first = int(request.get("NextToken") or 0)
        last = first + min(request.get("MaxResults") or _LISTED, _MOST_LISTED)
        # Last of all, so that a page may be empty and another follow, as the API's page has it of StatusEquals.
        status = request.get("StatusEquals")
        shown = [job for job in found[first:last] if status in (None, job["TrainingJobStatus"])]
        page: dict[str, Any] = {"TrainingJobSummaries": shown}
        if last < len(found):
            page["NextToken"] = str(last)
        return page

    def add_tags(self, arn: str, tags: builtins.list[Mapping[str, str]]) -> dict[str, Any]:
        job = self._job_by_arn(arn)
        job.tags.update({tag["Key"]: tag["Value"] for tag in tags})
        return self.list_tags(arn)

    def list_tags(self, arn: str) -> dict[str, Any]:
        return {"Tags": [{"Key": key, "Value": value} for key, value in self._job_by_arn(arn).tags.items()]}

    def delete_tags(self, arn: str, keys: builtins.list[str]) -> dict[str, Any]:
        tags = self._job_by_arn(arn).tags
        for key in keys:
            tags.pop(key, None)
        return {}

    def lose_host(self, name: str, host: str) -> None:
        """What no API of AWS does: lose one host of a job, such as ``algo-1``, as a machine is lost."""
        self._job(name).lose_host(host)

    def close(self) -> None:
        """End every job; afterwards no process of them is left."""
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
        """What SageMaker does with the role, it must be able to do before there is a job."""
        arn = request["RoleArn"]
        try:
            self._sessions.of(arn, SERVICE, job_arn)
        except LookupError as error:
            raise refused(
                f"Could not assume role {arn}. Please ensure that the role exists and allows principal '{SERVICE}' to "
                f"assume the role: {error}"
            ) from None
        role = self._permissions.role(arn, session_name(SERVICE))
        for what, calls in {
            "Access denied for the training image": sagemaker_calls.image_calls(request),
            "Access denied for VpcConfig": sagemaker_calls.network_calls(request, self._place),
            "Access denied for FileSystemDataSource": sagemaker_calls.file_system_calls(request, self._place),
            "Access denied for VolumeKmsKeyId": sagemaker_calls.key_calls(request, self._place),
        }.items():
            for call in calls:
                try:
                    self._permissions.check(role, call, self._place.region)
                except AccessDenied as denied:
                    raise refused(f"{what}: {denied}") from None

    def _check_quotas(self, request: Mapping[str, Any]) -> None:
        for _, instance_type, count in groups_of(request):
            for quota in self._faults.of(Quota, job=request["TrainingJobName"]):
                used = self._in_use(instance_type)
                over = quota.instance_type == instance_type and used + count > quota.limit
                if over and self._faults.take(quota):
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
    """Whether ListTrainingJobs counts a job for its pages."""
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
