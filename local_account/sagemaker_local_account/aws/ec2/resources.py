"""EC2's resources in CloudFormation, without security groups: properties that moto drops, and deletions."""

from __future__ import annotations

import json
from typing import Any

from moto.cloudformation.exceptions import ValidationError
from moto.ec2.models import ec2_backends
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.models.elastic_ip_addresses import ElasticAddress
from moto.ec2.models.flow_logs import FlowLogs
from moto.ec2.models.internet_gateways import InternetGateway
from moto.ec2.models.nat_gateways import NatGateway
from moto.ec2.models.route_tables import Route, RouteTable
from moto.ec2.models.subnets import Subnet, SubnetRouteTableAssociation
from moto.ec2.models.vpcs import VPC, VPCEndPoint
from moto.ec2.models.vpn_gateway import VPCGatewayAttachment
from typing_extensions import override

from sagemaker_local_account.aws.ec2 import security_groups
from sagemaker_local_account.aws.ec2.tags import set_tags
from sagemaker_local_account.aws.property_backfill import Backfill
from sagemaker_local_account.aws.resource_base import Properties, ResourceBase, is_true
from sagemaker_local_account.aws.resource_types import ResourceType, ServiceResources, real
from sagemaker_local_account.core.patches import CREATE, patch


def install() -> None:
    """Patches moto's associations of route tables with subnets, and its security groups."""
    security_groups.install()
    patch(SubnetRouteTableAssociation, "create_from_cloudformation_json", _create_association, CREATE)


class RestrictDefaultSecurityGroup(ResourceBase):
    """CDK's `restrictDefaultSecurityGroup`: on AWS CDK's Lambda function removes the default security group's rules."""

    @override
    def create(self) -> None:
        group_id = self.properties["DefaultSecurityGroupId"]
        ec2 = ec2_backends[self.account_id][self.region_name]
        group = ec2.get_security_group_from_id(group_id)
        if group is None:
            raise ValidationError(message=f"there is no security group {group_id}")
        group.ingress_rules.clear()
        group.egress_rules.clear()


def _create_association(
    cls: Any, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **_: Any
) -> SubnetRouteTableAssociation:
    """Creates an association that DescribeRouteTables and DeleteRouteTable find, unlike moto's."""
    properties = cloudformation_json["Properties"]
    ec2 = ec2_backends[account_id][region_name]
    association = Association(properties["RouteTableId"], properties["SubnetId"])
    association.association_id = ec2.associate_route_table(
        route_table_id=properties["RouteTableId"], subnet_id=properties["SubnetId"]
    )
    return association


class Association(SubnetRouteTableAssociation):
    """A route table's association with a subnet, with its own id, as on AWS."""

    association_id: str

    @property
    def physical_resource_id(self) -> str:
        """The association's id."""
        return self.association_id


def _tags(resource: TaggedEC2Resource, properties: Properties, account_id: str, region_name: str) -> None:
    set_tags(ec2_backends[account_id][region_name], resource.physical_resource_id, properties)


def _vpc(vpc: VPC, properties: Properties, account_id: str, region_name: str) -> None:
    for name, attribute, default in (
        ("EnableDnsSupport", "enable_dns_support", True),
        ("EnableDnsHostnames", "enable_dns_hostnames", False),
    ):
        setattr(vpc, attribute, "true" if is_true(properties.get(name, default)) else "false")
    _tags(vpc, properties, account_id, region_name)


def _subnet(subnet: Subnet, properties: Properties, account_id: str, region_name: str) -> None:
    subnet.map_public_ip_on_launch = is_true(properties.get("MapPublicIpOnLaunch", False))
    _tags(subnet, properties, account_id, region_name)


def _endpoint(endpoint: VPCEndPoint, properties: Properties, account_id: str, region_name: str) -> None:
    """Sets the properties of an endpoint, which moto cannot update."""
    ec2, document = ec2_backends[account_id][region_name], properties.get("PolicyDocument", VPCEndPoint.DEFAULT_POLICY)
    endpoint.vpc_endpoint_type = endpoint.vpc_endpoint_type or "Gateway"  # the template reference's default
    endpoint.policy_document = document if isinstance(document, str) else json.dumps(document)
    endpoint.private_dns_enabled = properties.get("PrivateDnsEnabled", endpoint.private_dns_enabled)
    endpoint.security_group_ids = [*properties.get("SecurityGroupIds", endpoint.security_group_ids)]
    tables = properties.get("RouteTableIds", [])
    former = endpoint.route_table_ids or []  # None of an interface
    for table in set(tables) - set(former):
        ec2.create_route(
            table, None, gateway_id=endpoint.id, destination_prefix_list_id=endpoint.destination_prefix_list_id
        )
    for table in set(former) - set(tables):
        ec2.delete_route(table, endpoint.destination_prefix_list_id)
    endpoint.route_table_ids = [*tables]
    _tags(endpoint, properties, account_id, region_name)


def _delete_endpoint(endpoint: VPCEndPoint, account_id: str, region_name: str) -> None:
    ec2 = ec2_backends[account_id][region_name]
    ec2.delete_vpc_endpoints([endpoint.id])
    ec2.vpc_end_points.pop(endpoint.id, None)


def _delete_nat_gateway(gateway: NatGateway, account_id: str, region_name: str) -> None:
    ec2 = ec2_backends[account_id][region_name]
    ec2.delete_nat_gateway(gateway.id)
    for address in gateway.address_set:
        if "publicIp" in address:
            ec2.disassociate_address(address=address["publicIp"])
    ec2.delete_network_interface(gateway._eni.id)


def _delete_vpc(vpc: VPC, account_id: str, region_name: str) -> None:
    """Deletes a VPC with its default network ACL, which moto keeps."""
    ec2 = ec2_backends[account_id][region_name]
    ec2.delete_vpc(vpc.id)
    for acl in [acl for acl in ec2.network_acls.values() if acl.vpc_id == vpc.id]:
        del ec2.network_acls[acl.id]


_RULE = "CidrIp CidrIpv6 Description FromPort GroupId IpProtocol ToPort"

RESOURCES = ServiceResources(
    types={
        "AWS::EC2::EIP": real("stored; the address is not reachable", "Domain Tags"),
        "AWS::EC2::FlowLog": real(
            "stored; there is no traffic to log",
            "DeliverLogsPermissionArn LogDestination LogDestinationType LogFormat LogGroupName MaxAggregationInterval "
            "ResourceId ResourceType Tags TrafficType",
        ),
        "AWS::EC2::InternetGateway": real("stored; jobs can only reach the account", "Tags"),
        "AWS::EC2::NatGateway": real("stored; jobs can only reach the account", "AllocationId SubnetId Tags"),
        "AWS::EC2::Route": real(
            "stored; not applied to a job's network",
            "DestinationCidrBlock GatewayId InstanceId NatGatewayId NetworkInterfaceId RouteTableId VpcPeeringConnectionId",
        ),
        "AWS::EC2::RouteTable": real("stored; not applied to a job's network", "Tags VpcId"),
        "AWS::EC2::SecurityGroup": real(
            "stored; a job's VpcConfig must name an existing one; its rules apply to file systems, not to the job's network",
            "GroupDescription GroupName SecurityGroupEgress SecurityGroupIngress Tags VpcId",
        ),
        "AWS::EC2::SecurityGroupEgress": real(
            "stored; not applied to a job's network",
            f"{_RULE} DestinationSecurityGroupId",
            made_by=security_groups.SecurityGroupEgress,
        ),
        "AWS::EC2::SecurityGroupIngress": real(
            "stored; not applied to a job's network",
            f"{_RULE} SourceSecurityGroupId",
            made_by=security_groups.SecurityGroupIngress,
        ),
        "AWS::EC2::Subnet": real(
            "stored; a job's VpcConfig must name an existing one",
            "AvailabilityZone CidrBlock MapPublicIpOnLaunch Tags VpcId",
        ),
        "AWS::EC2::SubnetRouteTableAssociation": real(
            "stored; not applied to a job's network", "RouteTableId SubnetId"
        ),
        "AWS::EC2::VPC": real(
            "stored; a job's hosts have a separate network",
            "CidrBlock EnableDnsHostnames EnableDnsSupport InstanceTenancy Tags",
        ),
        "AWS::EC2::VPCEndpoint": real(
            "gateway and interface endpoints; stored, jobs reach the account without one",
            "PolicyDocument PrivateDnsEnabled RouteTableIds SecurityGroupIds ServiceName SubnetIds Tags VpcEndpointType VpcId",
        ),
        "AWS::EC2::VPCGatewayAttachment": real("stored; not applied to a job's network", "InternetGatewayId VpcId"),
        "Custom::VpcRestrictDefaultSG": ResourceType(
            "emulated", "removes the rules of a VPC's default security group", made_by=RestrictDefaultSecurityGroup
        ),
    },
    delete={
        ElasticAddress: lambda address, account, region: ec2_backends[account][region].release_address(
            allocation_id=address.allocation_id
        ),
        InternetGateway: lambda gateway, account, region: ec2_backends[account][region].delete_internet_gateway(
            gateway.id
        ),
        NatGateway: _delete_nat_gateway,
        VPC: _delete_vpc,
        Route: lambda route, account, region: route.route_table._routes.pop(route.id, None),
        RouteTable: lambda table, account, region: ec2_backends[account][region].delete_route_table(table.id),
        Association: lambda association, account, region: ec2_backends[account][region].disassociate_route_table(
            association.association_id
        ),
        VPCGatewayAttachment: lambda attachment, account, region: ec2_backends[account][region].detach_internet_gateway(
            attachment.gateway_id, attachment.vpc_id
        ),
        VPCEndPoint: _delete_endpoint,
        FlowLogs: lambda log, account, region: ec2_backends[account][region].delete_flow_logs([log.id]),
    },
    backfills={
        **dict.fromkeys(
            (ElasticAddress, FlowLogs, InternetGateway, NatGateway, RouteTable),
            Backfill(_tags, changeable=frozenset(["Tags"])),
        ),
        Subnet: Backfill(_subnet, changeable=frozenset(["MapPublicIpOnLaunch", "Tags"])),
        VPC: Backfill(_vpc, changeable=frozenset(["EnableDnsHostnames", "EnableDnsSupport", "Tags"])),
        VPCEndPoint: Backfill(
            _endpoint,
            changeable=frozenset(["PolicyDocument", "PrivateDnsEnabled", "RouteTableIds", "SecurityGroupIds", "Tags"]),
        ),
    },
    install=install,
)
