"""Puts an event for each execution of a workflow whose job has not begun to train for a time.

The code of the Lambda function that a schedule of `waiting_longer_than` calls, with `StateMachineArn`, `JobNamePrefix`, for jobs
in a queue of AWS Batch `JobQueue`, the `Seconds` after which an execution waits too long, the seconds between two calls, `Every`,
and of the event itself `Time` and `Resources`. It imports only what Lambda's runtime contains.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import boto3
from botocore.config import Config

SOURCE, DETAIL_TYPE = "cdk-sagemaker-training", "Training Job Waiting"
CLOCKS_DIFFER = timedelta(minutes=1)  # of two services, at most
ENTRIES = 10  # of one PutEvents ("Amazon EventBridge quotas")
# ListTrainingJobs is limited to 2 calls a second in an account.
CONFIG = Config(retries={"mode": "standard", "total_max_attempts": 20})


class Job(NamedTuple):
    """A job of an execution: when it began to train and when it ended, None if it did not."""

    began: datetime | None
    ended: datetime | None


def handler(event: dict[str, Any], context: Any) -> None:
    """Handle a call of the schedule.

    Of the calls of a schedule, whose times are as far apart as it says, one is the first after an execution has waited for too
    long. A call that is repeated has the time of the first.
    """
    now = datetime.fromisoformat(event["Time"])
    too_long, between = timedelta(seconds=event["Seconds"]), timedelta(seconds=event["Every"])
    started = {arn: start for arn, start in running(event["StateMachineArn"]) if now - start >= too_long}
    if not started:
        return
    list_jobs = service_jobs if "JobQueue" in event else training_jobs
    named = list_jobs(event, min(started.values()) - CLOCKS_DIFFER)
    waiting = []
    for arn, start in started.items():
        prefix = f"{event['JobNamePrefix']}-{hashlib.md5(arn.encode()).hexdigest()}-"
        since = waits_since(start, (job() for name, job in named if name.startswith(prefix)))
        if since is not None and too_long <= now - since < too_long + between:
            print(f"{arn} has waited since {since.isoformat()}")
            waiting.append(arn)
    put_events(event, waiting)


def waits_since(start: datetime, jobs: Iterable[Job]) -> datetime | None:
    """Return since when an execution waits for a job to train, None if one trains.

    Args:
        start: When the execution started.
        jobs: Its jobs, the newest first. One that did not train was refused, or waits for machines.
    """
    for job in jobs:
        if job.began is not None:
            return job.ended
    return start


def running(state_machine_arn: str) -> Iterator[tuple[str, datetime]]:
    """Yield the ARNs of the executions that run, and since when they do."""
    states = boto3.client("stepfunctions", config=CONFIG)
    pages = states.get_paginator("list_executions").paginate(stateMachineArn=state_machine_arn, statusFilter="RUNNING")
    for page in pages:
        for execution in page["executions"]:
            yield execution["executionArn"], execution.get("redriveDate") or execution["startDate"]


def training_jobs(event: Mapping[str, Any], after: datetime) -> list[tuple[str, Callable[[], Job]]]:
    """Return the workflow's jobs that were created after a time, the newest first: names, and what looks a job up."""
    sagemaker = boto3.client("sagemaker", config=CONFIG)
    pages = sagemaker.get_paginator("list_training_jobs").paginate(
        NameContains=event["JobNamePrefix"],
        CreationTimeAfter=after,
        SortBy="CreationTime",
        SortOrder="Descending",
        PaginationConfig={"PageSize": 100},
    )
    names = [job["TrainingJobName"] for page in pages for job in page["TrainingJobSummaries"]]
    # The list does not say when a job began to train, so that a job is described, unless a later one trained.
    return [(name, partial(described, sagemaker, name)) for name in names]


def described(sagemaker: Any, name: str) -> Job:
    """Return when a training job began to train on its machines, and when it ended."""
    job = sagemaker.describe_training_job(TrainingJobName=name)
    return Job(job.get("TrainingStartTime"), job.get("TrainingEndTime"))


def service_jobs(event: Mapping[str, Any], after: datetime) -> list[tuple[str, Callable[[], Job]]]:
    """Return the workflow's service jobs that were created after a time, the newest first: names, and what looks a job up."""
    pages = (
        boto3.client("batch", config=CONFIG)
        .get_paginator("list_service_jobs")
        .paginate(jobQueue=event["JobQueue"], filters=[{"name": "JOB_NAME", "values": [f"{event['JobNamePrefix']}-*"]}])
    )
    jobs = [job for page in pages for job in page["jobSummaryList"] if job["createdAt"] >= after.timestamp() * 1000]
    jobs.sort(key=lambda job: job["createdAt"], reverse=True)
    return [(job["jobName"], partial(Job, moment(job.get("startedAt")), moment(job.get("stoppedAt")))) for job in jobs]


def moment(milliseconds: int | None) -> datetime | None:
    """Return the time that AWS Batch says as milliseconds since 1970."""
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)


def put_events(event: Mapping[str, Any], executions: list[str]) -> None:
    """Put an event for each execution; raises RuntimeError if one is not taken, so that Lambda repeats the call."""
    bus = boto3.client("events", config=CONFIG)
    for place in range(0, len(executions), ENTRIES):
        entries = [
            {
                "Source": SOURCE,
                "DetailType": DETAIL_TYPE,
                "Resources": event["Resources"],
                "Detail": json.dumps({"Execution": arn, "WaitedSeconds": event["Seconds"]}),
            }
            for arn in executions[place : place + ENTRIES]
        ]
        answer = bus.put_events(Entries=entries)
        if answer["FailedEntryCount"]:
            raise RuntimeError(f"events were not put: {answer['Entries']}")
