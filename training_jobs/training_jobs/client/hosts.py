"""The hosts of a job, by instance group."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# The variable in which SageMaker's training toolkit has a host's resourceconfig.json, and which it logs as it starts the script.
RESOURCE_CONFIG = "SM_RESOURCE_CONFIG="
_RESOURCE_CONFIG = re.compile(rf"{RESOURCE_CONFIG}({{.*}})")


@dataclass(frozen=True)
class Host:
    """One host of a job.

    Attributes:
        name: Such as ``"algo-1"``.
        group: The name of its instance group; None in a job without groups, and while it is unknown.
        instance_type: Such as ``"ml.g5.xlarge"``; empty while it is unknown.
    """

    name: str
    group: str | None
    instance_type: str


@dataclass(frozen=True)
class HostGroup:
    """The hosts of one instance group, or of a job without groups.

    Attributes:
        name: The group's name; None in a job without groups.
        instance_type: Such as ``"ml.g5.xlarge"``.
        count: How many hosts it has.
        hosts: Their names; empty while they are unknown.
    """

    name: str | None
    instance_type: str
    count: int
    hosts: tuple[str, ...]


def groups_in_log(lines: Iterable[str]) -> dict[str, str]:
    """Return the instance group of each host, as the log of any host has it; empty where none does.

    AWS numbers hosts in no order of groups: "You need to figure out from the logs which nodes are in which group" (guide,
    "Configure a training job with a heterogeneous cluster"). Containers with SageMaker's toolkit log their resourceconfig.json.

    Args:
        lines: Lines of a job's log.
    """
    for line in lines:
        found = _RESOURCE_CONFIG.search(line)
        if found is None:
            continue
        try:
            groups = json.loads(found.group(1))["instance_groups"]
            return {host: str(group["instance_group_name"]) for group in groups for host in group["hosts"]}
        except (ValueError, KeyError, TypeError):
            continue  # the script printed something else by that name
    return {}


def host_groups(description: Mapping[str, Any], groups: Mapping[str, str]) -> list[HostGroup]:
    """Return the instance groups of a job with their hosts.

    Args:
        description: The job, as from DescribeTrainingJob.
        groups: The group of each host, from ``groups_in_log``.
    """
    resources = description["ResourceConfig"]
    named = resources.get("InstanceGroups")
    if not named or len(named) == 1:
        one = named[0] if named else resources
        hosts = tuple(f"algo-{number}" for number in range(1, one.get("InstanceCount", 1) + 1))
        return [HostGroup(one.get("InstanceGroupName"), one.get("InstanceType", ""), len(hosts), hosts)]
    return [
        HostGroup(
            group["InstanceGroupName"],
            group["InstanceType"],
            group["InstanceCount"],
            tuple(host for host, name in groups.items() if name == group["InstanceGroupName"]),
        )
        for group in named
    ]


def hosts_of(description: Mapping[str, Any], groups: Mapping[str, str]) -> list[Host]:
    """Return the hosts of a job, in the order of their numbers.

    Args:
        description: The job, as from DescribeTrainingJob.
        groups: The group of each host, from ``groups_in_log``.
    """
    found = host_groups(description, groups)
    by_name = {host: (group.name, group.instance_type) for group in found for host in group.hosts}
    names = [f"algo-{number + 1}" for number in range(sum(group.count for group in found))]
    return [Host(name, *by_name.get(name, (None, ""))) for name in names]
