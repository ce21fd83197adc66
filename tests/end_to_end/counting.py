"""Workflows whose jobs count, in an account with faults for each of their executions: what one meets, and what is expected."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_stepfunctions as sfn
from deployed import Deployed, wait_until

from cdk_sagemaker_training import (
    Cause,
    DataParallelJob,
    InstanceGroup,
    Plateau,
    Retry,
    S3Prefix,
    Silence,
    Spot,
    TrainingImage,
    TrainingWorkflow,
)
from cdk_sagemaker_training.lifecycle.polling import Poller
from sagemaker_local_account.core.service_errors import ServiceError
from sagemaker_local_account.faults import (
    Capacity,
    Fault,
    FullDisk,
    Interruption,
    LateHost,
    LostHost,
    Quota,
    SlowS3,
    Throttling,
)

A_COUNTING_JOB = Path(__file__).parent / "a_counting_job"
TYPE, OTHER_TYPE = "ml.m5.xlarge", "ml.m5.2xlarge"
WORKFLOWS = ("Sync", "Poll", "Watched", "SpotSync", "SpotPoll")
BY_A_PERSON = ("job stopped by a person", "execution stopped by a person")
# How an execution ends: its status, its error, what its cause has, and the status of its last job.
ENDS: dict[str, tuple[str, str | None, str, str]] = {
    "completes": ("SUCCEEDED", None, "", "Completed"),
    "algorithm error": ("FAILED", "TrainingJobFailed", "algorithm error, not retried: AlgorithmError: a bug", "Failed"),
    "out of memory": ("FAILED", "TrainingJobFailed", "out of memory, not retried: AlgorithmError", "Failed"),
    "full disk": ("FAILED", "TrainingJobFailed", "algorithm error, not retried: AlgorithmError", "Failed"),
    BY_A_PERSON[0]: ("FAILED", "TrainingJobStopped", ": Stopped", "Stopped"),
    BY_A_PERSON[1]: ("ABORTED", None, "", "Stopped"),
}
FAILURES = {
    "algorithm error": "a bug",
    "out of memory": "torch.OutOfMemoryError: CUDA out of memory",
    "full disk": "large",
    **dict.fromkeys(BY_A_PERSON, "endless"),
}


UNAVAILABLE = ServiceError("ServiceUnavailable", "the service is unavailable", 503)
# What a caller gets where SageMaker has made the job.
LOST_ANSWERS: dict[str, Exception] = {
    "lost answer": ConnectionAbortedError("a test loses this answer"),
    "server error after the job was made": UNAVAILABLE,
}


class Counting(cdk.Stack):
    """Workflows that differ in how they wait for their jobs, with retries of each cause that passes."""

    def __init__(self, app: cdk.App) -> None:
        super().__init__(app, "Counting")
        bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
        image = TrainingImage.from_asset(self, "Image", directory=str(A_COUNTING_JOB))
        again = Retry(attempts=25, first_wait=5, backoff=1)
        causes = (Cause.THROTTLED, Cause.SERVICE_ERROR, Cause.QUOTA, Cause.CAPACITY, Cause.HOST_LOST)
        for name in (*WORKFLOWS, "Preferring"):
            checkpoints = S3Prefix(bucket, f"checkpoints/{name}/")
            more: dict[str, Any] = {"checkpoints": checkpoints}
            if name.startswith("Spot"):
                more = {"spot": Spot(checkpoints, max_wait=cdk.Duration.hours(20))}
            workflow = TrainingWorkflow(
                self,
                name,
                job=DataParallelJob(InstanceGroup([TYPE, OTHER_TYPE] if name == "Preferring" else TYPE)),
                image=image,
                output=S3Prefix(bucket, "models/"),
                integration="sync" if name.endswith("Sync") else "poll",
                environment={
                    key: sfn.JsonPath.string_at(f"$.{key}") for key in ("FAILURE", "LAST", "INTERRUPTIONS", "STEPS")
                },
                retries=dict.fromkeys(causes, again),
                metric_definitions={"loss": "loss=([0-9.]+)"},
                stop_when=[Silence(), Plateau("loss", patience=600)] if name == "Watched" else [],
                max_runtime=cdk.Duration.hours(18),
                **more,
            )
            self.write(f"{name}Arn", workflow.state_machine.state_machine_arn)
            self.write(f"{name}StopperArn", workflow.guard.stopper.state_machine_arn)
            self.write(f"{name}Alarm", workflow.guard.stopper_alarm.alarm_name)
            for poller in (one for one in workflow.node.children if isinstance(one, Poller)):
                self.write(f"{name}PollerArn", poller.state_machine.state_machine_arn)

    def write(self, name: str, value: str) -> None:
        cdk.CfnOutput(self, name, value=value)


class BrokenCalls:
    """Faults of single CreateTrainingJob calls: one that a server fails to answer, and one whose answer is lost."""

    def __init__(self, account: Any) -> None:
        self._create, self._lock = account.jobs.create, threading.Lock()
        self.errors: Counter[str] = Counter()
        self.lost: dict[str, str] = {}
        self.calls: Counter[str] = Counter()
        self.happened: Counter[str] = Counter()
        account.jobs.create = self.create

    def create(self, request: dict[str, Any]) -> dict[str, Any]:
        [name] = re.findall(r"[0-9a-f]{32}-\d+$", request["TrainingJobName"])
        with self._lock:
            error = self.errors[name] > 0
            self.errors[name] -= error
            self.happened["server error"] += error
            self.calls[name] += 1
        if error:
            raise UNAVAILABLE
        response = self._create(request)
        with self._lock:
            lost = self.lost.pop(name, "")
        if lost:
            self.happened[lost] += 1
            raise LOST_ANSWERS[lost]
        return dict(response)


@dataclass
class Plan:
    """What an execution meets, and its end.

    ``attempts`` are what each attempt before the last meets, "capacity" or "lost host"; ``others`` are faults of an attempt, with
    how often each occurs.
    """

    workflow: str
    name: str
    ends: str = "completes"
    attempts: list[str] = field(default_factory=list)
    interruptions: int = 0
    others: dict[int, dict[str, int]] = field(default_factory=dict)
    steps: int = 8
    failure: str = ""

    @property
    def last(self) -> int:
        return len(self.attempts) + 1

    @property
    def statuses(self) -> list[str]:
        return ["Failed"] * len(self.attempts) + [ENDS[self.ends][3]]

    def faults(self) -> int:
        """Those of its jobs and calls, and its end where that is one."""
        of_calls = sum(times for faults in self.others.values() for times in faults.values())
        return len(self.attempts) + self.interruptions + of_calls + (self.ends != "completes")


@dataclass
class Run:
    """An execution of a plan: its name as the account knows it, and what all names of its jobs have in common."""

    plan: Plan
    execution: str
    digest: str
    faults: list[tuple[str, str]]


class Counted:
    """A deployed stack, and what happens to the executions of plans in it."""

    def __init__(self, deployed: Deployed, outputs: dict[str, str]) -> None:
        self.deployed, self.outputs = deployed, outputs
        self.account = deployed.account
        self.states = deployed.client("stepfunctions")
        self.broken = BrokenCalls(self.account)
        self.injected: Counter[str] = Counter()

    def start(self, plan: Plan, **faults: Fault) -> Run:
        """Break the account for an execution, and start it; ``faults`` are others, by their kinds."""
        machine = self.outputs[f"{plan.workflow}Arn"]
        execution = f"{machine.replace(':stateMachine:', ':execution:')}:{plan.name}"
        digest = hashlib.md5(execution.encode()).hexdigest()
        added = [
            (kind, self.account.faults.add(fault)) for kind, fault in (*self._faults(plan, digest), *faults.items())
        ]
        given = {
            "FAILURE": plan.failure or FAILURES.get(plan.ends, "none"),
            "LAST": str(plan.last),
            "INTERRUPTIONS": str(plan.interruptions),
            "STEPS": str(plan.steps),
        }
        self.states.start_execution(stateMachineArn=machine, name=plan.name, input=json.dumps(given))
        return Run(plan, execution, digest, added)

    def run(self, plan: Plan) -> list[str]:
        """What of an execution is not as planned, once it and its jobs have ended."""
        run = self.start(plan)
        if plan.ends in BY_A_PERSON:
            self._stop(run)
        ended = self.deployed.ended(run.execution)
        self.wait_for_jobs(run)
        remaining = self.account.faults.remaining()
        for kind, name in run.faults:
            times = plan.interruptions if kind == "interruption" else 1
            self.injected[kind] += times - (remaining[name]["times"] if name in remaining else 0)
        if plan.ends not in ("completes", "full disk"):
            self.injected[plan.ends] += 1
        return [f"{plan}: {problem}" for problem in self._problems(run, ended)]

    def _problems(self, run: Run, ended: dict[str, Any]) -> Iterator[str]:
        jobs = self.jobs(run)
        statuses = [job["TrainingJobStatus"] for job in jobs]
        if statuses != run.plan.statuses:
            yield f"its jobs are {statuses}: {[job.get('FailureReason') for job in jobs]}"
        status, error, cause, _ = ENDS[run.plan.ends]
        got = ended["status"], ended.get("error"), ended.get("cause") or ""
        if got[:2] != (status, error) or cause not in got[2]:
            yield f"it is {got}"
        elif status == "SUCCEEDED" and self.model_of(jobs[-1]) != model(run.plan.steps):
            yield f"its model has {self.model_of(jobs[-1])}"

    def _faults(self, plan: Plan, digest: str) -> Iterator[tuple[str, Fault]]:
        for attempt in range(1, plan.last + 1):
            job = f"{digest}-{attempt}"
            if attempt < plan.last:
                kind = plan.attempts[attempt - 1]
                yield kind, Capacity(TYPE, job=job) if kind == "capacity" else LostHost("step ", job=job)
            others = dict(plan.others.get(attempt, {}))
            self.broken.errors[job] = others.pop("server error", 0)
            for kind in LOST_ANSWERS.keys() & others.keys():
                others.pop(kind)
                self.broken.lost[job] = kind
            kinds: dict[str, Fault] = {
                "quota": Quota(TYPE, 1, 1, job=job),
                "throttled create": Throttling("CreateTrainingJob"),
                "throttled describe": Throttling("DescribeTrainingJob"),
                "slow S3": SlowS3(latency=0.2),
                "late host": LateHost("algo-1", 0.3, job=job),
                "full disk": FullDisk("algo-1", 2, job=job),
            }
            yield from ((kind, kinds[kind]) for kind, times in others.items() for _ in range(times))
        last = f"{digest}-{plan.last}"
        if plan.interruptions:
            # One fault that occurs twice, in one start and in the next: two faults would both occur in the first.
            yield "interruption", Interruption("step ", away=1, job=last, times=plan.interruptions)
        if plan.ends == "full disk":
            yield "full disk", kinds["full disk"]

    def _stop(self, run: Run) -> None:
        """Stop the last job, or the execution, once the job trains."""

        def trains() -> str | None:
            found = [job for job in self.jobs(run) if job["SecondaryStatus"] == "Training"]
            return next((job["TrainingJobName"] for job in found[-1:] if len(self.jobs(run)) == run.plan.last), None)

        name = wait_until(trains)
        if run.plan.ends == BY_A_PERSON[0]:
            self.deployed.client("sagemaker").stop_training_job(TrainingJobName=name)
        else:
            self.states.stop_execution(executionArn=run.execution)

    def jobs(self, run: Run) -> list[dict[str, Any]]:
        """The jobs of an execution, in order, by no call that a fault could meet."""
        listed = [name for name in [*self.account.jobs._jobs] if run.digest in name]
        return [dict(self.account.jobs.describe(name)) for name in sorted(listed)]

    def wait_for_jobs(self, run: Run) -> None:
        wait_until(lambda: all(job["TrainingJobStatus"] not in ("InProgress", "Stopping") for job in self.jobs(run)))

    def model_of(self, job: dict[str, Any]) -> list[tuple[int, int]]:
        """Each step in a job's model, with its loss."""
        bucket, _, key = job["ModelArtifacts"]["S3ModelArtifacts"].removeprefix("s3://").partition("/")
        archive = self.deployed.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            lines = tar.extractfile("steps").read().decode().splitlines()  # type: ignore[union-attr]
        return [(int(step), int(loss)) for step, loss in map(str.split, lines)]

    def running(self) -> list[str]:
        """What runs, by the account's own lists: jobs, and executions of each state machine."""
        arns = [arn for name, arn in self.outputs.items() if name.endswith("Arn")]
        listed = (self.states.list_executions(stateMachineArn=arn, statusFilter="RUNNING") for arn in arns)
        return self.deployed.running_jobs() + [one["executionArn"] for page in listed for one in page["executions"]]

    def listed(self) -> list[dict[str, Any]]:
        pages = self.deployed.client("sagemaker").get_paginator("list_training_jobs").paginate()
        return [one for page in pages for one in page["TrainingJobSummaries"]]

    def mend(self) -> None:
        for name in self.account.faults.remaining():
            self.account.faults.mend(name)


def model(steps: int) -> list[tuple[int, int]]:
    """The steps of a run that nothing interrupts, with their losses."""
    found, loss = [], 1
    for step in range(1, steps + 1):
        loss = (loss * 69069 + 1) % 65536
        found.append((step, loss))
    return found
