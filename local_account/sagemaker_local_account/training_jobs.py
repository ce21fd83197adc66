"""SageMaker's training jobs, as its API has them: create, describe, list, stop, and their tags."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from . import leftovers, prerequisites
from .images import ImageStore
from .job import Job, Surroundings, check_devices
from .validation import ServiceError, check, check_rules, refused

__all__ = ["ServiceError", "TrainingJobs"]

_MOST_LISTED = 100
_LISTED = 10


class TrainingJobs:
    """The training jobs of one account, each of which runs on this machine.

    ``credentials`` gives the AWS_* variables that act as a role, of the account itself for "". ``on_change`` gets a job's
    description each time its status changes. ``devices`` are the accelerators of a type, where it shall have fewer than it has.
    """

    def __init__(
        self,
        *,
        state: Path,
        endpoint_url: str,
        region: str,
        account_id: str,
        credentials: Callable[[str], Mapping[str, str]],
        images: ImageStore,
        on_change: Callable[[dict[str, Any]], None],
        devices: Mapping[str, int] | None = None,
    ) -> None:
        self._arn = f"arn:aws:sagemaker:{region}:{account_id}:training-job/"
        self._endpoint_url = endpoint_url
        self._region = region
        self._credentials = credentials
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}
        self._clients: dict[str, Any] = {}
        check_devices(devices or {})
        folder = state / "jobs"
        leftovers.clear(folder)
        self._surroundings = Surroundings(
            folder=folder,
            endpoint_url=endpoint_url,
            region=region,
            client=self._client,
            images=images,
            credentials=credentials,
            devices=devices or {},
            on_change=on_change,
        )

    def create(self, request: Mapping[str, Any]) -> dict[str, Any]:
        check("CreateTrainingJob", request)
        check_rules(request)
        name = request["TrainingJobName"]
        prerequisites.check_role(request["RoleArn"], self._client("iam"))
        prerequisites.check_buckets(request, self._region, self._client("s3"))
        # An ARN has the job's name in lower case.
        job = Job(request, self._arn + name.lower(), self._surroundings)
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
                f"The request was rejected because the training job is in status {job.status}, and only one that is "
                "InProgress can be stopped"
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
        page: dict[str, Any] = {"TrainingJobSummaries": found[first:last]}
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

    def _client(self, service: str) -> Any:
        """The account's own client of a service; boto3's clients, unlike its sessions, may be shared by threads."""
        with self._lock:
            if service not in self._clients:
                keys = self._credentials("")
                session = boto3.Session(
                    keys["AWS_ACCESS_KEY_ID"], keys["AWS_SECRET_ACCESS_KEY"], region_name=self._region
                )
                self._clients[service] = session.client(
                    service,
                    endpoint_url=self._endpoint_url,
                    config=Config(max_pool_connections=50, s3={"addressing_style": "path"}),
                )
            return self._clients[service]


def _fits(job: Mapping[str, Any], request: Mapping[str, Any]) -> bool:
    """Whether ListTrainingJobs is to name a job."""
    if request.get("NameContains", "").lower() not in job["TrainingJobName"].lower():
        return False
    if request.get("StatusEquals", job["TrainingJobStatus"]) != job["TrainingJobStatus"]:
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
