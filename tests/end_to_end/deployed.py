"""An account and what tests ask of it, through the clients that a user has."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import aws_cdk as cdk
import boto3
from aws_cdk import aws_s3 as s3
from botocore.config import Config
from constructs import Construct

from cdk_sagemaker_training import DataParallelJob, InstanceGroup, S3Prefix, TrainingImage, training_code_path
from sagemaker_local_account.account import LocalAccount

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
A_USERS_JOB = Path(__file__).parent / "a_users_job"
BOOTSTRAP = ROOT / "node_modules" / "aws-cdk" / "lib" / "api" / "bootstrap" / "bootstrap-template.yaml"
AN_ERROR_RATHER_THAN_A_HANG = 900  # seconds; no fact depends on it
FIRST_LOOK, LONGEST_LOOK = 0.2, 1.0  # seconds between two looks, which grow: AWS throttles who looks too often
CLOCKS_DIFFER = timedelta(minutes=1)  # Step Functions' and SageMaker's


@contextmanager
def a_users_job() -> Iterator[str]:
    """The folder of images that a user has written, with the entry point that they have copied beside them.

    ``pytorch.Dockerfile`` begins from AWS's container, whose toolkit imports PyTorch on each host, which takes seconds.
    """
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(A_USERS_JOB, folder, dirs_exist_ok=True)
        shutil.copy(Path(training_code_path()) / "entrypoint" / "entrypoint.py", folder)
        yield folder


def ending_at_once(scope: Construct, context: Path, bucket: s3.IBucket) -> dict[str, Any]:
    """The props of a workflow whose container ends at once, without a model; its Dockerfile is written into a new folder."""
    context.mkdir(exist_ok=True)
    (context / "Dockerfile").write_text('FROM python:3.11\nENTRYPOINT ["true"]\n')
    return {
        "image": TrainingImage.from_asset(scope, "Image", directory=str(context)),
        "job": DataParallelJob(InstanceGroup("ml.m5.xlarge")),
        "output": S3Prefix(bucket, "models/"),
        "max_runtime": cdk.Duration.minutes(10),
        "missing_model": "ignore",
    }


@dataclass
class Deployed:
    """An account with what is deployed in it."""

    account: LocalAccount
    _clients: dict[tuple[str, str], Any] = field(default_factory=dict)

    def client(self, service: str, region: str | None = None) -> Any:
        environment = self.account.environment()
        key = service, region or environment["AWS_REGION"]
        if key not in self._clients:
            self._clients[key] = boto3.client(
                service,
                endpoint_url=environment["AWS_ENDPOINT_URL"],
                region_name=key[1],
                aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
                aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
                # Lists of jobs are throttled as on AWS, which waiting for a job in a loop runs into.
                config=Config(retries={"mode": "standard", "total_max_attempts": 20}),
            )
        return self._clients[key]

    def cdk(self, *arguments: str) -> str:
        done = self.cdk_called(*arguments)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def cdk_called(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["cdk", *arguments],
            cwd=self.account.state,
            env=self.account.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def bootstrap(self) -> None:
        """What `cdk bootstrap` does, without a start of the CLI for each account."""
        cloudformation = self.client("cloudformation")
        cloudformation.create_stack(
            StackName="CDKToolkit",
            TemplateBody=BOOTSTRAP.read_text(),
            Capabilities=["CAPABILITY_NAMED_IAM"],
            Parameters=[{"ParameterKey": "FileAssetsBucketKmsKeyId", "ParameterValue": "AWS_MANAGED_KEY"}],
        )
        looks = {"Delay": FIRST_LOOK, "MaxAttempts": 3_000}
        cloudformation.get_waiter("stack_create_complete").wait(StackName="CDKToolkit", WaiterConfig=looks)

    def deploy(self, stack: cdk.Stack) -> dict[str, str]:
        """Deploy a stack of an App of its own with the real CLI; its outputs."""
        app = cdk.App.of(stack)
        assert isinstance(app, cdk.App)
        assembly = app.synth().directory
        outputs = self.account.state / f"{stack.stack_name}-outputs.json"
        self.cdk("deploy", "--app", assembly, "--all", "--require-approval", "never", "--outputs-file", str(outputs))
        return dict(json.loads(outputs.read_text())[stack.stack_name])

    def start(self, machine: str, name: str | None = None) -> str:
        arguments = {"name": name} if name else {}
        started = self.client("stepfunctions").start_execution(stateMachineArn=machine, **arguments)
        return str(started["executionArn"])

    def ended(self, execution: str) -> dict[str, Any]:
        states = self.client("stepfunctions")
        return wait_until(lambda: _unless(states.describe_execution(executionArn=execution), status="RUNNING"))

    def jobs_of(self, execution: str) -> list[dict[str, Any]]:
        sagemaker = self.client("sagemaker")
        return [sagemaker.describe_training_job(TrainingJobName=name) for name in self.names_of_jobs([execution])]

    def names_of_jobs(self, executions: Sequence[str]) -> list[str]:
        """The jobs that carry the id of one of these as a tag, of which the first was started first."""
        sagemaker = self.client("sagemaker")
        started = self.client("stepfunctions").describe_execution(executionArn=executions[0])["startDate"]
        pages = sagemaker.get_paginator("list_training_jobs").paginate(CreationTimeAfter=started - CLOCKS_DIFFER)
        return [
            summary["TrainingJobName"]
            for page in pages
            for summary in page["TrainingJobSummaries"]
            for tag in sagemaker.list_tags(ResourceArn=summary["TrainingJobArn"])["Tags"]
            if tag["Value"] in executions
        ]

    def running_jobs(self) -> list[str]:
        """The names of the jobs that have not ended, by the account's own list."""
        paginator = self.client("sagemaker").get_paginator("list_training_jobs")
        return [
            job["TrainingJobName"]
            for status in ("InProgress", "Stopping")
            for page in paginator.paginate(StatusEquals=status, MaxResults=100)
            for job in page["TrainingJobSummaries"]
        ]

    def the_job_of(self, execution: str, *, until: str = "") -> dict[str, Any]:
        """The one job of an execution, as soon as it is in the secondary status `until` (if said); fails once it cannot come."""

        def found() -> dict[str, Any] | None:
            described = self.client("stepfunctions").describe_execution(executionArn=execution)
            jobs = self.jobs_of(execution)
            assert len(jobs) <= 1
            for job in jobs:
                if not until or job["SecondaryStatus"] == until:
                    return job
                assert_active(job, until)
            assert described["status"] == "RUNNING", f"the execution ended without a job: {described}"
            return None

        return wait_until(found)

    def said(self, job_name: str) -> list[str]:
        """The lines of all hosts' logs."""
        events = self.client("logs").filter_log_events(
            logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=f"{job_name}/"
        )["events"]
        return [event["message"] for event in events]

    def has_said(self, job_name: str, line: str) -> re.Match[str]:
        """The first line of the job's logs that begins with the pattern, once there is one; fails if the job ends before."""
        logs, sagemaker = self.client("logs"), self.client("sagemaker")

        def heard() -> re.Match[str] | None:
            job = sagemaker.describe_training_job(TrainingJobName=job_name)
            said: list[str] = []
            with contextlib.suppress(logs.exceptions.ResourceNotFoundException):
                said = self.said(job_name)
            found = next(filter(None, (re.match(line, text) for text in said)), None)
            if found is None:
                assert_active(job, line, *said)
            return found

        return wait_until(heard)


def assert_active(job: dict[str, Any], awaited: str, *said: str) -> None:
    """Fails with the job's end, and what it said, where what is awaited of it can no longer come."""
    status, reason = job["TrainingJobStatus"], job.get("FailureReason")
    active = status in ("InProgress", "Stopping")
    assert active, "\n".join([f"{job['TrainingJobName']} is {status} before {awaited!r}: {reason}", *said])


def _unless(description: dict[str, Any], *, status: str) -> dict[str, Any] | None:
    return None if description["status"] == status else description


def wait_until(condition: Callable[[], T | None]) -> T:
    """What the condition gives once it gives something true."""
    limit = time.monotonic() + AN_ERROR_RATHER_THAN_A_HANG
    look = FIRST_LOOK
    while time.monotonic() < limit:
        result = condition()
        if result:
            return result
        time.sleep(look)
        look = min(LONGEST_LOOK, look * 1.1)
    raise AssertionError("this did not come to pass")
