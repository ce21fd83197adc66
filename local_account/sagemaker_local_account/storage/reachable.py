"""Whether security groups allow hosts to reach a network interface in their VPC on a TCP port."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from moto.ec2.exceptions import InvalidSubnetIdError


@dataclass(frozen=True)
class NetworkInterface:
    """A network interface: its subnet and security groups; without ``groups`` it has the default group of its VPC."""

    subnet: str
    groups: tuple[str, ...] = ()


def blocked_reason(
    ec2: Any, hosts: Sequence[NetworkInterface], interfaces: Sequence[NetworkInterface], port: int
) -> str:
    """Returns the reason why hosts cannot reach any of the interfaces, or "" where they can.

    Routes and network ACLs are not evaluated: within a VPC both allow traffic by default.

    Args:
        ec2: moto's backend.
        hosts: the possible network interfaces of each host: one per subnet.
        interfaces: the interfaces of the file system.
        port: the TCP port.
    """
    if not interfaces:
        return "the file system has no mount target"
    reasons = [[_blocked_by(ec2, host, interface, port) for interface in interfaces] for host in hosts]
    return next((found[0] for found in reasons if all(found)), "")


def _blocked_by(ec2: Any, host: NetworkInterface, interface: NetworkInterface, port: int) -> str:
    try:
        near, far = ec2.get_subnet(host.subnet), ec2.get_subnet(interface.subnet)
    except InvalidSubnetIdError as error:
        return str(error.message)
    if near.vpc_id != far.vpc_id:
        return (
            f"{host.subnet} of the job is in {near.vpc_id}, and {interface.subnet} of the file system in {far.vpc_id}"
        )
    of_host, of_interface = _groups(ec2, host, near.vpc_id), _groups(ec2, interface, far.vpc_id)
    if not _allowed((rule for group in of_host for rule in group.egress_rules), port, of_interface, far.cidr_block):
        return f"no egress rule of {_names(of_host)} of the job allows port {port} of {_names(of_interface)}"
    if not _allowed((rule for group in of_interface for rule in group.ingress_rules), port, of_host, near.cidr_block):
        return f"no ingress rule of {_names(of_interface)} of the file system allows {_names(of_host)} on port {port}"
    return ""


def _groups(ec2: Any, interface: NetworkInterface, vpc: str) -> list[Any]:
    if not interface.groups:
        return [ec2.get_default_security_group(vpc)]
    found = [ec2.get_security_group_from_id(id) for id in interface.groups]
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
