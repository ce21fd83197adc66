"""In which availability zones a network is, how its addresses are divided among them, and what is not in each of them."""

from __future__ import annotations

import itertools
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk.assertions import Template
from stacks import ENVIRONMENT

from cdk_sagemaker_training import TrainingNetwork

ZONES = [f"us-east-1{letter}" for letter in "abcdef"]


def template(*zones: str, **props: Any) -> Template:
    """With a network in a region of some zones, which the CLI has looked up; without any, in a stack that names no region."""
    found = {"availability-zones:account=123456789012:region=us-east-1": list(zones)}
    app = cdk.App(context=found if zones else None)
    stack = cdk.Stack(app, "Stack", env=ENVIRONMENT if zones else None)
    TrainingNetwork(stack, "Network", **props)
    return Template.from_stack(stack)


def of_subnets(template: Template, property: str) -> list[Any]:
    return [one["Properties"][property] for one in template.find_resources("AWS::EC2::Subnet").values()]


def of_endpoints(template: Template) -> list[int]:
    """In how many subnets each interface endpoint is."""
    endpoints = [one["Properties"] for one in template.find_resources("AWS::EC2::VPCEndpoint").values()]
    return [len(one["SubnetIds"]) for one in endpoints if one["VpcEndpointType"] == "Interface"]


@pytest.mark.parametrize("count", [2, 3, 6])
def test_a_network_is_in_all_zones_of_the_region(count: int) -> None:
    assert of_subnets(template(*ZONES[:count]), "AvailabilityZone") == ZONES[:count]


def test_a_network_of_a_stack_that_names_no_region_is_in_the_two_zones_that_every_region_has() -> None:
    assert len(of_subnets(template(), "AvailabilityZone")) == 2


def test_a_network_is_in_as_many_zones_as_is_said() -> None:
    assert of_subnets(template(*ZONES, max_azs=4), "AvailabilityZone") == ZONES[:4]


@pytest.mark.parametrize("cidr", [None, "10.1.0.0/20"])
def test_a_subnet_keeps_its_addresses_when_there_are_more_zones(cidr: str | None) -> None:
    divided = [of_subnets(template(*zones, cidr=cidr), "CidrBlock") for zones in ((), ZONES[:3], ZONES)]
    for fewer, more in itertools.pairwise(divided):
        assert len(fewer) < len(more)
        assert more[: len(fewer)] == fewer


@pytest.mark.parametrize(("cidr", "subnets"), [("10.1.0.0/28", 1), ("10.1.0.0/27", 2), ("10.1.0.0/26", 4)])
def test_a_small_block_of_addresses_is_for_as_many_zones_as_it_has_subnets(cidr: str, subnets: int) -> None:
    blocks = of_subnets(template(*ZONES, cidr=cidr), "CidrBlock")
    assert len(blocks) == subnets
    assert all(block.endswith("/28") for block in blocks)


@pytest.mark.parametrize(("zones", "billed"), [(ZONES[:1], 1), (ZONES[:2], 2), (ZONES, 2)])
def test_an_interface_endpoint_which_is_billed_by_the_zone_is_in_two_at_most(zones: list[str], billed: int) -> None:
    assert of_endpoints(template(*zones, endpoints=["sts", "logs"])) == [billed, billed]


def test_an_interface_endpoint_is_in_a_zone_once() -> None:
    stack = cdk.Stack()
    vpc = ec2.Vpc.from_vpc_attributes(stack, "Vpc", vpc_id="vpc-1", availability_zones=ZONES[:2])
    selected = [
        ec2.Subnet.from_subnet_attributes(stack, f"Subnet{n}", subnet_id=f"subnet-{n}", availability_zone=zone)
        for n, zone in enumerate([ZONES[0], ZONES[0], ZONES[1]])
    ]
    TrainingNetwork(stack, "Network", vpc=vpc, vpc_subnets=ec2.SubnetSelection(subnets=selected)).add_endpoint("sts")
    [endpoint] = Template.from_stack(stack).find_resources("AWS::EC2::VPCEndpoint").values()
    assert endpoint["Properties"]["SubnetIds"] == ["subnet-0", "subnet-2"]
