"""Security groups and their rules, where moto lacks what AWS has."""

from __future__ import annotations

import functools
from typing import Any

from moto.ec2.models import ec2_backends
from moto.ec2.models.security_groups import SecurityGroup, SecurityGroupBackend

from .emulated import Emulated, Properties
from .patches import CREATE, patch

_moto_creates = SecurityGroupBackend.create_security_group


def install() -> None:
    """Give moto's security groups what they lack."""
    patch(SecurityGroup, "create_from_cloudformation_json", _create_security_group, CREATE)
    patch(
        SecurityGroupBackend,
        "create_security_group",
        _create,
        "self, name, description, vpc_id, tags, force, is_default",
    )


@functools.wraps(_moto_creates)
def _create(backend: Any, *args: Any, **details: Any) -> SecurityGroup:
    """The default group of a VPC lets its own members in (VPC guide, "Default security groups for your VPCs")."""
    group = _moto_creates(backend, *args, **details)
    if group.is_default:
        backend.authorize_security_group_ingress(
            **_rule(group.id, {"IpProtocol": "-1", "SourceSecurityGroupId": group.id})
        )
    return group


class _SecurityGroupRule(Emulated):
    """One rule of a security group; moto lacks those that let out, and cannot take back those that let in."""

    egress: bool

    def create(self) -> None:
        ec2 = ec2_backends[self.account_id][self.region_name]
        authorize = ec2.authorize_security_group_egress if self.egress else ec2.authorize_security_group_ingress
        rules, _ = authorize(**_rule(self.properties["GroupId"], self.properties))
        self.physical_resource_id = rules[0].id

    def delete(self, account_id: str, region_name: str) -> None:
        group = ec2_backends[account_id][region_name].get_security_group_from_id(self.properties["GroupId"])
        if group is not None:
            rules = group.egress_rules if self.egress else group.ingress_rules
            rules[:] = [rule for rule in rules if rule.id != self.physical_resource_id]


class SecurityGroupEgress(_SecurityGroupRule):
    egress = True


class SecurityGroupIngress(_SecurityGroupRule):
    egress = False


def _rule(group_id: str, properties: Properties) -> dict[str, Any]:
    """A rule of a security group in the words of moto's backend."""
    description = {"Description": properties["Description"]} if "Description" in properties else {}
    ranges: list[dict[str, Any]] = []
    if "CidrIp" in properties:
        ranges.append({"CidrIp": properties["CidrIp"], **description})
    if "CidrIpv6" in properties:
        ranges.append({"CidrIpv6": properties["CidrIpv6"], **description})
    # moto takes no rule without ports but of all protocols; EC2 shows -1 where a protocol has none.
    no_port = None if str(properties["IpProtocol"]) == "-1" else -1
    peer = properties.get("SourceSecurityGroupId") or properties.get("DestinationSecurityGroupId")
    return {
        "group_name_or_id": group_id,
        "ip_protocol": str(properties["IpProtocol"]),
        "from_port": properties.get("FromPort", no_port),
        "to_port": properties.get("ToPort", no_port),
        "ip_ranges": ranges,
        "source_groups": [{"GroupId": peer, **description}] if peer else [],
    }


def _create_security_group(
    cls: Any, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **_: Any
) -> SecurityGroup:
    """moto wants ports in every rule, and leaves out SecurityGroupEgress; on AWS it takes the place of "all traffic"."""
    properties = cloudformation_json["Properties"]
    ec2 = ec2_backends[account_id][region_name]
    group = ec2.create_security_group(
        name=resource_name, description=properties["GroupDescription"], vpc_id=properties.get("VpcId")
    )
    for tag in properties.get("Tags", []):
        group.add_tag(tag["Key"], tag["Value"])
    for rule in properties.get("SecurityGroupIngress", []):
        ec2.authorize_security_group_ingress(**_rule(group.id, rule))
    if "SecurityGroupEgress" in properties:
        group.egress_rules.clear()
        for rule in properties["SecurityGroupEgress"]:
            ec2.authorize_security_group_egress(**_rule(group.id, rule))
    return group


NATIVE: dict[str, Any] = {
    "AWS::EC2::SecurityGroupEgress": SecurityGroupEgress,
    "AWS::EC2::SecurityGroupIngress": SecurityGroupIngress,
}
