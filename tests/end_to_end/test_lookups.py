"""A job in a VPC that another account shares, and that the CDK CLI looks up, with permissions enforced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deployed import Deployed
from moto.ec2.models import ec2_backends

APP = Path(__file__).parent / "app_in_a_looked_up_vpc.py"
OWNER, PARTICIPANT = "999999999999", "123456789012"
pytestmark = pytest.mark.soak  # syntheses by the real CLI, one after each lookup


@pytest.fixture(scope="module")
def subnets(deployed: Deployed) -> dict[str, str]:
    """The subnets of a VPC that another account owns and the account of the tests sees, by their zones."""
    owner, participant = (ec2_backends[account]["us-east-1"] for account in (OWNER, PARTICIPANT))
    vpc = owner.create_vpc("10.0.0.0/16", tags=[{"Key": "Name", "Value": "shared"}])
    made = {}
    for number, zone in enumerate(("us-east-1a", "us-east-1b")):
        subnet = owner.create_subnet(vpc.id, f"10.0.{number}.0/24", availability_zone=zone)
        made[zone] = subnet.id
        participant.subnets[zone][subnet.id] = subnet
    # What AWS RAM shows of it to a participant.
    participant.vpcs[vpc.id] = vpc
    participant.route_tables.update(owner.route_tables)
    return made


@pytest.fixture(scope="module")
def outputs(deployed: Deployed, subnets: dict[str, str]) -> dict[str, str]:
    """Of the stack, which the CLI deploys after it has looked the VPC up."""
    file = deployed.account.state / "outputs.json"
    deployed.cdk(
        "deploy", "--app", f"python3 {APP}", "--require-approval", "never", "--outputs-file", str(file), "LookedUp"
    )
    return dict(json.loads(file.read_text())["LookedUp"])


def test_the_cli_looks_up_the_vpc_of_a_job_and_its_file_system(
    deployed: Deployed, subnets: dict[str, str], outputs: dict[str, str]
) -> None:
    context = json.loads((deployed.account.state / "cdk.context.json").read_text())
    [found] = [value for key, value in context.items() if key.startswith("vpc-provider:")]
    assert {one["subnetId"] for group in found["subnetGroups"] for one in group["subnets"]} == {*subnets.values()}
    assert found["ownerAccountId"] == OWNER


def test_a_job_trains_in_the_subnet_of_another_account(
    deployed: Deployed, subnets: dict[str, str], outputs: dict[str, str]
) -> None:
    ended = deployed.ended(deployed.start(outputs["StateMachineArn"]))
    assert ended["status"] == "SUCCEEDED", ended.get("cause")
    [job] = deployed.jobs_of(ended["executionArn"])
    assert job["VpcConfig"]["Subnets"] == [subnets["us-east-1b"]]
    assert [found["SubnetIds"] for found in files_of(deployed)] == [[subnets["us-east-1b"]]]


def files_of(deployed: Deployed) -> list[dict[str, Any]]:
    return list(deployed.client("fsx").describe_file_systems()["FileSystems"])
