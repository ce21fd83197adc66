"""Stops the executions of a state machine and their training jobs before it is deleted, and waits for their end.

The code of the Lambda function behind CloudFormation's custom resource `Custom::SageMakerTrainingUpdates`, whose property
`Workflows` has for each what its roles may do, and of each other state machine the logical id, and behind
`Custom::SageMakerTrainingJobs`, with the properties `StateMachineArn`, for jobs in a queue of AWS Batch `JobQueue`, for those
that are known by a tag `TaggedJobNamePrefix`, and for jobs that go on `Retain`. It imports only what Lambda's runtime contains.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

SECONDS_TO_RESPOND = 30
SECONDS_BETWEEN_LOOKS = 5
# For a CreateTrainingJob that was under way when its execution ended.
SECONDS_UNTIL_LATE_JOBS_SHOW = 15


def handler(event: dict[str, Any], context: Any) -> None:
    """Handle a request of CloudFormation; responds to it even if an error occurs."""
    properties = event["ResourceProperties"]
    looks = "Workflows" in properties

    def seconds_left() -> float:
        return float(context.get_remaining_time_in_millis() / 1000 - SECONDS_TO_RESPOND)

    response = {name: event[name] for name in ("StackId", "RequestId", "LogicalResourceId")}
    # A replaced state machine is another resource, so that CloudFormation deletes this one afterwards.
    id = "updates" if looks else properties["StateMachineArn"]
    response["PhysicalResourceId"] = event.get("PhysicalResourceId", id)
    if event["RequestType"] == "Update":
        response["PhysicalResourceId"] = id
    try:
        if looks and event["RequestType"] == "Update":
            look(event, seconds_left)
        elif not looks and event["RequestType"] == "Delete" and properties.get("Retain") != "true":
            Workflow(properties, seconds_left).stop()
        response["Status"] = "SUCCESS"
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
        response |= {"Status": "FAILED", "Reason": f"{type(error).__name__}: {error}"}
    request = urllib.request.Request(
        event["ResponseURL"], json.dumps(response).encode(), {"Content-Type": ""}, method="PUT"
    )
    urllib.request.urlopen(request).close()


def look(event: dict[str, Any], seconds_left: Callable[[], float]) -> None:
    """Refuse an update that takes from running executions what they need, or stop them, as each workflow says."""
    client, stack = boto3.client("cloudformation"), event["StackId"]
    if "ROLLBACK" in client.describe_stacks(StackName=stack)["Stacks"][0]["StackStatus"]:
        return  # what it takes back was never used
    after = {id_of(workflow): workflow for workflow in event["ResourceProperties"]["Workflows"]}
    refused = []
    for before in event["OldResourceProperties"].get("Workflows", []):
        breaking, lost = lost_by(before, after.get(id_of(before)))
        if not lost:
            continue
        if "LogicalId" in before:
            found = client.describe_stack_resource(StackName=stack, LogicalResourceId=before["LogicalId"])
            before = {"StateMachineArn": found["StackResourceDetail"]["PhysicalResourceId"]}
        workflow = Workflow(before, seconds_left)
        if not (running := workflow.running()):
            continue
        if breaking == "stop":
            workflow.stop()
            continue
        shown = f"{', '.join(running[:3])}{f' and {len(running) - 3} more' if len(running) > 3 else ''}"
        refused.append(f"{'; '.join(lost[:3])} is needed by {shown}")
    if refused:
        raise RuntimeError(
            f"breaking_updates must be 'stop' or 'allow', or these executions must have ended, for an update in which what "
            f"they need is taken away: {' | '.join(refused)}"
        )


def id_of(workflow: dict[str, Any]) -> str:
    """Return what an update does not change of a workflow, or of a state machine of another construct."""
    return str(workflow.get("LogicalId") or workflow["StateMachineArn"])


def lost_by(before: dict[str, Any], now: dict[str, Any] | None) -> tuple[str, list[str]]:
    """Return what becomes of an update, and what executions that run lose by it; nothing where that is allowed."""
    if now is not None:
        breaking = now["BreakingUpdates"]
        return breaking, [] if breaking == "allow" else taken(before["Needs"], now["Needs"])
    # Where that is no loss its deletion, after the update, stops the executions, or lets them go on.
    loss = before["BreakingUpdates"] == "refuse" and before.get("Retain") != "true"
    return "refuse", ["the state machine or its guard, which is removed or has another id,"] if loss else []


def taken(before: dict[str, list[str]], now: dict[str, list[str]]) -> list[str]:
    """Return what was allowed and is no longer, as text."""
    return [
        f"{action} on {resource}"
        for action, resources in before.items()
        for resource in resources
        if not any(fnmatchcase(resource, pattern) for pattern in now.get(action, []))
    ]


class Workflow:
    """The executions of a state machine, and their jobs, if they have any; with a queue, its service jobs."""

    def __init__(self, properties: dict[str, Any], seconds_left: Callable[[], float]) -> None:
        """Create the clients; ``seconds_left`` returns the time that remains for the jobs' end."""
        # ListTrainingJobs is limited to 2 calls a second in an account.
        config = Config(retries={"mode": "standard", "total_max_attempts": 20})
        self.states = boto3.client("stepfunctions", config=config)
        self.queue = properties.get("JobQueue")
        self.jobs = boto3.client("batch" if self.queue else "sagemaker", config=config)
        self.machine, self.by_tag = properties["StateMachineArn"], properties.get("TaggedJobNamePrefix", "")
        self.seconds_left = seconds_left
        self.seen: dict[str, float] = {}  # by ARN, when an execution was first seen to have ended

    def executions(self, **options: str) -> Iterator[dict[str, Any]]:
        """Yield the executions; none of a state machine that was deleted by hand."""
        pages = self.states.get_paginator("list_executions").paginate(stateMachineArn=self.machine, **options)
        try:
            for page in pages:
                yield from page["executions"]
        except self.states.exceptions.StateMachineDoesNotExist:
            print(f"there is no {self.machine}")

    def running(self) -> list[str]:
        """Return the ARNs of the executions that run."""
        return [execution["executionArn"] for execution in self.executions(statusFilter="RUNNING")]

    def stop(self) -> None:
        """Stop executions and jobs until none is left; raises TimeoutError with a job that does not end in time."""
        while True:
            executions, active = self.stop_executions()
            jobs = self.unfinished(executions)
            for name in jobs:
                self.stop_job(name)
            for name in jobs:
                self.wait(name, jobs)
            if not active and not jobs:
                return
            time.sleep(SECONDS_UNTIL_LATE_JOBS_SHOW)

    def stop_executions(self) -> tuple[set[str], bool]:
        """Return the executions' ARNs, and whether one runs or just ended without success."""
        arns, active = set(), False
        for execution in self.executions():
            arns.add(execution["executionArn"])
            # One that succeeded has waited for the end of its last job.
            if execution["status"] != "SUCCEEDED" and "stopDate" in execution:
                active |= self.seconds_ended(execution) < SECONDS_UNTIL_LATE_JOBS_SHOW
            if execution["status"] in ("RUNNING", "PENDING_REDRIVE"):
                active = True
                print(f"stopping {execution['executionArn']}")
                self.states.stop_execution(
                    executionArn=execution["executionArn"], cause="the workflow is being deleted"
                )
        return arns, active

    def seconds_ended(self, execution: dict[str, Any]) -> float:
        """Return how long ago an execution ended; at least since it was seen so, whatever the clocks say that differ."""
        seen = self.seen.setdefault(execution["executionArn"], time.monotonic())
        ended: datetime = execution["stopDate"]
        return max((datetime.now(UTC) - ended).total_seconds(), time.monotonic() - seen)

    def unfinished(self, executions: set[str]) -> list[str]:
        """Return what stops those executions' unfinished jobs, whose names have a hash of the execution, or a tag names it."""
        if self.by_tag:
            return [id for name, id in self.active() if self.tagged(name) in executions]
        hashes = {hashlib.md5(arn.encode()).hexdigest() for arn in executions}
        parts = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
        return [id for name, id in self.active() if hashes.intersection(parts.findall(name))]

    def tagged(self, name: str) -> str | None:
        """Return the execution that a job's tag names, None of another's job, whose name does not begin with the prefix."""
        if not name.startswith(f"{self.by_tag}-"):
            return None
        arn = self.jobs.describe_training_job(TrainingJobName=name)["TrainingJobArn"]
        tags = {tag["Key"]: tag["Value"] for tag in self.jobs.list_tags(ResourceArn=arn)["Tags"]}
        return tags.get("StepFunctionsExecution")

    def active(self) -> list[tuple[str, str]]:
        """Return the names of unfinished jobs, and what stops each: a service job's id, else its name.

        Of all, since what their names began with when they were created may have been changed meanwhile.
        """
        if self.queue:
            pages = [
                page
                for status in ("SUBMITTED", "PENDING", "RUNNABLE", "SCHEDULED", "STARTING", "RUNNING")
                for page in self.jobs.get_paginator("list_service_jobs").paginate(jobQueue=self.queue, jobStatus=status)
            ]
            return [(job["jobName"], job["jobId"]) for page in pages for job in page["jobSummaryList"]]
        pages = [
            page
            for status in ("InProgress", "Stopping")
            for page in self.jobs.get_paginator("list_training_jobs").paginate(
                StatusEquals=status, PaginationConfig={"PageSize": 100}
            )
        ]
        names = [job["TrainingJobName"] for page in pages for job in page["TrainingJobSummaries"]]
        return [(name, name) for name in names]

    def stop_job(self, name: str) -> None:
        """Stop a job, unless it has ended."""
        if self.queue:
            self.jobs.terminate_service_job(jobId=name, reason="the workflow is being deleted")
            print(f"terminating {name}")
            return
        try:
            self.jobs.stop_training_job(TrainingJobName=name)
            print(f"stopping {name}")
        except ClientError as error:
            if "training job is in status" not in str(error):
                raise

    def wait(self, name: str, names: list[str]) -> None:
        """Wait for the end of a job; ``names`` are all jobs that were stopped, for the message of TimeoutError."""
        while True:
            if self.queue:
                status = self.jobs.describe_service_job(jobId=name)["status"]
            else:
                status = self.jobs.describe_training_job(TrainingJobName=name)["TrainingJobStatus"]
            if status in ("SUCCEEDED", "Completed", "FAILED", "Failed", "Stopped"):
                print(f"{name} is {status}")
                return
            if self.seconds_left() < SECONDS_BETWEEN_LOOKS:
                raise TimeoutError(
                    f"{name} is {status}, of these training jobs that were stopped: {', '.join(names)}; "
                    "delete the stack again once they have ended"
                )
            time.sleep(SECONDS_BETWEEN_LOOKS)
