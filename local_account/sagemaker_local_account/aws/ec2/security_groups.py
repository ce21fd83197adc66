"""Security groups and their rules in CloudFormation, which moto supports incompletely."""

from __future__ import annotations

import copy
import functools
from typing import Any

from moto.ec2.models import ec2_backends
from moto.ec2.models.security_groups import SecurityGroup, SecurityGroupBackend

from sagemaker_local_account.aws.ec2.tags import set_tags
from sagemaker_local_account.aws.resource_base import Properties, ResourceBase, replace_unless
from sagemaker_local_account.core.patches import CREATE, UPDATE, patch

_moto_creates = SecurityGroupBackend.create_security_group


def install() -> None:
    """Patches moto's security groups."""
    patch(SecurityGroup, "create_from_cloudformation_json", _create_security_group, CREATE)
    patch(SecurityGroup, "update_from_cloudformation_json", _update_security_group, UPDATE)
    patch(
        SecurityGroupBackend,
        "create_security_group",
        _create,
        "self, name, description, vpc_id, tags, force, is_default",
    )


@functools.wraps(_moto_creates)
def _create(backend: Any, *args: Any, **details: Any) -> SecurityGroup:
    """Adds the ingress rule of default security groups (VPC guide, "Default security groups for your VPCs")."""
    group = _moto_creates(backend, *args, **details)
    if group.is_default:
        backend.authorize_security_group_ingress(
            **_rule(group.id, {"IpProtocol": "-1", "SourceSecurityGroupId": group.id})
        )
    return group


class _SecurityGroupRule(ResourceBase):
    """A rule of a security group; moto lacks egress rules, and cannot delete ingress rules."""

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
    """AWS::EC2::SecurityGroupEgress."""

    egress = True


class SecurityGroupIngress(_SecurityGroupRule):
    """AWS::EC2::SecurityGroupIngress."""

    egress = False


def _rule(group_id: str, properties: Properties) -> dict[str, Any]:
    """A rule as parameters of moto's backend."""
    description = {"Description": properties["Description"]} if "Description" in properties else {}
    ranges: list[dict[str, Any]] = []
    if "CidrIp" in properties:
        ranges.append({"CidrIp": properties["CidrIp"], **description})
    if "CidrIpv6" in properties:
        ranges.append({"CidrIpv6": properties["CidrIpv6"], **description})
    # moto requires ports except for all protocols; EC2 returns -1 for protocols without ports.
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
    """Creates a security group with SecurityGroupEgress, which moto ignores, and with rules without ports."""
    properties = cloudformation_json["Properties"]
    ec2 = ec2_backends[account_id][region_name]
    group = ec2.create_security_group(
        name=resource_name, description=properties["GroupDescription"], vpc_id=properties.get("VpcId")
    )
    if "SecurityGroupEgress" in properties:
        group.egress_rules.clear()
    group.account_default = {rule.id for rule in group.egress_rules}
    _settle(group, properties, ec2)
    return group


def _update_security_group(
    cls: Any,
    original_resource: Any,
    new_resource_name: str,
    cloudformation_json: Any,
    account_id: str,
    region_name: str,
) -> SecurityGroup:
    """Replaces the rules that the group has itself, and none that are resources of their own.

    The rule for all egress, which a new group without rules for egress has, does not come back (template reference).
    """
    group, properties = original_resource, cloudformation_json["Properties"]
    replace_unless(properties, group.account_properties, {"SecurityGroupEgress", "SecurityGroupIngress", "Tags"})
    gone = group.account_rules | (group.account_default if "SecurityGroupEgress" in properties else set())
    for rules in (group.ingress_rules, group.egress_rules):
        rules[:] = [rule for rule in rules if rule.id not in gone]
    _settle(group, properties, ec2_backends[account_id][region_name])
    return group


def _settle(group: Any, properties: Properties, ec2: Any) -> None:
    """Gives a group its own rules and tags."""
    made = [
        authorize(**_rule(group.id, rule))[0]
        for name, authorize in (
            ("SecurityGroupIngress", ec2.authorize_security_group_ingress),
            ("SecurityGroupEgress", ec2.authorize_security_group_egress),
        )
        for rule in properties.get(name, [])
    ]
    group.account_rules = {rule.id for rules in made for rule in rules}
    group.account_properties = copy.deepcopy(properties)
    set_tags(ec2, group.id, properties)
