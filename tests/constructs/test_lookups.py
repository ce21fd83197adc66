"""What the CLI has yet to look up is not checked: an app whose first synthesis fails is one whose lookups are never made."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ssm as ssm
from aws_cdk.assertions import Template
from looked_up import VPC_KEY, context
from stacks import UserStack

from cdk_sagemaker_training import (
    DataParallelJob,
    InstanceGroup,
    LustreFileSystem,
    TrainingNetwork,
    TrainingWorkflow,
)

NETWORKS: dict[str, Callable[[cdk.Stack], TrainingNetwork]] = {
    "from_lookup": lambda stack: TrainingNetwork.from_lookup(stack, "Network", vpc_name="shared"),
    "from_vpc": lambda stack: TrainingNetwork(
        stack, "Network", vpc=ec2.Vpc.from_lookup(stack, "Vpc", vpc_name="shared")
    ),
    "with zones": lambda stack: TrainingNetwork.from_lookup(
        stack, "Network", vpc_name="shared", availability_zones=["us-east-1b"]
    ),
    "with a group of subnets": lambda stack: TrainingNetwork.from_lookup(
        stack, "Network", vpc_name="shared", vpc_subnets=ec2.SubnetSelection(subnet_group_name="Machines")
    ),
    "with a kind of subnets": lambda stack: TrainingNetwork.from_lookup(
        stack,
        "Network",
        vpc_name="shared",
        vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED),
    ),
    "with endpoints": lambda stack: TrainingNetwork(
        stack, "Network", vpc=ec2.Vpc.from_lookup(stack, "Vpc", vpc_name="shared"), endpoints=["sts"]
    ),
}


def train(stack: UserStack, group: InstanceGroup, **props: Any) -> TrainingWorkflow:
    return stack.workflow(job=DataParallelJob(group), **props)


def missing(stack: cdk.Stack) -> list[str]:
    """What the CLI looks up after such a synthesis."""
    app = cdk.App.of(stack)
    assert isinstance(app, cdk.App)
    manifest = json.loads((Path(app.synth().directory) / "manifest.json").read_text())
    return [one["key"] for one in manifest.get("missing", [])]


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_workflow_in_a_vpc_that_is_looked_up_passes_the_first_synthesis(kind: str) -> None:
    stack = UserStack()
    train(stack, InstanceGroup("ml.p4d.24xlarge", 20), network=NETWORKS[kind](stack))
    assert missing(stack) == [VPC_KEY]


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_file_system_of_lustre_in_a_vpc_that_is_looked_up_passes_the_first_synthesis(kind: str) -> None:
    stack = UserStack()
    data = stack.place()
    LustreFileSystem(stack, "Files", network=NETWORKS[kind](stack), data=data)
    assert missing(stack) == [VPC_KEY]


def test_the_second_synthesis_has_the_subnets_of_the_vpc_that_was_found() -> None:
    stack = UserStack(context=context("10.0.0.0/24", "10.0.1.0/24"))
    network = NETWORKS["from_lookup"](stack)
    train(stack, InstanceGroup("ml.p4d.24xlarge", 20), network=network)
    assert missing(stack) == []
    assert network.vpc_config()["Subnets"] == ["subnet-a", "subnet-b"]


def test_the_second_synthesis_has_the_subnets_in_the_zones_that_are_named() -> None:
    network = NETWORKS["with zones"](UserStack(context=context("10.0.0.0/24", "10.0.1.0/24")))
    assert network.vpc_config()["Subnets"] == ["subnet-b"]


def test_the_second_synthesis_refuses_more_machines_than_the_subnets_have_addresses_for() -> None:
    stack = UserStack(context=context("10.0.0.0/28"))
    with pytest.raises(ValueError, match=r"^network must have a subnet with addresses for all machines"):
        train(stack, InstanceGroup("ml.p4d.24xlarge", 20), network=NETWORKS["from_lookup"](stack))


def test_the_second_synthesis_refuses_a_file_system_of_lustre_in_two_zones() -> None:
    stack = UserStack(context=context("10.0.0.0/24", "10.0.1.0/24"))
    data = stack.place()
    with pytest.raises(ValueError, match=r"^network must be in one availability zone .* got one with 2 subnets$"):
        LustreFileSystem(stack, "Files", network=NETWORKS["from_lookup"](stack), data=data)


def test_a_network_in_the_zones_of_a_region_passes_before_these_are_looked_up() -> None:
    stack = UserStack()
    TrainingNetwork(stack, "Network", availability_zones=stack.availability_zones[:1])
    assert missing(stack) == ["availability-zones:account=123456789012:region=us-east-1"]


def test_an_instance_type_and_a_prefix_from_parameters_pass_before_these_are_looked_up() -> None:
    stack = UserStack()
    values = {name: ssm.StringParameter.value_from_lookup(stack, name) for name in ("/type", "/prefix", "/zone")}
    network = TrainingNetwork(stack, "Network", availability_zones=[values["/zone"]])
    train(stack, InstanceGroup(values["/type"]), network=network, checkpoints=stack.place(f"{values['/prefix']}/"))
    assert sum(key.startswith("ssm:") for key in missing(stack)) == len(values)


def test_a_file_system_of_lustre_is_in_the_subnet_that_was_found() -> None:
    stack = UserStack(context=context("10.0.0.0/24", "10.0.1.0/24"))
    data = stack.place()
    LustreFileSystem(stack, "Files", network=NETWORKS["with zones"](stack), data=data)
    Template.from_stack(stack).has_resource_properties("AWS::FSx::FileSystem", {"SubnetIds": ["subnet-b"]})
