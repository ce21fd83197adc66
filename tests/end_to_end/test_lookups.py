"""A VPC that the CDK CLI looks up in the account, with the roles of the bootstrap stack and permissions enforced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deployed import Deployed

APP = Path(__file__).parent / "app_in_a_looked_up_vpc.py"


@pytest.fixture(scope="module")
def subnets(deployed: Deployed) -> dict[str, str]:
    """The subnets of a VPC of the account's, by their zones."""
    ec2 = deployed.client("ec2")
    name = {"ResourceType": "vpc", "Tags": [{"Key": "Name", "Value": "shared"}]}
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=[name])["Vpc"]["VpcId"]

    def subnet(zone: str, cidr: str) -> str:
        made = ec2.create_subnet(VpcId=vpc, AvailabilityZone=zone, CidrBlock=cidr)
        return str(made["Subnet"]["SubnetId"])

    return {"us-east-1a": subnet("us-east-1a", "10.0.0.0/24"), "us-east-1b": subnet("us-east-1b", "10.0.1.0/24")}


@pytest.fixture(scope="module")
def template(deployed: Deployed, subnets: dict[str, str]) -> dict[str, Any]:
    """What the CLI synthesizes after it has looked the VPC up."""
    deployed.cdk("synth", "--quiet", "--app", f"python3 {APP}")
    return dict(json.loads((deployed.account.state / "cdk.out" / "LookedUp.template.json").read_text()))


def test_the_cli_looks_up_the_vpc_of_a_job_and_its_file_system(
    deployed: Deployed, subnets: dict[str, str], template: dict[str, Any]
) -> None:
    context = json.loads((deployed.account.state / "cdk.context.json").read_text())
    [found] = [value for key, value in context.items() if key.startswith("vpc-provider:")]
    assert {one["subnetId"] for group in found["subnetGroups"] for one in group["subnets"]} == {*subnets.values()}


def test_the_template_after_the_lookup_has_the_subnet_in_the_named_zone(
    subnets: dict[str, str], template: dict[str, Any]
) -> None:
    resources = template["Resources"].values()
    [files] = [one for one in resources if one["Type"] == "AWS::FSx::FileSystem"]
    machines = json.dumps([one for one in resources if one["Type"] == "AWS::StepFunctions::StateMachine"])
    assert files["Properties"]["SubnetIds"] == [subnets["us-east-1b"]]
    assert subnets["us-east-1b"] in machines
    assert subnets["us-east-1a"] not in machines
