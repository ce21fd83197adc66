"""Interface endpoints, by which a job's script calls AWS services in a network without internet access."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.unlisted import check_listed, is_unlisted, unlisted_warning

if TYPE_CHECKING:
    from aws_cdk import aws_ec2 as ec2
    from constructs import Construct

_ZONES = 2  # of an endpoint, so that it survives the failure of one
# SageMaker itself pulls the image, writes logs and metrics, and copies data through the gateway endpoint of S3: an interface
# endpoint is only needed for calls of the container ("Give SageMaker Training Jobs Access to Resources in Your Amazon VPC").
PURPOSES = MappingProxyType(
    {
        "ecr.api": "a script that calls ECR's API for images or a login",
        "ecr.dkr": "a script that pulls images, or an image of a private registry that ECR mirrors",
        "elasticfilesystem": "a script that calls EFS's API; mounting a file system needs no endpoint",
        "events": "a script that sends events to EventBridge",
        "fsx": "a script that calls FSx's API; mounting a file system needs no endpoint",
        "kms": "a script that calls KMS; SageMaker and S3 use keys without it",
        "lambda": "the credentials function of a private registry, or one that the script calls",
        "logs": "a script that writes to other log groups; SageMaker writes the job's log without it",
        "monitoring": "a script that calls CloudWatch; SageMaker's metric definitions work without it",
        "sagemaker.api": "a script that calls SageMaker: experiments, the model registry, MLflow's tracking servers",
        "sagemaker.runtime": "a script that calls an inference endpoint",
        "secretsmanager": "a script that reads secrets, such as the token of a model hub",
        "ssm": "remote debugging, or a script that reads parameters",
        "ssmmessages": "remote debugging: the session itself",
        "states": "a script that sends task results to Step Functions",
        "sts": "a script that assumes another role, or calls GetCallerIdentity",
    }
)


def add_interface_endpoint(
    scope: Construct, service: str, vpc: ec2.IVpc, subnets: ec2.SelectedSubnets, hosts: ec2.Connections
) -> ec2.InterfaceVpcEndpoint:
    """Create an interface endpoint that only hosts of jobs may reach, by HTTPS.

    Args:
        scope: The parent construct.
        service: The service's name, a key of ``PURPOSES`` like ``"sts"``.
        vpc: The VPC.
        subnets: The subnets; the endpoint is in one subnet of each of the first two zones.
        hosts: The connections of the hosts.

    Raises:
        ValueError: The service is unknown, or already has an endpoint.
    """
    from aws_cdk import Annotations
    from aws_cdk import aws_ec2 as ec2

    rule = f"be among {', '.join(map(repr, PURPOSES))}"
    check_listed("endpoint-services", service, service in PURPOSES, "endpoints", rule, "['sts']")
    if is_unlisted(service):
        Annotations.of(scope).add_warning_v2(*unlisted_warning(service))
    name = "".join(part.capitalize() for part in service.split("."))
    if scope.node.try_find_child(f"{name}Endpoint"):
        raise must("endpoints", "list each service once", "['sts']", f"{service!r} twice")
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
    """A subnet in each of the first zones; an endpoint is billed by zone, and hosts in other zones can reach it too."""
    first: dict[str, ec2.ISubnet] = {}
    for subnet in subnets:
        first.setdefault(subnet.availability_zone, subnet)
    return list(first.values())[:_ZONES]
