"""Checks of a job's file systems of EFS that this app defines: where they are, and whom their policies let mount them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from aws_cdk import Stack

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.lazy import check_at_synthesis

if TYPE_CHECKING:
    from cdk_sagemaker_training.data.file_systems import EfsChannel
    from cdk_sagemaker_training.resources.networking.network import TrainingNetwork


def check_zone(name: str, channel: EfsChannel, network: TrainingNetwork) -> None:
    """Check that hosts find a One Zone file system by its id alone, which is all that a request can say of it.

    From another zone a mount names the file system's zone, or its mount target (EFS's guide, "Mounting One Zone file systems").
    """
    zone = getattr(channel.file_system.node.default_child, "availability_zone_name", None)
    if zone is None:
        return
    stack = Stack.of(network)
    own_zone, zones = stack.resolve(zone), stack.resolve(network.subnets.availability_zones)
    if any(isinstance(other, type(own_zone)) and other != own_zone for other in zones):
        rule = f"be in the zone of the One Zone file system of channels[{name!r}] alone"
        known = repr(own_zone) if isinstance(own_zone, str) else "vpc.availability_zones[0]"
        example = f"TrainingNetwork(self, 'Network', vpc=vpc, availability_zones=[{known}])"
        raise must("network", rule, example, f"one in {zones}")


def check_policy(name: str, channel: EfsChannel) -> None:
    """Have CDK check at synthesis, when it is complete, that a file system's policy lets a job mount it."""
    if hasattr(channel.file_system.node.default_child, "file_system_policy"):
        check_at_synthesis(channel.file_system, functools.partial(_denied, name, channel))


def _denied(name: str, channel: EfsChannel) -> list[ValueError]:
    """Without a policy each client that reaches a mount target may do all (EFS's guide, "Using IAM to control access").

    With CDK's feature flag ``@aws-cdk/aws-efs:denyAnonymousAccess`` there is a policy, without ``ClientMount``.
    """
    file_system: Any = channel.file_system
    policy = Stack.of(file_system).resolve(file_system.node.default_child.file_system_policy)
    if policy is None:
        return []
    actions = ["ClientMount"] if channel.read_only else ["ClientMount", "ClientWrite"]
    return [
        must(
            f"channels[{name!r}]",
            f"be on a file system whose policy allows elasticfilesystem:{action} to who mounts it for a job",
            "efs.FileSystem(..., allow_anonymous_access=True)",
            file_system.node.path,
        )
        for action in actions
        if not any(_allows(statement, f"elasticfilesystem:{action}") for statement in policy["Statement"])
    ]


def _allows(statement: Mapping[str, Any], action: str) -> bool:
    """Whether a statement allows an action, to whomever: AWS does not document as whom SageMaker mounts (docs/permissions.md)."""
    if statement["Effect"] != "Allow":
        return False
    actions = statement.get("Action", "*")
    named = [actions] if isinstance(actions, str) else actions
    return any(fnmatchcase(action.lower(), str(pattern).lower()) for pattern in named)
