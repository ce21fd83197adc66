"""What the CLI has yet to look up is not checked: an app whose first synthesis fails is one whose lookups are never made."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_ssm as ssm
from aws_cdk.assertions import Template

from cdk_sagemaker_training import (
    DataParallelJob,
    InstanceGroup,
    LustreFileSystem,
    S3Prefix,
    TrainingImage,
    TrainingNetwork,
    TrainingWorkflow,
)

ENVIRONMENT = cdk.Environment(account="123456789012", region="us-east-1")
VPC_KEY = "vpc-provider:account=123456789012:filter.tag:Name=shared:region=us-east-1:returnAsymmetricSubnets=true"
NETWORKS: dict[str, Callable[[cdk.Stack], TrainingNetwork]] = {
    "from_lookup": lambda stack: TrainingNetwork.from_lookup(stack, "Network", vpc_name="shared"),
    "from_vpc": lambda stack: TrainingNetwork.from_vpc(
        stack, "Network", ec2.Vpc.from_lookup(stack, "Vpc", vpc_name="shared")
    ),
    "with zones": lambda stack: TrainingNetwork.from_lookup(
        stack, "Network", vpc_name="shared", availability_zones=["us-east-1b"]
    ),
    "with a group of subnets": lambda stack: TrainingNetwork.from_lookup(
        stack, "Network", vpc_name="shared", subnets=ec2.SubnetSelection(subnet_group_name="Machines")
    ),
    "with a kind of subnets": lambda stack: TrainingNetwork.from_lookup(
        stack, "Network", vpc_name="shared", subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)
    ),
    "with endpoints": lambda stack: TrainingNetwork(
        stack, "Network", vpc=ec2.Vpc.from_lookup(stack, "Vpc", vpc_name="shared"), endpoints=["sts"]
    ),
}


def context(*cidrs: str) -> dict[str, Any]:
    """What the CLI writes to ``cdk.context.json`` of a VPC with a private subnet in each of some zones."""
    subnets = [
        {
            "subnetId": f"subnet-{zone}",
            "cidr": cidr,
            "availabilityZone": f"us-east-1{zone}",
            "routeTableId": "rtb-1",
        }
        for zone, cidr in zip("ab", cidrs, strict=False)
    ]
    group = {"name": "Machines", "type": "Isolated", "subnets": subnets}
    vpc = {"vpcId": "vpc-1", "vpcCidrBlock": "10.0.0.0/16", "availabilityZones": [], "subnetGroups": [group]}
    return {VPC_KEY: vpc}


def stack_of(found: dict[str, Any] | None = None) -> cdk.Stack:
    return cdk.Stack(cdk.App(context=found), "Stack", env=ENVIRONMENT)


def train(stack: cdk.Stack, group: InstanceGroup, **props: Any) -> TrainingWorkflow:
    return TrainingWorkflow(
        stack,
        "Training",
        job=DataParallelJob(group),
        image=TrainingImage.from_uri(stack, "Image", "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1"),
        output=S3Prefix(s3.Bucket.from_bucket_name(stack, "Bucket", "data"), "models/"),
        **props,
    )


def missing(stack: cdk.Stack) -> list[str]:
    """What the CLI looks up after such a synthesis."""
    app = cdk.App.of(stack)
    assert isinstance(app, cdk.App)
    manifest = json.loads((Path(app.synth().directory) / "manifest.json").read_text())
    return [one["key"] for one in manifest.get("missing", [])]


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_workflow_in_a_vpc_that_is_looked_up_passes_the_first_synthesis(kind: str) -> None:
    stack = stack_of()
    train(stack, InstanceGroup("ml.p4d.24xlarge", 20), network=NETWORKS[kind](stack))
    assert missing(stack) == [VPC_KEY]


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_file_system_of_lustre_in_a_vpc_that_is_looked_up_passes_the_first_synthesis(kind: str) -> None:
    stack = stack_of()
    data = S3Prefix(s3.Bucket.from_bucket_name(stack, "Bucket", "data"))
    LustreFileSystem(stack, "Files", network=NETWORKS[kind](stack), data=data)
    assert missing(stack) == [VPC_KEY]


def test_the_second_synthesis_has_the_subnets_of_the_vpc_that_was_found() -> None:
    stack = stack_of(context("10.0.0.0/24", "10.0.1.0/24"))
    network = NETWORKS["from_lookup"](stack)
    train(stack, InstanceGroup("ml.p4d.24xlarge", 20), network=network)
    assert missing(stack) == []
    assert network.vpc_config()["Subnets"] == ["subnet-a", "subnet-b"]


def test_the_second_synthesis_has_the_subnets_in_the_zones_that_are_named() -> None:
    network = NETWORKS["with zones"](stack_of(context("10.0.0.0/24", "10.0.1.0/24")))
    assert network.vpc_config()["Subnets"] == ["subnet-b"]


def test_the_second_synthesis_refuses_more_machines_than_the_subnets_have_addresses_for() -> None:
    stack = stack_of(context("10.0.0.0/28"))
    with pytest.raises(ValueError, match=r"^network must have a subnet with addresses for all machines"):
        train(stack, InstanceGroup("ml.p4d.24xlarge", 20), network=NETWORKS["from_lookup"](stack))


def test_the_second_synthesis_refuses_a_file_system_of_lustre_in_two_zones() -> None:
    stack = stack_of(context("10.0.0.0/24", "10.0.1.0/24"))
    data = S3Prefix(s3.Bucket.from_bucket_name(stack, "Bucket", "data"))
    with pytest.raises(ValueError, match=r"^network must be in one availability zone .* got one with 2 subnets$"):
        LustreFileSystem(stack, "Files", network=NETWORKS["from_lookup"](stack), data=data)


def test_a_network_in_the_zones_of_a_region_passes_before_these_are_looked_up() -> None:
    stack = stack_of()
    TrainingNetwork(stack, "Network", availability_zones=stack.availability_zones[:1])
    assert missing(stack) == ["availability-zones:account=123456789012:region=us-east-1"]


def test_an_instance_type_and_a_prefix_from_parameters_pass_before_these_are_looked_up() -> None:
    stack = stack_of()
    values = {name: ssm.StringParameter.value_from_lookup(stack, name) for name in ("/type", "/prefix", "/zone")}
    network = TrainingNetwork(stack, "Network", availability_zones=[values["/zone"]])
    bucket = s3.Bucket.from_bucket_name(stack, "Checkpoints", "checkpoints")
    train(stack, InstanceGroup(values["/type"]), network=network, checkpoints=S3Prefix(bucket, f"{values['/prefix']}/"))
    assert sum(key.startswith("ssm:") for key in missing(stack)) == len(values)


def test_a_file_system_of_lustre_is_in_the_subnet_that_was_found() -> None:
    stack = stack_of(context("10.0.0.0/24", "10.0.1.0/24"))
    data = S3Prefix(s3.Bucket.from_bucket_name(stack, "Bucket", "data"))
    LustreFileSystem(stack, "Files", network=NETWORKS["with zones"](stack), data=data)
    Template.from_stack(stack).has_resource_properties("AWS::FSx::FileSystem", {"SubnetIds": ["subnet-b"]})
