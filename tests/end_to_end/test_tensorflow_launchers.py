"""Jobs of TensorFlow's two launchers, with SageMaker's own toolkit for TensorFlow, through deployed state machines."""

from __future__ import annotations

import re

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from deployed import Deployed

from cdk_sagemaker_training import (
    DataParallelJob,
    InstanceGroup,
    MultiWorkerMirrored,
    ParameterServer,
    S3Prefix,
    TrainingImage,
    TrainingWorkflow,
    training_code_path,
)

# It installs TensorFlow, which each host imports twice. In `make test`, test_launchers.py has the requests.
pytestmark = pytest.mark.soak
EPOCHS = 3
LAUNCHERS = {"Servers": (ParameterServer(), "parameter_server.py"), "Mirrored": (MultiWorkerMirrored(), "train.py")}


class Spirals(cdk.Stack):
    def __init__(self, app: cdk.App) -> None:
        super().__init__(app, "TensorFlowLaunchers", env=cdk.Environment(account="123456789012", region="us-east-1"))
        bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
        image = TrainingImage.from_asset(
            self,
            "Image",
            directory=training_code_path(),
            file="data_parallel/tensorflow/Dockerfile",
        )
        for name, (launcher, script) in LAUNCHERS.items():
            workflow = TrainingWorkflow(
                self,
                name,
                job=DataParallelJob(InstanceGroup("ml.m5.large", 2), launcher=launcher),
                image=image,
                output=S3Prefix(bucket, "models/"),
                environment={"SAGEMAKER_PROGRAM": script},
                hyperparameters={"epochs": EPOCHS},
            )
            cdk.CfnOutput(self, f"{name}Arn", value=workflow.state_machine.state_machine_arn)


@pytest.fixture(scope="module")
def machines(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return deployed.deploy(Spirals(cdk.App(outdir=str(tmp_path_factory.mktemp("assembly")))))


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_two_hosts_train_one_model_and_end(deployed: Deployed, machines: dict[str, str], launcher: str) -> None:
    execution = deployed.start(machines[f"{launcher}Arn"])
    description = deployed.ended(execution)
    said = deployed.said(deployed.the_job_of(execution)["TrainingJobName"])
    assert description["status"] == "SUCCEEDED", "\n".join(said)
    epochs = [found[1] for line in said if (found := re.search(r"epoch (\d+) loss [\d.]+", line))]
    assert epochs == [str(epoch) for epoch in range(1, EPOCHS + 1)]
