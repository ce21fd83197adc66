"""Interface endpoints: what a job's script reaches in a network without a way to the internet, and what for."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from cdk_sagemaker_training.unlisted import check_listed, is_unlisted, unlisted_warning

if TYPE_CHECKING:
    from aws_cdk import aws_ec2 as ec2
    from constructs import Construct

_ZONES = 2  # of an endpoint: one may be lost
# SageMaker itself pulls the image, writes logs and metrics, and copies data by the gateway to S3: each of these is only for what
# the container calls by itself ("Give SageMaker Training Jobs Access to Resources in Your Amazon VPC").
PURPOSES = MappingProxyType(
    {
        "ecr.api": "a script that asks ECR for images or a login",
        "ecr.dkr": "a script that pulls images, or an image of a private registry that ECR mirrors",
        "elasticfilesystem": "a script that asks EFS about file systems; mounting one takes no endpoint",
        "events": "a script that puts events on EventBridge",
        "fsx": "a script that asks FSx about file systems; mounting one takes no endpoint",
        "kms": "a script that encrypts or decrypts by itself; SageMaker and S3 use keys without it",
        "lambda": "the function that logs in to a private registry, or one that the script calls",
        "logs": "a script that writes to log groups of its own; SageMaker writes the job's log without it",
        "monitoring": "a script that puts metrics by itself; SageMaker's metric definitions work without it",
        "sagemaker.api": "a script that calls SageMaker: experiments, the model registry, MLflow's tracking servers",
        "sagemaker.runtime": "a script that calls an endpoint of SageMaker's",
        "secretsmanager": "a script that reads secrets, such as a token for a hub of models",
        "ssm": "remote debugging, or a script that reads parameters",
        "ssmmessages": "remote debugging: the session itself",
        "states": "a script that answers Step Functions",
        "sts": "a script that takes on another role, or asks who it is",
    }
)


def add_interface_endpoint(
    scope: Construct, service: str, vpc: ec2.IVpc, subnets: ec2.SelectedSubnets, hosts: ec2.Connections
) -> ec2.InterfaceVpcEndpoint:
    """An endpoint that the hosts of jobs reach by HTTPS, and nothing else does."""
    from aws_cdk import Validations
    from aws_cdk import aws_ec2 as ec2

    check_listed(
        "endpoint-services",
        service,
        service in PURPOSES,
        f"endpoints must be of {', '.join(map(repr, PURPOSES))}, like ['sts']",
    )
    if is_unlisted(service):
        Validations.of(scope).add_warning(*unlisted_warning(service))
    name = "".join(part.capitalize() for part in service.split("."))
    if scope.node.try_find_child(f"{name}Endpoint"):
        raise ValueError(f"endpoints must name each service once, like ['sts'], got {service!r} twice")
    group = ec2.SecurityGroup(
        scope,
        f"{name}EndpointSecurityGroup",
        vpc=vpc,
        description=f"Endpoint of {service}: HTTPS from hosts of training jobs",
        allow_all_outbound=False,
    )
    group.connections.allow_from(hosts, ec2.Port.tcp(443), "hosts of training jobs")
    return ec2.InterfaceVpcEndpoint(
        scope,
        f"{name}Endpoint",
        vpc=vpc,
        service=ec2.InterfaceVpcEndpointAwsService(service),
        subnets=ec2.SubnetSelection(subnets=_in_few_zones(subnets.subnets)),
        security_groups=[group],
        open=False,
    )


def _in_few_zones(subnets: Sequence[ec2.ISubnet]) -> list[ec2.ISubnet]:
    """A subnet in each of the first zones: an endpoint is billed by the zone, and hosts in the other zones reach it too."""
    first: dict[str, ec2.ISubnet] = {}
    for subnet in subnets:
        first.setdefault(subnet.availability_zone, subnet)
    return list(first.values())[:_ZONES]
