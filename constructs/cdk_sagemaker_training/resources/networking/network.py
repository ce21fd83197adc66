"""``TrainingNetwork``: private subnets, a route to S3, and a security group whose members can reach each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import jsii
from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.nag import Reasons, acknowledge, compliance_reasons
from cdk_sagemaker_training.props.prop import Known, Prop
from cdk_sagemaker_training.props.prop_types import checked
from cdk_sagemaker_training.resources.networking.addresses import check_addresses, check_cidr, known_cidrs
from cdk_sagemaker_training.resources.networking.endpoints import add_interface_endpoint, endpoint_id
from cdk_sagemaker_training.resources.networking.private_vpc import check_zones, private_vpc
from cdk_sagemaker_training.resources.owners import check_owner, owner_of

_REASONS: Reasons = compliance_reasons(
    {
        "CloudWatchLogGroupEncrypted": "CloudWatch encrypts flow logs with a key of its own",
        "EC2RestrictedCommonPorts": "the source of the rule is the group itself: the hosts of jobs, and nothing else",
        "IAMNoInlinePolicy": "the policy is that of one role, with which it is deleted, and can be attached to no other",
        "VPCDefaultSecurityGroupClosed": "nothing here is in the default group; emptying it needs a function in the account",
    }
)
_MOST_GROUPS = 5  # VpcConfig.SecurityGroupIds of the service model


_NETWORK = Known("deployment", "since the network is made with it")
_SUBNETS = Known("synth", "since subnets and endpoints are made by it")
_ZONES = Prop(known=_NETWORK, example="['us-east-1a']")
_OWNER = Prop(known=_NETWORK, example="'123456789012'")


@jsii.implements(ec2.IConnectable)
class TrainingNetwork(Construct):
    """A network for training jobs: the hosts of a job can reach each other and S3, and nothing else can reach them.

    By default this is a new VPC with a private subnet in each availability zone, without internet access, and a gateway endpoint
    for S3; subnets and gateway endpoint are free of charge. All jobs with the same network share its security group, so jobs
    that must not reach each other need separate networks.

    Attributes:
        vpc: The VPC.
        subnets: The subnets of the jobs' hosts.
        security_groups: The security groups of the jobs' hosts.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        vpc: ec2.IVpc | None = None,
        vpc_subnets: ec2.SubnetSelection | None = None,
        security_groups: Sequence[ec2.ISecurityGroup] | None = None,
        max_azs: Annotated[int | None, Prop(known=_SUBNETS, example="1")] = None,
        availability_zones: Annotated[Sequence[str] | None, _ZONES] = None,
        owner_account: Annotated[str | None, _OWNER] = None,
        cidr: Annotated[str | None, Prop(known=_NETWORK, example="'10.1.0.0/16'")] = None,
        endpoints: Annotated[Sequence[str], Prop(known=_SUBNETS, example="['sts', 'logs']")] = (),
        flow_logs: bool | None = None,
    ) -> None:
        """Create a network in a new VPC, or in an existing one.

        Args:
            scope: The parent construct.
            id: The construct id.
            vpc: An existing VPC in place of a new one.
            vpc_subnets: Selects among the subnets of ``vpc``; the private ones by default. They need a route to S3.
            security_groups: Existing security groups in place of a new one, 1 to 5, all of which each host has. The rules that a
                job's hosts need are added to them, except to one that was imported with ``mutable=False``.
            max_azs: Maximum number of availability zones of a new VPC, 1 to 6; by default all. SageMaker runs a job in one zone
                that has its instance type, and types with accelerators are in few (service model, VpcConfig.Subnets, "Supported
                Instance Types and Availability Zones"), so more zones find capacity more often. CDK looks up the number of
                zones; a stack without account and region has two. For ``LustreFileSystem`` it must be 1.
            availability_zones: Names of the zones to use, like ``["us-east-1a"]``; by default all. Not with ``max_azs``.
            owner_account: Account that owns a ``vpc`` shared by AWS RAM, for the subnets' ARNs in the job's role. Known for a
                VPC that was looked up; for one that was imported by its attributes the ARNs match any account by default.
            cidr: IPv4 block of a new VPC, from /16 to /28; 10.0.0.0/16 by default. If all zones are used, each subnet gets an
                eighth of it.
            endpoints: Interface endpoints, by their services' names like ``["sts", "logs"]``; see ``add_endpoint``. SageMaker
                itself needs none of them.
            flow_logs: Whether flow logs of a new VPC are written to CloudWatch, which charges by size, and kept for three
                months; True by default.

        Raises:
            ValueError: A prop is invalid, or does not apply to the kind of VPC.
        """
        super().__init__(scope, id)
        check_zones(max_azs, availability_zones, Stack.of(self).region)
        check_cidr(cidr)
        check_owner(owner_account, new=vpc is None)
        new = {"max_azs": max_azs, "cidr": cidr, "flow_logs": flow_logs}
        for name, value in new.items():
            if vpc is not None and value is not None:
                raise must(name, "be left out with an existing vpc", f"{name}=None", repr(value))
        self._is_new = vpc is None
        self.vpc: ec2.IVpc = vpc or private_vpc(
            self, max_azs=max_azs, zones=availability_zones, cidr=cidr, flow_logs=flow_logs is not False
        )
        self.subnets: ec2.SelectedSubnets = self.vpc.select_subnets(**_selection(vpc, vpc_subnets, availability_zones))
        if any(subnet_id.startswith("#{") for subnet_id in self.subnets.subnet_ids):
            example = "ec2.Vpc.from_vpc_attributes(..., private_subnet_ids=[Fn.select(0, parameter.value_as_list)])"
            rule = "have subnets whose number is known at synth"
            raise must("vpc", rule, example, "a list of subnets that is a token")
        if self.subnets.is_pending_lookup and not self.subnets.subnets:
            # CDK's placeholder of a VPC has public and private subnets in two zones, none of which may match the selection.
            self.subnets = self.vpc.select_subnets()
        self._owner_account = Stack.of(self).account if vpc is None else owner_account or owner_of(vpc, Stack.of(self))
        if security_groups is not None and not 1 <= len(security_groups) <= _MOST_GROUPS:
            rule = f"list 1 to {_MOST_GROUPS} security groups, not their ids"
            raise must("security_groups", rule, "[ec2.SecurityGroup(self, 'Group', vpc=vpc)]", repr(security_groups))
        self.security_groups: tuple[ec2.ISecurityGroup, ...] = tuple(security_groups or (self._security_group(),))
        self._allow_internally("Everything", ec2.Port.all_traffic(), "hosts of a job reach each other")
        acknowledge(self, _REASONS)
        for service in endpoints:
            self.add_endpoint(service)

    @property
    @jsii.member(jsii_name="connections")
    def connections(self) -> ec2.Connections:
        """Network connections of the jobs' hosts."""
        if len(self.security_groups) == 1:
            return self.security_group.connections
        return ec2.Connections(security_groups=list(self.security_groups))

    @property
    def security_group(self) -> ec2.ISecurityGroup:
        """The first security group of the jobs' hosts."""
        return self.security_groups[0]

    @property
    def has_egress(self) -> bool:
        """Whether a subnet of the hosts has a route to the internet: the CDK's ``PRIVATE_WITH_EGRESS``.

        A host in a public subnet has no public address, and so no such route (guide, "Give SageMaker AI Training Jobs Access to
        Resources in Your Amazon VPC").
        """
        with_egress = {subnet.subnet_id for subnet in self.vpc.private_subnets}
        return any(id in with_egress for id in self.subnets.subnet_ids)

    def lacks_endpoint(self, service: str) -> bool:
        """Return whether hosts certainly cannot reach a service: the VPC is new, and has no endpoint of it.

        Args:
            service: The service's name, as of ``add_endpoint``.
        """
        return self._is_new and self.node.try_find_child(endpoint_id(service)) is None

    @staticmethod
    @checked
    def from_lookup(
        scope: Construct,
        id: str,
        *,
        vpc_subnets: ec2.SubnetSelection | None = None,
        security_groups: Sequence[ec2.ISecurityGroup] | None = None,
        availability_zones: Annotated[Sequence[str] | None, _ZONES] = None,
        **vpc: Any,
    ) -> TrainingNetwork:
        """Create a network in an existing VPC that the CDK CLI looks up; the stack must set its account and region.

        Args:
            scope: The parent construct.
            id: The construct id.
            vpc_subnets: Selects among the VPC's subnets; the private ones by default. They need a route to S3.
            security_groups: Existing security groups in place of a new one, 1 to 5, all of which each host has.
            availability_zones: Names of the zones to use; by default all.
            **vpc: Arguments of ``ec2.Vpc.from_lookup``, like ``vpc_name="shared"`` or ``tags={"team": "ml"}``.

        Raises:
            ValueError: A prop is invalid.
        """
        found = ec2.Vpc.from_lookup(scope, f"{id}Vpc", **vpc)
        return TrainingNetwork(
            scope,
            id,
            vpc=found,
            vpc_subnets=vpc_subnets,
            security_groups=security_groups,
            availability_zones=availability_zones,
            owner_account=vpc.get("owner_account_id"),
        )

    def vpc_config(self) -> Mapping[str, Any]:
        """Return the request's VpcConfig."""
        return {
            "SecurityGroupIds": [group.security_group_id for group in self.security_groups],
            "Subnets": self.subnets.subnet_ids,
        }

    def subnet_arns(self) -> list[str]:
        """Return the ARNs of the subnets, with the account that owns them."""
        return [
            Stack.of(self).format_arn(
                service="ec2", resource="subnet", resource_name=subnet_id, account=self._owner_account
            )
            for subnet_id in self.subnets.subnet_ids
        ]

    def check_addresses(self, resource_config: Mapping[str, Any]) -> None:
        """Check that the largest subnet has addresses for all machines of a job, if the CIDRs are known.

        Args:
            resource_config: The request's ResourceConfig.

        Raises:
            ValueError: There are more machines than addresses for them.
        """
        check_addresses(resource_config, known_cidrs(self.subnets))

    def allow_encrypted_traffic(self) -> None:
        """Add the rules that AWS requires for ``inter_container_encryption=True``: UDP 500 and ESP, in and out.

        Encryption is off by default: AWS warns that it may increase training time, and so cost, most of all for algorithms that
        communicate much ("Protect Communications Between ML Compute Instances in a Distributed Training Job").
        """
        self._allow_internally("KeyExchange", ec2.Port.udp(500), "keys of the encryption between hosts")
        # `Port.esp()` has ports, which ESP does not have, so that CloudFormation's validator warns of them (W3687).
        esp = ec2.Port(protocol=ec2.Protocol.ESP, string_representation="ESP 50")
        self._allow_internally("Encrypted", esp, "encrypted traffic between hosts")

    def add_endpoint(self, service: str) -> ec2.InterfaceVpcEndpoint:
        """Add an interface endpoint, by which the job's script can call an AWS service without internet access.

        An endpoint costs about 0.01 USD an hour in each zone, whether a job runs or not, and 0.01 USD per GB (us-east-1). It
        is in at most two of the network's zones; hosts in other zones can reach it for another 0.01 USD per GB in each direction.

        Args:
            service: The service's name, like ``"sts"``: a key of ``PURPOSES`` of `networking/endpoints.py`, which has the
                purpose of each.

        Raises:
            ValueError: The service is unknown, or already has an endpoint.
        """
        return add_interface_endpoint(self, service, self.vpc, self.subnets, self.connections)

    def _security_group(self) -> ec2.SecurityGroup:
        group = ec2.SecurityGroup(
            self,
            "SecurityGroup",
            vpc=self.vpc,
            description="Hosts of training jobs: all traffic among themselves, HTTPS out",
            allow_all_outbound=False,
        )
        # S3 has no fixed address behind a gateway endpoint. In subnets without another route this reaches S3 only.
        group.add_egress_rule(
            ec2.Peer.any_ipv4(), ec2.Port.tcp(443), "S3, and other AWS services where there is a route"
        )
        return group

    def _allow_internally(self, id: str, port: ec2.Port, description: str) -> None:
        """Allow traffic between members of each security group, by rules that refer to the group itself, in and out.

        If a group allows all outbound traffic, CDK omits the outbound rule as covered by "all IPv4"; EFA, whose packets have no
        IP address, requires it ("Get started with EFA and MPI for ML workloads", an EFA-enabled security group). A group that
        was imported with ``mutable=False`` is not changed.
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


@checked
def network_of(
    scope: Construct,
    *,
    network: TrainingNetwork | None = None,
    vpc: ec2.IVpc | None = None,
    vpc_subnets: ec2.SubnetSelection | None = None,
    security_groups: Sequence[ec2.ISecurityGroup] | None = None,
) -> TrainingNetwork | None:
    """Return the network of a construct that takes ``network``, or CDK's three props of a VPC in its place.

    Args:
        scope: The construct, below which a new network has the id "Network".
        network: The prop ``network``.
        vpc: An existing VPC.
        vpc_subnets: Selects among its subnets; the private ones by default.
        security_groups: Existing security groups, 1 to 5; a new one by default.

    Returns:
        ``network``, or a new one in ``vpc``; None without both.

    Raises:
        ValueError: ``vpc`` is set beside ``network``, or one of the others without ``vpc``.
    """
    if vpc is not None and network is None:
        return TrainingNetwork(scope, "Network", vpc=vpc, vpc_subnets=vpc_subnets, security_groups=security_groups)
    rule = "without vpc" if network is None else "with network"
    for name, value in {"vpc": vpc, "vpc_subnets": vpc_subnets, "security_groups": security_groups}.items():
        if value is not None:
            raise must(name, f"be left out {rule}", f"{name}=None", _shown(value))
    return network


def _shown(value: Any) -> str:
    return repr(value.node.path if hasattr(value, "node") else value)


def _selection(
    vpc: ec2.IVpc | None, vpc_subnets: ec2.SubnetSelection | None, zones: Sequence[str] | None
) -> dict[str, Any]:
    """The selection of subnets; all subnets of a new VPC."""
    selection = {} if vpc_subnets is None else dict(vpc_subnets._values)
    if vpc is not None and zones:
        selection["availability_zones"] = list(zones)
    return selection or {"subnet_filters": None}
