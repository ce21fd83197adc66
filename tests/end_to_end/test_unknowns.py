"""What AWS does not document, one test each: `docs/unknowns.md` says what we assume, and each test here says whether it is so.

Here the local account answers, as we made it; `make test-aws` asks AWS. A test that fails there has found an assumption wrong.
"""

from __future__ import annotations

import json
from typing import Any

import aws_cdk as cdk
import pytest
from aws_account import STACK_PREFIX
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from botocore.exceptions import ClientError
from deployed import ROOT, Deployed

from cdk_sagemaker_training import (
    DataParallelJob,
    EfsChannel,
    InstanceGroup,
    S3Prefix,
    TrainingImage,
    TrainingNetwork,
    TrainingRole,
    TrainingWorkflow,
)

# The local account is as we made it, so that these find an assumption wrong on AWS alone.
pytestmark = pytest.mark.soak
PAGE = (ROOT / "docs" / "unknowns.md").read_text()
CONTAINER = ("pytorch", "2.13-cpu-amzn2023-sagemaker")


class Unknowns(cdk.Stack):
    """Roles to try requests with, of which none starts a job, and two workflows on a file system of EFS."""

    def __init__(self, app: cdk.App) -> None:
        super().__init__(app, f"{STACK_PREFIX}Unknowns")
        self.bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
        # SageMaker cannot take it on, so that a request that gets as far as SageMaker ends there.
        unusable = iam.Role(self, "Unusable", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
        machine = iam.Role(self, "Machine", assumed_by=iam.ServicePrincipal("states.amazonaws.com"))
        machine.add_to_policy(
            iam.PolicyStatement(
                actions=["sagemaker:CreateTrainingJob", "sagemaker:AddTags", "sagemaker:ListTags"], resources=["*"]
            )
        )
        machine.add_to_policy(
            iam.PolicyStatement(
                actions=["events:PutTargets", "events:PutRule", "events:DescribeRule"],
                resources=[self.format_arn(service="events", resource="rule", resource_name="StepFunctionsGetEvents*")],
            )
        )
        unusable.grant_pass_role(machine)
        for name, value in {
            "Bucket": self.bucket.bucket_name,
            "Unusable": unusable.role_arn,
            "Machine": machine.role_arn,
        }.items():
            cdk.CfnOutput(self, f"{name}Out", value=value)
        self._on_a_file_system()

    def _on_a_file_system(self) -> None:
        network = TrainingNetwork(self, "Network", max_azs=1, flow_logs=False)
        roles = {name: TrainingRole(self, f"{name}Role") for name in ("Mounts", "Looks")}
        mounting = iam.PolicyStatement(
            actions=["elasticfilesystem:ClientMount", "elasticfilesystem:ClientRootAccess"],
            principals=[iam.ArnPrincipal(role.role_arn) for role in roles.values()],
            resources=["*"],
        )
        shared = efs.FileSystem(
            self,
            "Shared",
            vpc=network.vpc,
            vpc_subnets=ec2.SubnetSelection(subnets=network.subnets.subnets),
            file_system_policy=iam.PolicyDocument(statements=[mounting]),
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        roles["Looks"].role.add_to_principal_policy(
            iam.PolicyStatement(
                effect=iam.Effect.DENY, actions=["elasticfilesystem:DescribeMountTargets"], resources=["*"]
            )
        )
        image = TrainingImage.from_dlc(self, "Image", *CONTAINER)
        for name, role in roles.items():
            workflow = TrainingWorkflow(
                self,
                name,
                job=DataParallelJob(InstanceGroup("ml.m5.xlarge")),
                image=image,
                channels={"shared": EfsChannel(shared)},
                container_entrypoint=["ls", "/opt/ml/input/data/shared"],
                output=S3Prefix(self.bucket, "models/"),
                role=role,
                network=network,
                max_runtime=cdk.Duration.minutes(30),
            )
            cdk.CfnOutput(self, f"{name}Out", value=workflow.state_machine.state_machine_arn)


def on_aws(*, jobs: int) -> pytest.MarkDecorator:
    return pytest.mark.aws(stack=Unknowns, jobs=jobs, machines={"ml.m5.xlarge": 1}, minutes=30)


@pytest.fixture(scope="module")
def outputs(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return deployed.deploy(Unknowns(cdk.App(outdir=str(tmp_path_factory.mktemp("assembly")))))


class Tried:
    """A request that a Task state made of SageMaker: whether it got there, else why not."""

    def __init__(self, deployed: Deployed, outputs: dict[str, str], resource: str, **more: Any) -> None:
        states = deployed.client("stepfunctions")
        name = f"{STACK_PREFIX}-{len(states.list_state_machines()['stateMachines'])}"
        definition = {
            "StartAt": "Create",
            "States": {
                "Create": {"Type": "Task", "Resource": resource, "Parameters": _request(outputs, **more), "End": True}
            },
        }
        machine = None
        try:
            machine = states.create_state_machine(
                name=name, roleArn=outputs["MachineOut"], definition=json.dumps(definition)
            )["stateMachineArn"]
            described = deployed.ended(deployed.start(machine))
            assert described["status"] == "FAILED", "a job was started with a role that SageMaker cannot take on"
            self.why = f"{described['error']}: {described['cause']}"
        except ClientError as error:
            if error.response["Error"]["Code"] != "InvalidDefinition":
                raise
            self.why = str(error)
        finally:
            if machine is not None:
                states.delete_state_machine(stateMachineArn=machine)

    @property
    def reached_sagemaker(self) -> bool:
        return "could not assume role" in self.why.lower()


def _request(outputs: dict[str, str], **more: Any) -> dict[str, Any]:
    """A request that SageMaker would take but for its role."""
    request = {
        "TrainingJobName.$": "$$.Execution.Name",
        "AlgorithmSpecification": {
            "TrainingImage": f"763104351884.dkr.ecr.us-east-1.amazonaws.com/{':'.join(CONTAINER)}",
            "TrainingInputMode": "File",
        },
        "RoleArn": outputs["UnusableOut"],
        "OutputDataConfig": {"S3OutputPath": f"s3://{outputs['BucketOut']}/models/"},
        "ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
    }
    return request | more


SYNC = "arn:aws:states:::sagemaker:createTrainingJob.sync"
SDK = "arn:aws:states:::aws-sdk:sagemaker:createTrainingJob"
GROUPS = [{"InstanceGroupName": "all", "InstanceType": "ml.m5.xlarge", "InstanceCount": 1}]
ONE = {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 1}
A_PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/none"


@on_aws(jobs=0)
@pytest.mark.parametrize("resource", [SYNC, SDK])
def test_a_request_with_a_role_that_sagemaker_cannot_take_on_reaches_sagemaker(
    deployed: Deployed, outputs: dict[str, str], resource: str
) -> None:
    """Without which the tests below would show nothing."""
    assert Tried(deployed, outputs, resource).reached_sagemaker


@on_aws(jobs=0)
@pytest.mark.parametrize(
    ("field", "resources"),
    [
        ("InstanceGroups", {"InstanceGroups": GROUPS, "VolumeSizeInGB": 1}),
        ("KeepAlivePeriodInSeconds", {**ONE, "KeepAlivePeriodInSeconds": 60}),
        ("TrainingPlanArn", {**ONE, "TrainingPlanArn": A_PLAN}),
    ],
)
def test_sync_does_not_take(deployed: Deployed, outputs: dict[str, str], field: str, resources: dict[str, Any]) -> None:
    assert f"`.sync` does not take `{field}`" in PAGE
    tried = Tried(deployed, outputs, SYNC, ResourceConfig=resources)
    assert f'The field "{field}" is not supported by Step Functions' in tried.why


@on_aws(jobs=0)
@pytest.mark.parametrize("resource", [SYNC, SDK])
def test_step_functions_does_not_make_text_of_a_number(
    deployed: Deployed, outputs: dict[str, str], resource: str
) -> None:
    assert "Step Functions does not turn a number into text" in PAGE
    tried = Tried(deployed, outputs, resource, HyperParameters={"epochs": 3})
    assert not tried.reached_sagemaker, tried.why


@on_aws(jobs=0)
@pytest.mark.parametrize("resource", [SYNC, SDK])
def test_step_functions_does_not_make_a_number_of_text(
    deployed: Deployed, outputs: dict[str, str], resource: str
) -> None:
    assert "nor text into a number" in PAGE
    tried = Tried(deployed, outputs, resource, ResourceConfig={**ONE, "InstanceCount": "1"})
    assert not tried.reached_sagemaker, tried.why


@on_aws(jobs=1)
def test_efs_is_mounted_without_a_role(deployed: Deployed, outputs: dict[str, str]) -> None:
    assert "EFS is mounted as a client without a role" in PAGE
    execution = deployed.start(outputs["MountsOut"])
    assert deployed.ended(execution)["status"] == "FAILED"
    assert "Unable to mount file system" in deployed.the_job_of(execution)["FailureReason"]


@on_aws(jobs=1)
def test_permissions_of_file_systems_are_looked_at_when_the_job_is_created(
    deployed: Deployed, outputs: dict[str, str]
) -> None:
    assert "checked when the job is created" in PAGE
    execution = deployed.start(outputs["LooksOut"])
    described = deployed.ended(execution)
    assert "elasticfilesystem:DescribeMountTargets" in described["cause"]
    assert deployed.jobs_of(execution) == []
