"""Checks that the IP addresses of subnets suffice for a job's machines."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.facts.instance_facts import instance_facts
from cdk_sagemaker_training.jobs.instance_group import machines_of

if TYPE_CHECKING:
    from aws_cdk import aws_ec2 as ec2

# AWS's page "Give SageMaker Training Jobs Access to Resources in Your Amazon VPC": at least two addresses for each instance,
# and five where the job uses EFA.
_ADDRESSES = 2
_ADDRESSES_WITH_EFA = 5
_RESERVED = 5  # the first four of a subnet and the last, "Subnet CIDR blocks"
_WIDEST, _NARROWEST = 16, 28  # netmasks of a VPC, "VPC CIDR blocks", and of a subnet
_MORE_BITS = 3  # eight subnets; no region has more than six zones


def check_cidr(cidr: str | None) -> None:
    """Check that a CIDR is a valid IPv4 block of a VPC; None and tokens pass."""
    if cidr is None or is_unresolved(cidr):
        return
    try:
        prefix = ipaddress.IPv4Network(cidr).prefixlen
    except ValueError:
        prefix = 0
    if not _WIDEST <= prefix <= _NARROWEST or "/" not in cidr:
        rule = f"be a block of IPv4 addresses with a netmask from /{_WIDEST} to /{_NARROWEST}"
        raise must("cidr", rule, "'10.0.0.0/16'", repr(cidr))


def subnets_of_all_zones(cidr: str | None) -> tuple[int, int | None]:
    """Return the maximum number of zones of a new VPC, and the netmask of its subnets.

    The netmask does not depend on the actual number of zones, so that existing subnets keep their addresses, and are not
    replaced, when a region gets another zone or a stack sets its region.

    Args:
        cidr: The VPC's block; None for the default /16. May be a token.

    Returns:
        Number of zones, and the length of the subnets' prefix, None for a token.
    """
    if is_unresolved(cidr):
        return 1 << _MORE_BITS, None
    prefix = ipaddress.IPv4Network(cidr).prefixlen if cidr else _WIDEST
    mask = min(prefix + _MORE_BITS, _NARROWEST)
    return 1 << (mask - prefix), mask


def known_cidrs(selected: ec2.SelectedSubnets) -> list[str] | None:
    """Return the CIDRs of subnets, or None if one is not known at synthesis.

    Until the CLI has looked up a VPC, its subnets have CDK's placeholder ``1.2.3.4/5`` (aws-ec2/lib/vpc.ts,
    ``DUMMY_VPC_PROPS``), and the CLI looks up only after a synthesis without errors.
    """
    if selected.is_pending_lookup:
        return None
    cidrs = []
    for subnet in selected.subnets:
        try:
            cidr = subnet.ipv4_cidr_block
        except RuntimeError:  # raised by an imported subnet without a CIDR
            return None
        if is_unresolved(cidr) or "/" not in cidr:
            return None
        cidrs.append(cidr)
    return cidrs


def check_addresses(resource_config: Mapping[str, Any], cidrs: Sequence[str] | None) -> None:
    """Check that the largest subnet has addresses for all machines of a job.

    SageMaker creates the network interfaces of a job in one of its subnets.

    Args:
        resource_config: The request's ResourceConfig.
        cidrs: CIDRs of the subnets; None if unknown, which skips the check.
    """
    groups = machines_of(resource_config)
    if not cidrs or any(is_unresolved(group["InstanceCount"]) for group in groups):
        return
    if "InstancePreferences" in resource_config:
        groups = [max(groups, key=_needed_by)]
    needed = sum(map(_needed_by, groups))
    largest = max(cidrs, key=lambda cidr: ipaddress.IPv4Network(cidr).num_addresses)
    free = ipaddress.IPv4Network(largest).num_addresses - _RESERVED
    if needed > free:
        enough = 32 - (needed + _RESERVED - 1).bit_length()
        machines = sum(group["InstanceCount"] for group in groups)
        rule = f"have a subnet with addresses for all machines, {_ADDRESSES} each, {_ADDRESSES_WITH_EFA} with EFA"
        raise must("network", rule, f"a /{enough} for {needed}", f"{free} in {largest} for {machines} machines")


def _needed_by(group: Mapping[str, Any]) -> int:
    return int(_needed(group["InstanceType"]) * group["InstanceCount"])


def _needed(instance_type: str) -> int:
    facts = instance_facts(instance_type)
    return _ADDRESSES_WITH_EFA if facts is not None and facts.efa_interfaces else _ADDRESSES
