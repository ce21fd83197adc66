"""Whether hosts in a VPC reach a network interface in it: what their security groups say of one TCP port."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from moto.ec2.exceptions import InvalidSubnetIdError


@dataclass(frozen=True)
class Door:
    """Where a network interface is; without ``groups`` it has the default group of its VPC."""

    subnet: str
    groups: tuple[str, ...] = ()


def why_not(ec2: Any, hosts: Sequence[Door], doors: Sequence[Door], port: int) -> str:
    """Why hosts of a job, which may be in any of their subnets, do not reach any of the doors; "" where they do.

    ``ec2`` is moto's. Routes and network ACLs are not looked at: within a VPC both let through unless changed.
    """
    if not doors:
        return "the file system has no mount target"
    reasons = [[_why_not(ec2, host, door, port) for door in doors] for host in hosts]
    return next((found[0] for found in reasons if all(found)), "")


def _why_not(ec2: Any, host: Door, door: Door, port: int) -> str:
    try:
        near, far = ec2.get_subnet(host.subnet), ec2.get_subnet(door.subnet)
    except InvalidSubnetIdError as error:
        return str(error.message)
    if near.vpc_id != far.vpc_id:
        return f"{host.subnet} of the job is in {near.vpc_id}, and {door.subnet} of the file system in {far.vpc_id}"
    of_host, of_door = _groups(ec2, host, near.vpc_id), _groups(ec2, door, far.vpc_id)
    if not _allowed((rule for group in of_host for rule in group.egress_rules), port, of_door, far.cidr_block):
        return f"no rule of {_names(of_host)} of the job lets out to port {port} of {_names(of_door)}"
    if not _allowed((rule for group in of_door for rule in group.ingress_rules), port, of_host, near.cidr_block):
        return f"no rule of {_names(of_door)} of the file system lets in {_names(of_host)} at port {port}"
    return ""


def _groups(ec2: Any, door: Door, vpc: str) -> list[Any]:
    if not door.groups:
        return [ec2.get_default_security_group(vpc)]
    found = [ec2.get_security_group_from_id(id) for id in door.groups]
    return [group for group in found if group is not None]


def _names(groups: Sequence[Any]) -> str:
    return ", ".join(group.id for group in groups) or "no security group"


def _allowed(rules: Iterable[Any], port: int, groups: Sequence[Any], cidr: str) -> bool:
    ids = {group.id for group in groups}
    return any(
        _about(rule, port) and (rule.source_group.get("GroupId") in ids or _holds(rule.ip_range.get("CidrIp"), cidr))
        for rule in rules
    )


def _about(rule: Any, port: int) -> bool:
    return bool(rule.ip_protocol == "-1" or (rule.ip_protocol == "tcp" and rule.from_port <= port <= rule.to_port))


def _holds(wide: str | None, cidr: str) -> bool:
    return wide is not None and ipaddress.IPv4Network(cidr).subnet_of(ipaddress.IPv4Network(wide, strict=False))
