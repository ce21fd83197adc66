"""A workflow that runs one job after the other: what Neuron compiles ahead of the training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from deployed import Deployed

from cdk_sagemaker_training import (
    CompiledJob,
    InstanceGroup,
    Neuron,
    S3Prefix,
    Torchrun,
    TrainingImage,
    TrainingWorkflow,
)

pytestmark = pytest.mark.soak  # test_compiled_workflow.py has both definitions

A_COMPILING_JOB = Path(__file__).parent / "a_compiling_job"


class TwoJobs(cdk.Stack):
    """A workflow whose first job does what it should, and one whose first job fails, each by both integrations."""

    def __init__(self, app: cdk.App) -> None:
        super().__init__(app, "TwoJobs", env=cdk.Environment(account="123456789012", region="us-east-1"))
        bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
        image = TrainingImage.from_asset(self, "Image", directory=str(A_COMPILING_JOB))
        cdk.CfnOutput(self, "BucketName", value=bucket.bucket_name)
        for integration in ("sync", "poll"):
            for trial in ("trial", "fail"):
                name = f"{integration}{trial}".capitalize()
                workflow = TrainingWorkflow(
                    self,
                    name,
                    job=CompiledJob(
                        InstanceGroup("ml.trn1.2xlarge"),
                        compiler=Neuron(cache=S3Prefix(bucket, "neuron-cache/"), trial={"do": trial}),
                        launcher=Torchrun(),
                    ),
                    image=image,
                    output=S3Prefix(bucket, "models/"),
                    hyperparameters={"do": "train"},
                    integration=integration,  # type: ignore[arg-type]
                    max_runtime=cdk.Duration.minutes(30),
                )
                cdk.CfnOutput(self, f"{name}Arn", value=workflow.state_machine.state_machine_arn)


@pytest.fixture(scope="module")
def outputs(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return deployed.deploy(TwoJobs(cdk.App(outdir=str(tmp_path_factory.mktemp("assembly")))))


def in_order(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(jobs, key=lambda job: job["CreationTime"])


@pytest.mark.parametrize("integration", ["Sync", "Poll"])
def test_the_second_job_starts_when_the_first_has_ended(
    deployed: Deployed, outputs: dict[str, str], integration: str
) -> None:
    execution = deployed.start(outputs[f"{integration}trialArn"])
    described = deployed.ended(execution)
    assert described["status"] == "SUCCEEDED", described.get("cause")
    ahead, training = in_order(deployed.jobs_of(execution))
    assert ahead["TrainingEndTime"] <= training["CreationTime"]
    assert json.loads(described["output"])["TrainingJobName"] == training["TrainingJobName"]
    cache = f"s3://{outputs['BucketName']}/neuron-cache/"
    assert f"ahead 1 cache {cache}" in deployed.said(ahead["TrainingJobName"])
    assert f"ahead 0 cache {cache}" in deployed.said(training["TrainingJobName"])
    assert [job["HyperParameters"]["do"] for job in (ahead, training)] == ["trial", "train"]


@pytest.mark.parametrize("integration", ["Sync", "Poll"])
def test_nothing_trains_where_the_first_job_failed(
    deployed: Deployed, outputs: dict[str, str], integration: str
) -> None:
    execution = deployed.start(outputs[f"{integration}failArn"])
    assert deployed.ended(execution)["status"] == "FAILED"
    [ahead] = deployed.jobs_of(execution)
    assert ahead["HyperParameters"]["do"] == "fail"
