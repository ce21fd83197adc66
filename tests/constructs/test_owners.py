"""Whose subnets the role of a job may use: those of a shared VPC have the account of its owner in their ARNs."""

from __future__ import annotations

import re
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk.assertions import Template
from looked_up import VPC_KEY, context
from stacks import ENVIRONMENT, UserStack, reads

from cdk_sagemaker_training import TrainingNetwork, TrainingRole

OWNER = "999999999999"


def imported(stack: cdk.Stack) -> ec2.IVpc:
    return ec2.Vpc.from_vpc_attributes(
        stack, "Vpc", vpc_id="vpc-1", availability_zones=["us-east-1a"], isolated_subnet_ids=["subnet-a"]
    )


def owners(network: TrainingNetwork) -> set[str]:
    """The accounts in the ARNs of subnets, of all permissions of a role that was granted the network."""
    stack = cdk.Stack.of(network)
    TrainingRole(stack, "Role").grant_network(network)
    [policy] = Template.from_stack(stack).find_resources("AWS::IAM::Policy").values()
    return {found[1] for found in re.finditer(r":([^:]*):subnet/", str(policy))}


def found_in(account: str | None) -> dict[str, Any]:
    """What the CLI found of a VPC of an account; an older one does not record it."""
    found = context("10.0.0.0/24")
    return {VPC_KEY: {**found[VPC_KEY], **({"ownerAccountId": account} if account else {})}}


@pytest.mark.parametrize(("recorded", "said"), [(OWNER, OWNER), ("123456789012", "*"), (None, "*")])
def test_the_subnets_of_a_vpc_that_was_looked_up_are_its_owners(recorded: str | None, said: str) -> None:
    assert owners(TrainingNetwork.from_lookup(UserStack(context=found_in(recorded)), "Network", vpc_name="shared")) == {
        said
    }


def test_the_subnets_of_an_imported_vpc_are_those_of_any_account() -> None:
    stack = cdk.Stack(env=ENVIRONMENT)
    assert owners(TrainingNetwork(stack, "Network", vpc=imported(stack))) == {"*"}


def test_the_subnets_of_an_imported_vpc_are_those_of_the_account_that_is_given() -> None:
    stack = cdk.Stack(env=ENVIRONMENT)
    assert owners(TrainingNetwork(stack, "Network", vpc=imported(stack), owner_account=OWNER)) == {OWNER}


@pytest.mark.parametrize("given", [True, False])
def test_the_subnets_of_a_vpc_that_the_app_makes_are_the_stacks(given: bool) -> None:
    stack = cdk.Stack(env=ENVIRONMENT)
    vpc = ec2.Vpc(stack, "Vpc", max_azs=1) if given else None
    assert owners(TrainingNetwork(stack, "Network", vpc=vpc, flow_logs=None if given else False)) == {"123456789012"}


@pytest.mark.parametrize("account", ["1234", "arn:aws:iam::123456789012:root"])
def test_an_owner_that_is_no_account_is_refused(account: str) -> None:
    stack = cdk.Stack()
    with pytest.raises(ValueError) as raised:
        TrainingNetwork(stack, "Network", vpc=imported(stack), owner_account=account)
    assert reads(str(raised.value), f"owner_account must be an AWS account of 12 digits ... got {account!r}")


def test_an_owner_of_a_new_vpc_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^owner_account must be left out with a new VPC, which is in the stack's account, "
    ):
        TrainingNetwork(cdk.Stack(), "Network", owner_account=OWNER)
