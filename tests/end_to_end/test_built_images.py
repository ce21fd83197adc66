"""Images that deploy-time-build's construct builds while its stack is deployed, and jobs that run on them."""

from __future__ import annotations

from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from deploy_time_build import ContainerImageBuild
from deployed import Deployed

from cdk_sagemaker_training import DataParallelJob, InstanceGroup, S3Prefix, TrainingImage, TrainingWorkflow

DOCKERFILE = """\
FROM python:3.11
COPY says.sh /says.sh
ENTRYPOINT ["sh", "/says.sh"]
"""


class Built(cdk.Stack):
    """An image that is built on deployment, and a workflow whose job runs on it."""

    def __init__(self, context: Path) -> None:
        super().__init__(cdk.App(), "Built", env=cdk.Environment(account="123456789012", region="us-east-1"))
        build = ContainerImageBuild(self, "Build", directory=str(context))
        bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY, auto_delete_objects=True)
        workflow = TrainingWorkflow(
            self,
            "Workflow",
            image=TrainingImage.from_ecr_repository(self, "Image", build.repository, build.image_tag),
            job=DataParallelJob(InstanceGroup("ml.m5.xlarge")),
            output=S3Prefix(bucket, "models/"),
        )
        cdk.CfnOutput(self, "Machine", value=workflow.state_machine.state_machine_arn)
        cdk.CfnOutput(self, "Tag", value=build.image_tag)


class BuiltFromADirectory(cdk.Stack):
    """The library's own image of a directory, built by CodeBuild into a repository of its own."""

    def __init__(self, context: Path) -> None:
        super().__init__(cdk.App(), "FromADirectory", env=cdk.Environment(account="123456789012", region="us-east-1"))
        bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY, auto_delete_objects=True)
        workflow = TrainingWorkflow(
            self,
            "Workflow",
            image=TrainingImage.from_codebuild(
                self,
                "Image",
                directory=str(context),
                build_args={"SAYING": "two words"},
                removal_policy=cdk.RemovalPolicy.DESTROY,
            ),
            job=DataParallelJob(InstanceGroup("ml.m5.xlarge")),
            output=S3Prefix(bucket, "models/"),
        )
        cdk.CfnOutput(self, "Machine", value=workflow.state_machine.state_machine_arn)


@pytest.fixture
def context(tmp_path: Path) -> Path:
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    (tmp_path / "says.sh").write_text("echo the image is of the first build\n")
    return tmp_path


def held(deployed: Deployed) -> dict[str, list[str]]:
    """What the account has of the kinds that such a stack makes."""
    return {
        "buckets": [bucket["Name"] for bucket in deployed.client("s3").list_buckets()["Buckets"]],
        "functions": [found["FunctionName"] for found in deployed.client("lambda").list_functions()["Functions"]],
        "projects": deployed.client("codebuild").list_projects()["projects"],
        "repositories": [
            found["repositoryName"] for found in deployed.client("ecr").describe_repositories()["repositories"]
        ],
        "roles": [role["RoleName"] for role in deployed.client("iam").list_roles()["Roles"]],
    }


@pytest.mark.soak  # deploys a stack twice; test_codebuild.py builds, test_deploying.py runs a job on an image
def test_a_job_runs_on_the_image_that_its_stack_built_last_and_nothing_is_left_of_it(
    deployed: Deployed, context: Path
) -> None:
    before = held(deployed)
    outputs = deployed.deploy(Built(context))
    execution = deployed.start(outputs["Machine"])
    assert deployed.ended(execution)["status"] == "SUCCEEDED"
    assert deployed.said(deployed.the_job_of(execution)["TrainingJobName"]) == ["the image is of the first build"]

    (context / "says.sh").write_text("echo the image is of the second build\n")
    again = deployed.deploy(Built(context))
    assert again["Tag"] != outputs["Tag"]
    execution = deployed.start(again["Machine"])
    assert deployed.ended(execution)["status"] == "SUCCEEDED"
    assert deployed.said(deployed.the_job_of(execution)["TrainingJobName"]) == ["the image is of the second build"]

    app = cdk.App.of(stack := Built(context))
    assert isinstance(app, cdk.App)
    deployed.cdk("destroy", stack.stack_name, "--force", "--app", app.synth().directory)
    assert held(deployed) == before


@pytest.mark.soak  # deploys a stack and takes it back; test_docker.py has a build that fails
def test_a_dockerfile_that_is_refused_fails_the_deployment_with_its_line(deployed: Deployed, context: Path) -> None:
    before = held(deployed)
    (context / "Dockerfile").write_text("FROM python:3.11\nCOPY missing.txt /\n")
    with pytest.raises(AssertionError, match=r'command: eval "\$buildCommand"(?s:.*)Dockerfile:2:(?s:.*)missing\.txt'):
        deployed.deploy(Built(context))
    deployed.client("cloudformation").delete_stack(StackName="Built")
    assert held(deployed) == before


@pytest.mark.soak  # test_codebuild.py builds; the test above has the job
def test_a_job_runs_on_the_image_of_a_directory_that_codebuild_built_from_one_of_awss_containers(
    deployed: Deployed, context: Path
) -> None:
    before = held(deployed)
    (context / "Dockerfile").write_text(
        "FROM 763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch:2.13-cpu-amzn2023-ec2\n"
        "ARG SAYING=nothing\n"
        "ENV SAYING=$SAYING\n"
        "COPY says.sh /says.sh\n"
        'ENTRYPOINT ["sh", "/says.sh"]\n'
    )
    (context / "says.sh").write_text('echo "the image says $SAYING"\n')
    outputs = deployed.deploy(BuiltFromADirectory(context))
    [repository] = deployed.client("ecr").describe_repositories()["repositories"][len(before["repositories"]) :]
    assert repository["imageTagMutability"] == "IMMUTABLE"
    execution = deployed.start(outputs["Machine"])
    assert deployed.ended(execution)["status"] == "SUCCEEDED"
    assert deployed.said(deployed.the_job_of(execution)["TrainingJobName"]) == ["the image says two words"]

    (context / "not-copied.txt").write_text("new")
    builds = deployed.client("codebuild").list_builds()["ids"]
    deployed.deploy(stack := BuiltFromADirectory(context))
    assert deployed.client("codebuild").list_builds()["ids"] == builds

    app = cdk.App.of(stack)
    assert isinstance(app, cdk.App)
    deployed.cdk("destroy", stack.stack_name, "--force", "--app", app.synth().directory)
    assert held(deployed) == before
