"""What the tests that are marked `aws` deploy in the account of the caller's credentials, instead of in one on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import aws_cdk as cdk
import boto3
from aws_account import STACK_PREFIX, AwsAccount
from botocore.config import Config
from botocore.exceptions import ClientError, WaiterError
from deployed import Deployed

LOG_GROUP = "/aws/sagemaker/TrainingJobs"


class OnAws(Deployed):
    """What is deployed in the caller's account, and taken down again by ``close``."""

    def __init__(self, account: AwsAccount) -> None:
        self.account: Any = account
        self._assemblies: dict[str, str] = {}
        self._executions: list[str] = []

    def client(self, service: str) -> Any:
        retries = Config(retries={"mode": "standard", "max_attempts": 8})
        return boto3.client(service, region_name=self.account.region, config=retries)

    def deploy(self, stack: cdk.Stack) -> dict[str, str]:
        assert stack.stack_name.startswith(STACK_PREFIX), stack.stack_name
        with suppress(ClientError):
            self.client("cloudformation").describe_stacks(StackName=stack.stack_name)
            raise AssertionError(f"the stack {stack.stack_name} is there already: delete what an earlier run has left")
        app = cdk.App.of(stack)
        assert isinstance(app, cdk.App)
        self._assemblies[stack.stack_name] = app.synth().directory
        return super().deploy(stack)

    def start(self, machine: str, name: str | None = None) -> str:
        self._executions.append(super().start(machine, name))
        return self._executions[-1]

    def close(self) -> None:
        """Stop what still runs, and delete all that the tests made, but the records of their jobs, which SageMaker keeps."""
        sagemaker = self.client("sagemaker")
        names = self.names_of_jobs(self._executions) if self._executions else []  # by one list: many would be throttled
        for name in names:
            with suppress(ClientError):  # it is over
                sagemaker.stop_training_job(TrainingJobName=name)
        ended = sagemaker.get_waiter("training_job_completed_or_stopped")
        for name in names:
            with suppress(WaiterError):  # it has failed
                ended.wait(TrainingJobName=name, WaiterConfig={"Delay": 2, "MaxAttempts": 900})
            self._delete_log_streams(name)  # of which a job that still stops would make others
        for stack, assembly in reversed(self._assemblies.items()):
            for bucket in self._resources(stack, "AWS::S3::Bucket"):
                self._empty(bucket)
            self.cdk("destroy", "--app", assembly, "--force", stack)

    def _resources(self, stack: str, kind: str) -> Iterator[str]:
        try:
            pages = list(self.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=stack))
        except ClientError:  # its deployment never began
            return
        for page in pages:
            for resource in page["StackResourceSummaries"]:
                if resource["ResourceType"] == kind and "PhysicalResourceId" in resource:
                    yield resource["PhysicalResourceId"]

    def _empty(self, bucket: str) -> None:
        s3 = self.client("s3")
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
            for item in page.get("Contents", []):
                s3.delete_object(Bucket=bucket, Key=item["Key"])

    def _delete_log_streams(self, job: str) -> None:
        logs = self.client("logs")
        with suppress(logs.exceptions.ResourceNotFoundException):
            pages = logs.get_paginator("describe_log_streams").paginate(
                logGroupName=LOG_GROUP, logStreamNamePrefix=f"{job}/"
            )
            for stream in [stream for page in pages for stream in page["logStreams"]]:
                logs.delete_log_stream(logGroupName=LOG_GROUP, logStreamName=stream["logStreamName"])
