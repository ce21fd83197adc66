"""The VPC of a ``TrainingNetwork`` that has none."""

from __future__ import annotations

import re
from collections.abc import Sequence

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_pending_zone, is_unresolved
from cdk_sagemaker_training.resources.networking.addresses import subnets_of_all_zones

_MOST_ZONES = 6  # of a region, us-east-1's


def check_zones(max_azs: int | None, zones: Sequence[str] | None, region: str) -> None:
    """Check the props ``max_azs`` and ``availability_zones`` of a network in a region; None and tokens pass."""
    if max_azs is not None and zones is not None:
        raise must("max_azs", "be left out with availability_zones", "max_azs=None", f"{max_azs!r} with {list(zones)}")
    if max_azs is not None and not 1 <= max_azs <= _MOST_ZONES:
        raise must("max_azs", f"be a whole number from 1 to {_MOST_ZONES}", "1", repr(max_azs))
    if zones is None or is_unresolved(zones):
        return
    if not zones or not all(
        is_pending_zone(zone) or re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d[a-z]", zone) for zone in zones
    ):
        raise must("availability_zones", "list names of zones", "['us-east-1a']", repr(zones))
    for zone in zones:
        if not is_unresolved(region) and not is_pending_zone(zone) and not zone.startswith(region):
            rule = f"be zones of the stack's region, {region!r}"
            raise must("availability_zones", rule, f"['{region}a']", repr(zone))


def private_vpc(
    scope: Construct, *, max_azs: int | None, zones: Sequence[str] | None, cidr: str | None, flow_logs: bool
) -> ec2.Vpc:
    """Create a VPC with private subnets, without internet access, and a gateway endpoint for S3, with the id "Vpc".

    Args:
        scope: The parent construct.
        max_azs: Maximum number of availability zones; None for all.
        zones: Names of the zones; None for all.
        cidr: IPv4 block; None for 10.0.0.0/16.
        flow_logs: Whether flow logs are written to CloudWatch.
    """
    most, mask = (max_azs, None) if max_azs or zones else subnets_of_all_zones(cidr)
    private = ec2.SubnetConfiguration(name="Private", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED, cidr_mask=mask)
    vpc = ec2.Vpc(
        scope,
        "Vpc",
        **({"availability_zones": list(zones)} if zones else {"max_azs": most}),
        ip_addresses=ec2.IpAddresses.cidr(cidr) if cidr else None,
        nat_gateways=0,
        subnet_configuration=[private],
        gateway_endpoints={"S3": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3)},
        # Emptying the default group needs a custom resource, so a Lambda function in the user's account; the group is not
        # used here.
        restrict_default_security_group=False,
    )
    if flow_logs:
        _log_flows(scope, vpc)
    return vpc


def _log_flows(scope: Construct, vpc: ec2.Vpc) -> None:
    from aws_cdk import aws_iam as iam
    from aws_cdk import aws_logs as logs

    group = logs.LogGroup(
        scope, "FlowLogs", retention=logs.RetentionDays.THREE_MONTHS, removal_policy=RemovalPolicy.DESTROY
    )
    service = iam.ServicePrincipal(
        "vpc-flow-logs.amazonaws.com",
        conditions={"StringEquals": {"aws:SourceAccount": Stack.of(scope).account}},
    )
    role = iam.Role(scope, "FlowLogsRole", assumed_by=service, description="Writes the flow logs of a VPC")
    vpc.add_flow_log("FlowLog", destination=ec2.FlowLogDestination.to_cloud_watch_logs(group, role))
