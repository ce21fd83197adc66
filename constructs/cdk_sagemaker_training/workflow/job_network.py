"""The network of a TrainingTask's or a TrainingWorkflow's jobs, from the props of a VPC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from constructs import Construct

from cdk_sagemaker_training.request.props import TrainingProps

if TYPE_CHECKING:
    from aws_cdk import aws_ec2 as ec2


def in_vpc(
    scope: Construct,
    props: TrainingProps,
    vpc: ec2.IVpc | None,
    vpc_subnets: ec2.SubnetSelection | None,
    security_groups: Sequence[ec2.ISecurityGroup] | None,
) -> TrainingProps:
    """Return the props of a job with the network that CDK's three props of a VPC make; ``props`` where none of them is given."""
    if vpc is None and vpc_subnets is None and security_groups is None:
        return props
    # Here and not above: it imports aws_ec2, which takes long and which a job without a network does without.
    from cdk_sagemaker_training.resources.networking.network import network_of

    network = network_of(
        scope, network=props.get("network"), vpc=vpc, vpc_subnets=vpc_subnets, security_groups=security_groups
    )
    return {**props, "network": network}
