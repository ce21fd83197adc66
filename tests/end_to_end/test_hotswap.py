"""`cdk deploy --hotswap`, as `cdk watch` calls it after each edit: the next execution runs what was edited."""

from __future__ import annotations

from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from deployed import Deployed

from cdk_sagemaker_training import DataParallelJob, InstanceGroup, S3Prefix, TrainingImage, TrainingWorkflow

DOCKERFILE = 'FROM python:3.11\nCOPY train.py /\nENTRYPOINT ["python", "/train.py"]\n'


def stack(context: Path, said: str, epochs: int) -> cdk.Stack:
    """A stack whose script prints a word and its hyperparameters."""
    context.mkdir(exist_ok=True)
    (context / "Dockerfile").write_text(DOCKERFILE)
    (context / "train.py").write_text(f"print({said!r}, open('/opt/ml/input/config/hyperparameters.json').read())\n")
    stack = cdk.Stack(cdk.App(), "Hotswap")
    workflow = TrainingWorkflow(
        stack,
        "Training",
        image=TrainingImage.from_asset(stack, "Image", directory=str(context)),
        job=DataParallelJob(InstanceGroup("ml.m5.xlarge")),
        hyperparameters={"epochs": epochs},
        output=S3Prefix(s3.Bucket(stack, "Bucket"), "models/"),
        max_runtime=cdk.Duration.minutes(10),
        missing_model="ignore",
    )
    cdk.CfnOutput(stack, "Machine", value=workflow.state_machine.state_machine_arn)
    return stack


def printed(deployed: Deployed, machine: str) -> list[str]:
    execution = deployed.start(machine)
    ended = deployed.ended(execution)
    assert ended["status"] == "SUCCEEDED", ended
    [job] = deployed.names_of_jobs([execution])
    return deployed.said(job)


@pytest.mark.soak  # test_cloud_control.py has the calls of the CLI
def test_the_next_execution_runs_an_edited_script_with_edited_hyperparameters(
    deployed: Deployed, tmp_path: Path
) -> None:
    machine = deployed.deploy(stack(tmp_path / "context", "one", 1))["Machine"]
    assert printed(deployed, machine) == ['one {"epochs": "1"}']
    app = cdk.App.of(stack(tmp_path / "context", "two", 2))
    assert isinstance(app, cdk.App)
    said = deployed.cdk("deploy", "--app", app.synth().directory, "--all", "--hotswap", "--require-approval", "never")
    assert "hotswapping resources" in said
    assert printed(deployed, machine) == ['two {"epochs": "2"}']
