"""The plugin of pytest, in a project of a user's own, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = """
import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from cdk_sagemaker_training import (
    DataParallelJob, InstanceGroup, S3Prefix, TrainingCode, TrainingImage, TrainingWorkflow
)


class Training(cdk.Stack):
    def __init__(self, scope, id):
        super().__init__(scope, id)
        bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
        workflow = TrainingWorkflow(
            self,
            "Training",
            job=DataParallelJob(InstanceGroup("ml.m5.xlarge")),
            image=TrainingImage.from_dlc(self, "Image", "pytorch", "2.13-cpu-amzn2023-sagemaker"),
            code=TrainingCode("src"),
            output=S3Prefix(bucket, "models/"),
            hyperparameters={"fail": cdk.aws_stepfunctions.JsonPath.string_at("$.fail")},
        )
        cdk.CfnOutput(self, "StateMachineArn", value=workflow.state_machine.state_machine_arn)


@pytest.fixture(scope="module")
def machine(deployed_stack):
    return deployed_stack(Training(cdk.App(), "Training"))["StateMachineArn"]


def test_the_script_trains(machine, run_workflow, local_account):
    execution = run_workflow(machine, {"fail": "no"})
    [job] = execution.jobs
    assert job["TrainingJobStatus"] == "Completed"
    assert execution.output["TrainingJobName"] == job["TrainingJobName"]
    assert "trained" in local_account.log_lines(job["TrainingJobName"])


def test_a_failure_shows_the_scripts_own_error(machine, run_workflow):
    with pytest.raises(AssertionError, match="(?s)FAILED.*no such data set"):
        run_workflow(machine, {"fail": "yes"})


def test_without_an_account():
    pass
"""
SCRIPT = """
import pathlib, sys
if sys.argv[2] == "yes":
    raise LookupError("no such data set")
pathlib.Path("/opt/ml/model/weights").write_text("weights")
print("trained", flush=True)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "src").mkdir()
    (folder / "src" / "train.py").write_text(SCRIPT)
    (folder / "test_training.py").write_text(PROJECT)
    (folder / "node_modules").symlink_to(ROOT / "node_modules")
    return folder


def outcomes(project: Path, *options: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "test_training.py"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.stdout


@pytest.mark.soak  # a project of its own deploys a stack and runs two jobs
def test_a_projects_stack_is_deployed_and_its_job_runs_and_fails_with_its_own_error(project: Path) -> None:
    assert "3 passed" in (said := outcomes(project, "--local-account")), said


def test_without_the_option_only_tests_without_an_account_run(project: Path) -> None:
    assert "1 passed, 2 skipped" in (said := outcomes(project)), said
