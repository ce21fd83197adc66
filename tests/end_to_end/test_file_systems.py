"""Jobs on file systems and on customer-managed keys, with permissions enforced, from `cdk deploy` to `cdk destroy`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from deployed import Deployed
from test_destroy import held

from cdk_sagemaker_training import (
    DataParallelJob,
    EfsChannel,
    FsxLustreChannel,
    InstanceGroup,
    LustreFileSystem,
    S3Prefix,
    TrainingImage,
    TrainingNetwork,
    TrainingWorkflow,
)

# Deploys file systems, and jobs on them; tests/local_account/test_mounts.py has what hosts see of each.
pytestmark = pytest.mark.soak

HOSTS = {"algo-1", "algo-2"}


class OnFiles(cdk.Stack):
    """A job of two hosts that reads a bucket by Lustre and writes to EFS, with a key of the user's on all that takes one."""

    def __init__(self, app: cdk.App) -> None:
        super().__init__(app, "OnFiles")
        keys = {
            name: kms.Key(self, f"{name}Key", removal_policy=cdk.RemovalPolicy.DESTROY)
            for name in ("Bucket", "Files", "Output", "Volume")
        }
        bucket = s3.Bucket(self, "Bucket", encryption_key=keys["Bucket"], removal_policy=cdk.RemovalPolicy.DESTROY)
        network = TrainingNetwork(self, "Network", max_azs=1)
        letters = LustreFileSystem(
            self,
            "Letters",
            network=network,
            data=S3Prefix(bucket, "letters/"),
            encryption_key=keys["Files"],
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        shared = efs.FileSystem(
            self,
            "Shared",
            vpc=network.vpc,
            vpc_subnets=ec2.SubnetSelection(subnets=network.subnets.subnets),
            kms_key=keys["Files"],
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        shared.add_access_point("Notes", path="/notes")
        workflow = TrainingWorkflow(
            self,
            "Training",
            job=DataParallelJob(InstanceGroup("ml.m5.xlarge", 2)),
            image=TrainingImage.from_asset(self, "Image", directory=str(Path(__file__).parent / "a_job_on_files")),
            channels={"letters": FsxLustreChannel(letters), "shared": EfsChannel(shared, read_only=False)},
            output=S3Prefix(bucket, "models/"),
            output_key=keys["Output"],
            volume_key=keys["Volume"],
            network=network,
        )
        cdk.CfnOutput(self, "StateMachineArn", value=workflow.state_machine.state_machine_arn)
        cdk.CfnOutput(self, "BucketName", value=bucket.bucket_name)
        for name, key in keys.items():
            cdk.CfnOutput(self, f"{name}KeyArn", value=key.key_arn)


class Run:
    """What one execution of the stack came to."""

    def __init__(self, deployed: Deployed, outputs: dict[str, str]) -> None:
        execution = deployed.ended(deployed.start(outputs["StateMachineArn"]))
        assert execution["status"] == "SUCCEEDED", execution.get("cause")
        [self.job] = deployed.jobs_of(execution["executionArn"])
        self.lines: list[str] = deployed.said(self.job["TrainingJobName"])


class Stacks:
    """The stack as it is deployed, with two executions, between which an object came, and one went.

    ``keys`` are those of each place of data, which is gone after `cdk destroy`.
    """

    def __init__(self, deployed: Deployed, outputs: dict[str, str]) -> None:
        self.deployed, self.outputs = deployed, outputs
        self.s3 = deployed.client("s3")
        self.put("letters/a.txt", "this is a")
        self.put("letters/more/b.txt", "this is b")
        self.first = Run(deployed, outputs)
        self.put("letters/c.txt", "this is c")
        self.s3.delete_object(Bucket=outputs["BucketName"], Key="letters/a.txt")
        self.second = Run(deployed, outputs)
        artifact = self.first.job["ModelArtifacts"]["S3ModelArtifacts"].partition(f"{outputs['BucketName']}/")[2]
        kept = [deployed.client(service).describe_file_systems() for service in ("fsx", "efs")]
        self.keys = {
            "OutputKeyArn": self.key_of(artifact),
            "BucketKeyArn": self.key_of("letters/c.txt"),
            "VolumeKeyArn": self.first.job["ResourceConfig"]["VolumeKmsKeyId"],
            "FilesKeyArn": {found["FileSystems"][0]["KmsKeyId"] for found in kept},
        }

    def key_of(self, name: str) -> str:
        return str(self.s3.head_object(Bucket=self.outputs["BucketName"], Key=name)["SSEKMSKeyId"])

    def put(self, key: str, text: str) -> None:
        self.s3.put_object(Bucket=self.outputs["BucketName"], Key=key, Body=f"{text}\n".encode())


@pytest.fixture(scope="module")
def before(deployed: Deployed) -> dict[str, Any]:
    return held(deployed)


@pytest.fixture(scope="module")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("assembly"))


@pytest.fixture(scope="module")
def stacks(deployed: Deployed, before: dict[str, Any], assembly: str) -> Stacks:
    return Stacks(deployed, deployed.deploy(OnFiles(cdk.App(outdir=assembly))))


def test_each_host_reads_by_lustre_what_the_bucket_holds(stacks: Stacks) -> None:
    assert [line for line in stacks.first.lines if line.startswith("this is")].count("this is a") == len(HOSTS)
    assert stacks.first.lines.count("this is b") == len(HOSTS)


def test_lustre_follows_what_comes_and_goes_in_the_bucket(stacks: Stacks) -> None:
    assert {line for line in stacks.second.lines if line.startswith("this is")} == {"this is b", "this is c"}


def test_a_channel_that_is_only_read_cannot_be_written(stacks: Stacks) -> None:
    assert stacks.first.lines.count("letters cannot be written") == len(HOSTS)


def test_what_the_hosts_of_a_job_write_to_efs_the_next_job_reads(stacks: Stacks) -> None:
    here = {f"{host} was here" for host in HOSTS}
    assert here <= set(stacks.second.lines)


def test_each_place_of_data_has_the_key_that_its_stack_names(stacks: Stacks) -> None:
    named = {name: stacks.outputs[name] for name in stacks.keys}
    assert stacks.keys == named | {"FilesKeyArn": {named["FilesKeyArn"]}}


def test_after_cdk_destroy_there_is_nothing_of_the_file_systems(
    stacks: Stacks, before: dict[str, Any], assembly: str
) -> None:
    deployed = stacks.deployed
    with_stack = held(deployed)
    for entry in stacks.s3.list_objects_v2(Bucket=stacks.outputs["BucketName"])["Contents"]:
        stacks.s3.delete_object(Bucket=stacks.outputs["BucketName"], Key=entry["Key"])
    deployed.cdk("destroy", "OnFiles", "--force", "--app", assembly)
    after = held(deployed)
    # What SageMaker made is not the stack's: the log group; and keys wait for their deletion.
    left = {kind for kind, found in after.items() if found != before[kind]}
    assert left <= {"keys", "log groups"}
    kinds = {"access points", "file systems", "interfaces", "links", "mount targets"}
    assert all(with_stack[kind] for kind in kinds)
    assert [*(deployed.account.state / "file-systems").iterdir()] == []
