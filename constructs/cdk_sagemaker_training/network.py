"""Where a job's hosts meet: private subnets, a way to S3, and a security group open among its own members."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsii
from aws_cdk import aws_ec2 as ec2
from constructs import Construct


@jsii.implements(ec2.IConnectable)
class TrainingNetwork(Construct):
    """A network for training jobs: the hosts of a job reach each other and S3, and nothing else reaches them.

    Makes a VPC with private subnets in two availability zones, without a way to the internet, and a gateway endpoint for S3,
    which costs nothing. With ``vpc`` it uses that one and makes the security group only; ``subnets`` selects among its
    subnets (default: the private ones), which need a way to S3 of their own. All jobs with this network share its security group,
    so give jobs that must not reach each other a network each.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        vpc: ec2.IVpc | None = None,
        subnets: ec2.SubnetSelection | None = None,
    ) -> None:
        super().__init__(scope, id)
        self.vpc: ec2.IVpc = vpc or self._private_vpc()
        self.subnets: ec2.SelectedSubnets = self.vpc.select_subnets(
            **({"subnet_filters": None} if subnets is None else subnets._values)
        )
        self.security_group = self._security_group()
        self.connections: ec2.Connections = self.security_group.connections

    @staticmethod
    def from_vpc(
        scope: Construct, id: str, vpc: ec2.IVpc, *, subnets: ec2.SubnetSelection | None = None
    ) -> TrainingNetwork:
        """The network in a VPC that there is already; see ``vpc``."""
        return TrainingNetwork(scope, id, vpc=vpc, subnets=subnets)

    def vpc_config(self) -> Mapping[str, Any]:
        """The request's VpcConfig."""
        return {
            "SecurityGroupIds": [self.security_group.security_group_id],
            "Subnets": self.subnets.subnet_ids,
        }

    def _private_vpc(self) -> ec2.Vpc:
        return ec2.Vpc(
            self,
            "Vpc",
            max_azs=2,
            nat_gateways=0,
            subnet_configuration=[ec2.SubnetConfiguration(name="Private", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)],
            gateway_endpoints={"S3": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3)},
            # Emptying the default group takes a custom resource, so a Lambda function in the user's account. Nothing uses
            # that group here.
            restrict_default_security_group=False,
        )

    def _security_group(self) -> ec2.SecurityGroup:
        group = ec2.SecurityGroup(
            self,
            "SecurityGroup",
            vpc=self.vpc,
            description="Hosts of training jobs: all traffic among themselves, HTTPS out",
            # With True CDK drops the egress half of the rules below as covered by "all IPv4", and EFA, whose packets have
            # no IP address, asks for a rule that names the group itself, out as well as in.
            allow_all_outbound=False,
        )
        group.connections.allow_internally(ec2.Port.all_traffic(), "hosts of a job reach each other")
        # S3 has no address of its own behind a gateway endpoint. In subnets without another route this leads there only.
        group.add_egress_rule(
            ec2.Peer.any_ipv4(), ec2.Port.tcp(443), "S3, and other AWS services where there is a route"
        )
        return group
