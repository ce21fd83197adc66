"""Where a job's hosts meet: private subnets, a way to S3, and a security group open among its own members."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import jsii
from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from cdk_sagemaker_training.addresses import check_addresses, check_cidr, known_cidrs, subnets_of_all_zones
from cdk_sagemaker_training.endpoints import add_interface_endpoint
from cdk_sagemaker_training.owners import check_owner, owner_of
from cdk_sagemaker_training.prop_types import checked
from cdk_sagemaker_training.tokens import is_pending_zone, is_unresolved

_MOST_GROUPS = 5  # VpcConfig.SecurityGroupIds of the service model
_MOST_ZONES = 6  # of a region, us-east-1's


@jsii.implements(ec2.IConnectable)
class TrainingNetwork(Construct):
    """A network for training jobs: the hosts of a job reach each other and S3, and nothing else reaches them.

    Makes a VPC with a private subnet in each availability zone of the region, without a way to the internet, and a gateway
    endpoint for S3; subnets and this endpoint cost nothing. With ``vpc`` it uses that one and makes the security group only;
    ``subnets`` selects among its subnets (default: the private ones), which need a way to S3 of their own. All jobs with this
    network share its security group, so give jobs that must not reach each other a network each.

    - ``max_azs`` is in how many zones, ``availability_zones`` names them, like ``["us-east-1a"]``; unless said, in all. SageMaker
      puts the machines of a job into one of them that has the instance type, which those with accelerators are in few of
      (service model, VpcConfig.Subnets, "Supported Instance Types and Availability Zones"). How many zones there are CDK looks up
      in the account; a stack that names no account and region has two, as many as every region has, or those that are named.
      A file system of FSx for Lustre is in one zone, and so is the network of the jobs that use it.
      ``cidr`` is the VPC's addresses, 10.0.0.0/16 unless said, divided among the subnets, into eight where
      there is one in each zone.
    - ``security_group`` uses one that there is already, and adds the rules that a job's hosts need; ``security_groups`` uses
      several, at most 5, all of which each host has and all of which get these rules, as with CDK's own constructs. One that
      was imported with ``mutable=False`` stays as it is.
    - ``owner_account`` is the account that owns a ``vpc`` which is shared by AWS RAM: the role of a job may use its subnets by
      ARNs that name it. One that is looked up says it by itself; for one that was imported by its attributes, unless it is
      given, the ARNs have any account, since the ids of subnets are no other's.
    - ``endpoints`` are interface endpoints by their services' names, like ``["sts", "logs"]``; SageMaker itself needs none of
      them to run a job. ``add_endpoint`` says what each is for, and what it costs.
    - ``flow_logs`` False leaves out the record of the new VPC's traffic, which CloudWatch charges by size and keeps for three
      months.

    Raises ``ValueError`` with the prop to change.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        vpc: ec2.IVpc | None = None,
        subnets: ec2.SubnetSelection | None = None,
        security_group: ec2.ISecurityGroup | None = None,
        security_groups: Sequence[ec2.ISecurityGroup] | None = None,
        max_azs: int | None = None,
        availability_zones: Sequence[str] | None = None,
        owner_account: str | None = None,
        cidr: str | None = None,
        endpoints: Sequence[str] = (),
        flow_logs: bool | None = None,
    ) -> None:
        super().__init__(scope, id)
        _check_zones(max_azs, availability_zones)
        check_cidr(cidr)
        check_owner(owner_account, new=vpc is None)
        new = {"max_azs": max_azs, "cidr": cidr, "flow_logs": flow_logs}
        for name, value in new.items():
            if vpc is not None and value is not None:
                raise ValueError(
                    f"{name} must be left out with a vpc that there is already, like {name}=None, got {value!r}"
                )
        self.vpc: ec2.IVpc = vpc or self._private_vpc(max_azs, availability_zones, cidr, flow_logs is not False)
        self.subnets: ec2.SelectedSubnets = self.vpc.select_subnets(**_selection(vpc, subnets, availability_zones))
        if self.subnets.is_pending_lookup and not self.subnets.subnets:
            # CDK's placeholder of a VPC has public and private subnets in two zones, which need not be among those selected.
            self.subnets = self.vpc.select_subnets()
        self._owner_account = Stack.of(self).account if vpc is None else owner_account or owner_of(vpc, Stack.of(self))
        given = _given_groups(security_group, security_groups)
        self.security_groups: tuple[ec2.ISecurityGroup, ...] = given or (self._security_group(),)
        self._allow_internally("Everything", ec2.Port.all_traffic(), "hosts of a job reach each other")
        for service in endpoints:
            self.add_endpoint(service)

    @property
    @jsii.member(jsii_name="connections")
    def connections(self) -> ec2.Connections:
        if len(self.security_groups) == 1:
            return self.security_group.connections
        return ec2.Connections(security_groups=list(self.security_groups))

    @property
    def security_group(self) -> ec2.ISecurityGroup:
        """The hosts' security group, the first where there are several."""
        return self.security_groups[0]

    @staticmethod
    @checked
    def from_vpc(
        scope: Construct,
        id: str,
        vpc: ec2.IVpc,
        *,
        subnets: ec2.SubnetSelection | None = None,
        security_group: ec2.ISecurityGroup | None = None,
        security_groups: Sequence[ec2.ISecurityGroup] | None = None,
        availability_zones: Sequence[str] | None = None,
        owner_account: str | None = None,
    ) -> TrainingNetwork:
        """The network in a VPC that there is already; see ``vpc``, and ``owner_account`` for one of another account."""
        return TrainingNetwork(
            scope,
            id,
            vpc=vpc,
            subnets=subnets,
            security_group=security_group,
            security_groups=security_groups,
            availability_zones=availability_zones,
            owner_account=owner_account,
        )

    @staticmethod
    @checked
    def from_lookup(
        scope: Construct,
        id: str,
        *,
        subnets: ec2.SubnetSelection | None = None,
        security_group: ec2.ISecurityGroup | None = None,
        security_groups: Sequence[ec2.ISecurityGroup] | None = None,
        availability_zones: Sequence[str] | None = None,
        **vpc: Any,
    ) -> TrainingNetwork:
        """The network in a VPC of the account, found at synthesis, like ``vpc_name="shared"`` or ``tags={"team": "ml"}``.

        Takes what ``ec2.Vpc.from_lookup`` takes; the stack has to name its account and region.
        """
        found = ec2.Vpc.from_lookup(scope, f"{id}Vpc", **vpc)
        return TrainingNetwork(
            scope,
            id,
            vpc=found,
            subnets=subnets,
            security_group=security_group,
            security_groups=security_groups,
            availability_zones=availability_zones,
            owner_account=vpc.get("owner_account_id"),
        )

    def vpc_config(self) -> Mapping[str, Any]:
        """The request's VpcConfig."""
        return {
            "SecurityGroupIds": [group.security_group_id for group in self.security_groups],
            "Subnets": self.subnets.subnet_ids,
        }

    def subnet_arns(self) -> list[str]:
        """The ARNs of the subnets, with the account that owns them."""
        return [
            Stack.of(self).format_arn(
                service="ec2", resource="subnet", resource_name=subnet_id, account=self._owner_account
            )
            for subnet_id in self.subnets.subnet_ids
        ]

    def check_addresses(self, resource_config: Mapping[str, Any]) -> None:
        """Refuse a job with more machines than the largest subnet has addresses for, where the CIDRs are known."""
        check_addresses(resource_config, known_cidrs(self.subnets))

    def allow_encrypted_traffic(self) -> None:
        """Add the rules that AWS asks for where a job encrypts the traffic between its hosts: UDP 500 and ESP, in and out.

        Encryption is off unless a job says so: AWS warns that it may make training take longer, and so cost more, most of all
        where the hosts exchange much ("Protect Communications Between ML Compute Instances in a Distributed Training Job").
        """
        self._allow_internally("KeyExchange", ec2.Port.udp(500), "keys of the encryption between hosts")
        # `Port.esp()` names ports, which ESP does not have, so that CloudFormation's validator warns of them (W3687).
        esp = ec2.Port(protocol=ec2.Protocol.ESP, string_representation="ESP 50")
        self._allow_internally("Encrypted", esp, "encrypted traffic between hosts")

    def add_endpoint(self, service: str) -> ec2.InterfaceVpcEndpoint:
        """Let the job's script call an AWS service, like ``"sts"``, without a way to the internet.

        An endpoint costs about 0.01 USD an hour in each zone, whether a job runs or not, and 0.01 USD a GB (us-east-1). It is in
        two of the network's zones at most, however many these are: hosts in the others reach it too, for 0.01 USD a GB more each
        way. The services, and what each is for, are those of ``cdk_sagemaker_training.endpoints.PURPOSES``.
        """
        return add_interface_endpoint(self, service, self.vpc, self.subnets, self.connections)

    def _private_vpc(
        self, max_azs: int | None, zones: Sequence[str] | None, cidr: str | None, flow_logs: bool
    ) -> ec2.Vpc:
        most, mask = (max_azs, None) if max_azs or zones else subnets_of_all_zones(cidr)
        private = ec2.SubnetConfiguration(name="Private", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED, cidr_mask=mask)
        vpc = ec2.Vpc(
            self,
            "Vpc",
            **({"availability_zones": list(zones)} if zones else {"max_azs": most}),
            ip_addresses=ec2.IpAddresses.cidr(cidr) if cidr else None,
            nat_gateways=0,
            subnet_configuration=[private],
            gateway_endpoints={"S3": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3)},
            # Emptying the default group takes a custom resource, so a Lambda function in the user's account. Nothing uses
            # that group here.
            restrict_default_security_group=False,
        )
        if flow_logs:
            self._log_flows(vpc)
        return vpc

    def _log_flows(self, vpc: ec2.Vpc) -> None:
        from aws_cdk import aws_iam as iam
        from aws_cdk import aws_logs as logs

        group = logs.LogGroup(
            self, "FlowLogs", retention=logs.RetentionDays.THREE_MONTHS, removal_policy=RemovalPolicy.DESTROY
        )
        service = iam.ServicePrincipal(
            "vpc-flow-logs.amazonaws.com",
            conditions={"StringEquals": {"aws:SourceAccount": Stack.of(self).account}},
        )
        role = iam.Role(self, "FlowLogsRole", assumed_by=service, description="Writes the flow logs of a VPC")
        vpc.add_flow_log("FlowLog", destination=ec2.FlowLogDestination.to_cloud_watch_logs(group, role))

    def _security_group(self) -> ec2.SecurityGroup:
        group = ec2.SecurityGroup(
            self,
            "SecurityGroup",
            vpc=self.vpc,
            description="Hosts of training jobs: all traffic among themselves, HTTPS out",
            allow_all_outbound=False,
        )
        # S3 has no address of its own behind a gateway endpoint. In subnets without another route this leads there only.
        group.add_egress_rule(
            ec2.Peer.any_ipv4(), ec2.Port.tcp(443), "S3, and other AWS services where there is a route"
        )
        return group

    def _allow_internally(self, id: str, port: ec2.Port, description: str) -> None:
        """Let members of the security group reach each other, by rules that name the group itself, in and out.

        CDK drops the half of it that leads out as covered by "all IPv4" where a group lets everything out, and EFA, whose packets
        have no IP address, asks for it ("Get started with EFA and MPI for ML workloads", an EFA-enabled security group). A group
        that was imported with ``mutable=False`` stays as it is.
        """
        for number, group in enumerate(self.security_groups):
            self._allow_in(group, f"{id}Egress{number or ''}", port, description)

    def _allow_in(self, group: ec2.ISecurityGroup, egress_id: str, port: ec2.Port, description: str) -> None:
        rules = len(group.node.children)
        group.connections.allow_internally(port, description)
        if len(group.node.children) == rules + 1:
            out = port.to_rule_json()
            ec2.CfnSecurityGroupEgress(
                self,
                egress_id,
                group_id=group.security_group_id,
                destination_security_group_id=group.security_group_id,
                description=description,
                ip_protocol=out["ipProtocol"],
                from_port=out.get("fromPort"),
                to_port=out.get("toPort"),
            )


def _given_groups(
    group: ec2.ISecurityGroup | None, groups: Sequence[ec2.ISecurityGroup] | None
) -> tuple[ec2.ISecurityGroup, ...]:
    if groups is None:
        return () if group is None else (group,)
    if group is not None:
        raise ValueError("security_group must be left out beside security_groups, like security_group=None, got both")
    if not 1 <= len(groups) <= _MOST_GROUPS:
        raise ValueError(
            f"security_groups must list 1 to {_MOST_GROUPS} security groups, not their ids, "
            f"like [ec2.SecurityGroup(self, 'Group', vpc=vpc)], got {groups!r}"
        )
    return tuple(groups)


def _selection(
    vpc: ec2.IVpc | None, subnets: ec2.SubnetSelection | None, zones: Sequence[str] | None
) -> dict[str, Any]:
    """What selects subnets: all of a new VPC's are meant."""
    selection = {} if subnets is None else dict(subnets._values)
    if vpc is not None and zones:
        selection["availability_zones"] = list(zones)
    return selection or {"subnet_filters": None}


def _check_zones(max_azs: int | None, zones: Sequence[str] | None) -> None:
    if max_azs is not None and zones is not None:
        raise ValueError(
            "max_azs must be left out where availability_zones names the zones, like max_azs=None, "
            f"got {max_azs!r} beside {list(zones)}"
        )
    if max_azs is not None and not 1 <= max_azs <= _MOST_ZONES:
        raise ValueError(f"max_azs must be a whole number from 1 to {_MOST_ZONES}, like 1, got {max_azs!r}")
    if zones is None or is_unresolved(zones):
        return
    if not zones or not all(
        is_pending_zone(zone) or re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d[a-z]", zone) for zone in zones
    ):
        raise ValueError(f"availability_zones must list names of zones, like ['us-east-1a'], got {zones!r}")
