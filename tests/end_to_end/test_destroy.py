"""What `cdk destroy` leaves of what `cdk deploy` made."""

from __future__ import annotations

from typing import Any

from deployed import ROOT, Deployed


def held(deployed: Deployed) -> dict[str, Any]:
    """Everything in the account of the kinds that the example stacks make."""
    ec2, iam, events = deployed.client("ec2"), deployed.client("iam"), deployed.client("events")
    return {
        "buckets": sorted(bucket["Name"] for bucket in deployed.client("s3").list_buckets()["Buckets"]),
        "groups": sorted(group["GroupId"] for group in ec2.describe_security_groups()["SecurityGroups"]),
        "machines": deployed.client("stepfunctions").list_state_machines()["stateMachines"],
        "roles": sorted(role["RoleName"] for role in iam.list_roles()["Roles"]),
        "route tables": sorted(table["RouteTableId"] for table in ec2.describe_route_tables()["RouteTables"]),
        "rules": events.list_rules()["Rules"],
        "subnets": sorted(subnet["SubnetId"] for subnet in ec2.describe_subnets()["Subnets"]),
        "vpcs": sorted(vpc["VpcId"] for vpc in ec2.describe_vpcs()["Vpcs"]),
    }


def test_after_cdk_destroy_the_account_holds_what_it_held_before(deployed: Deployed) -> None:
    before = held(deployed)
    app = ("--app", f"python3 {ROOT / 'app.py'}")
    deployed.cdk("deploy", "HeterogeneousTraining", "--require-approval", "never", *app)
    assert held(deployed) != before
    deployed.cdk("destroy", "HeterogeneousTraining", "--force", *app)
    assert held(deployed) == before
