"""What the CDK CLI writes to ``cdk.context.json`` of a VPC that it has looked up."""

from __future__ import annotations

from typing import Any

VPC_KEY = "vpc-provider:account=123456789012:filter.tag:Name=shared:region=us-east-1:returnAsymmetricSubnets=true"


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
