"""The training code of app.py's heterogeneous stack, as jobs in an account."""

from __future__ import annotations

from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from deployed import Deployed, wait_until

from cdk_sagemaker_training import (
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    S3Prefix,
    Spot,
    Torchrun,
    TrainingImage,
    TrainingWorkflow,
    training_code_path,
)
from sagemaker_local_account.faults import Interruption

FIDELITY = "strict"  # hosts are called as AWS's are
JOB = HeterogeneousJob(
    groups={"data_group": InstanceGroup("ml.c5.xlarge", 2)},
    train=DataParallelJob(InstanceGroup("ml.g5.xlarge"), launcher=Torchrun()),
    train_group="dnn_group",
)
FOREVER = 1_000_000  # epochs


class Digits(cdk.Stack):
    def __init__(self, app: cdk.App) -> None:
        super().__init__(app, "Digits", env=cdk.Environment(account="123456789012", region="us-east-1"))
        bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
        image = TrainingImage(
            self, "Image", directory=training_code_path(), file="heterogeneous/Dockerfile", builder="docker"
        )
        for name, props in {
            "Endless": {"hyperparameters": {"epochs": FOREVER, "silence": 90}},
            "Broken": {"hyperparameters": {"epochs": 1, "batch-size": -1}},
            "Spot": {
                "hyperparameters": {"epochs": 3},
                "spot": Spot(S3Prefix(bucket, "checkpoints/"), max_wait=cdk.Duration.days(2)),
            },
        }.items():
            workflow = TrainingWorkflow(self, name, job=JOB, image=image, output=S3Prefix(bucket, "models/"), **props)
            cdk.CfnOutput(self, f"{name}Arn", value=workflow.state_machine.state_machine_arn)


@pytest.fixture(scope="module")
def machines(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return deployed.deploy(Digits(cdk.App(outdir=str(tmp_path_factory.mktemp("assembly")))))


def training(deployed: Deployed, machine: str) -> tuple[str, str]:
    """Start an execution; returns it and its job's name once the job has taken its first steps."""
    execution = deployed.start(machine)
    name = deployed.the_job_of(execution, until="Training")["TrainingJobName"]
    wait_until(lambda: has_stepped(deployed, name))
    return execution, name


def has_stepped(deployed: Deployed, name: str) -> bool:
    logs = deployed.client("logs")
    try:
        return any(line.startswith("step ") for line in deployed.said(name))
    except logs.exceptions.ResourceNotFoundException:
        return False


def described(deployed: Deployed, name: str) -> dict[str, Any]:
    return dict(deployed.client("sagemaker").describe_training_job(TrainingJobName=name))


def test_a_lost_data_host_ends_the_job_with_a_reason_that_names_it(
    deployed: Deployed, machines: dict[str, str]
) -> None:
    execution, name = training(deployed, machines["EndlessArn"])
    deployed.account.jobs.lose_host(name, "algo-2")
    assert deployed.ended(execution)["status"] == "FAILED"
    assert "the host algo-2 of data_group was lost" in described(deployed, name)["FailureReason"]


def test_a_lost_training_host_ends_every_host(deployed: Deployed, machines: dict[str, str]) -> None:
    execution, name = training(deployed, machines["EndlessArn"])
    deployed.account.jobs.lose_host(name, "algo-3")
    assert deployed.ended(execution)["status"] == "FAILED"
    job = described(deployed, name)
    assert job["TrainingJobStatus"] == "Failed"
    assert "the host algo-3 of dnn_group was lost" in job["FailureReason"]


def test_a_job_that_is_stopped_keeps_the_step_that_it_is_in_and_ends_every_host(
    deployed: Deployed, machines: dict[str, str]
) -> None:
    execution, name = training(deployed, machines["EndlessArn"])
    deployed.client("sagemaker").stop_training_job(TrainingJobName=name)
    ended = deployed.ended(execution)
    assert (ended["status"], ended["error"]) == ("FAILED", "TrainingJobStopped")
    assert described(deployed, name)["TrainingJobStatus"] == "Stopped"
    said = deployed.said(name)
    kept = [int(line.split()[-1]) for line in said if line.startswith("stopped by SIGTERM with the checkpoint of step")]
    last = max(int(line.split()[1]) for line in said if line.startswith("step "))
    assert len(kept) == 1, said
    assert last <= kept[0] < last + 10  # each tenth step is printed


def test_an_interrupted_job_goes_on_with_the_step_after_the_one_that_it_was_in(
    deployed: Deployed, machines: dict[str, str]
) -> None:
    deployed.account.faults.add(Interruption("step 20 ", away=1))
    execution = deployed.start(machines["SpotArn"])
    ended = deployed.ended(execution)
    assert ended["status"] == "SUCCEEDED", ended.get("cause")
    said = deployed.said(deployed.the_job_of(execution)["TrainingJobName"])
    [kept] = [
        int(line.split()[-1]) for line in said if line.startswith("stopped by SIGTERM with the checkpoint of step")
    ]
    steps = [int(line.split()[1]) for line in said if line.startswith("step ")]
    assert 20 <= kept < max(steps)
    # Each tenth step is printed: none was taken twice, and none is missing.
    assert steps == list(range(10, max(steps) + 1, 10))


def test_a_hyperparameter_that_the_script_refuses_fails_the_job(deployed: Deployed, machines: dict[str, str]) -> None:
    execution = deployed.start(machines["BrokenArn"])
    assert deployed.ended(execution)["status"] == "FAILED"
    assert deployed.the_job_of(execution)["TrainingJobStatus"] == "Failed"
