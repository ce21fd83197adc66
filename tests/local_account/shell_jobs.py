"""Training jobs that are shell commands, created over boto3 with an account's own environment, from whatever process."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import boto3

from sagemaker_local_account.images.image_store import ImageStore

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/shell:1"
BUCKET = "shell-bucket"
AN_ERROR_RATHER_THAN_A_HANG = 120
# The shell's `hostname` says the name of the host in its job, as resourceconfig.json begins with it; gethostname(2) has another.
HOSTNAME = "hostname() { grep -o 'algo-[0-9]*' /opt/ml/input/config/res* | head -n1; }; "


def client_of(environment: Mapping[str, str], service: str) -> Any:
    return boto3.client(
        service,
        region_name="us-east-1",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
    )


def channel(name: str, uri: str) -> dict[str, Any]:
    return {"ChannelName": name, "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": uri}}}


class ShellJobs:
    """An account with an image, a bucket and a role, by the environment that it prints and its state folder."""

    def __init__(self, environment: Mapping[str, str], state: Path) -> None:
        self._environment = environment
        self.sagemaker, self.s3 = self.client("sagemaker"), self.client("s3")
        self.s3.create_bucket(Bucket=BUCKET)
        self.role = self.make_role("Shell", {"Service": "sagemaker.amazonaws.com"})
        with tempfile.TemporaryDirectory() as folder:
            dockerfile = Path(folder) / "Dockerfile"
            dockerfile.write_text('FROM python:3.11\nENTRYPOINT ["sh", "-ec"]\n')
            store = ImageStore(state)
            store.build(Path(folder), dockerfile, [IMAGE])
            store.push(IMAGE)

    def client(self, service: str) -> Any:
        return client_of(self._environment, service)

    def make_role(self, name: str, *principals: Mapping[str, Any], effect: str = "Allow") -> str:
        """A role that these may take on; its ARN. It may do everything."""
        statements = [{"Effect": effect, "Principal": it, "Action": "sts:AssumeRole"} for it in principals]
        trust = json.dumps({"Version": "2012-10-17", "Statement": statements})
        iam = self.client("iam")
        arn = str(iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust)["Role"]["Arn"])
        everything = {"Effect": "Allow", "Action": "*", "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [everything]})
        iam.put_role_policy(RoleName=name, PolicyName="Everything", PolicyDocument=policy)
        return arn

    def request(self, name: str, program: str, hosts: int = 1, **members: Any) -> dict[str, Any]:
        return {
            "TrainingJobName": name,
            "AlgorithmSpecification": {
                "TrainingImage": IMAGE,
                "TrainingInputMode": "File",
                "ContainerArguments": [program],
            },
            "RoleArn": self.role,
            "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/models"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": hosts, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 600},
            **members,
        }

    def create(self, name: str, program: str, hosts: int = 1, **members: Any) -> str:
        self.sagemaker.create_training_job(**self.request(name, program, hosts, **members))
        return name

    def create_python(self, name: str, program: str, hosts: int = 1) -> str:
        """A job whose command is a Python program, too long for an argument, so that it comes by a channel."""
        self.s3.put_object(Bucket=BUCKET, Key=f"{name}/main.py", Body=program.encode())
        return self.create(
            name,
            "python /opt/ml/input/data/code/main.py",
            hosts,
            InputDataConfig=[channel("code", f"s3://{BUCKET}/{name}/")],
        )

    def ended(self, name: str, seconds: float = AN_ERROR_RATHER_THAN_A_HANG) -> dict[str, Any]:
        limit, look = time.monotonic() + seconds, 0.05
        while time.monotonic() < limit:
            job: dict[str, Any] = self.sagemaker.describe_training_job(TrainingJobName=name)
            if job["TrainingJobStatus"] not in ("InProgress", "Stopping"):
                return job
            time.sleep(look)
            look = min(1.2 * look, 0.5)  # a look takes milliseconds of the client and of the account
        raise AssertionError(job)

    def statuses(self, names: Sequence[str]) -> list[str]:
        """How jobs ended: their status, and why if they failed."""
        ended = [self.ended(name) for name in names]
        return [job.get("FailureReason") or job["TrainingJobStatus"] for job in ended]

    def said(self, name: str) -> dict[str, list[str]]:
        """The lines of a job, by host; the log group comes with the first line of any job."""
        logs = self.client("logs")
        group = {"logGroupName": "/aws/sagemaker/TrainingJobs", "logStreamNamePrefix": f"{name}/"}
        lines: dict[str, list[str]] = {}
        with contextlib.suppress(logs.exceptions.ResourceNotFoundException):
            for page in logs.get_paginator("filter_log_events").paginate(**group):
                for event in page["events"]:
                    host = event["logStreamName"].partition("/")[2].rpartition("-")[0]
                    lines.setdefault(host, []).append(event["message"])
        return lines
