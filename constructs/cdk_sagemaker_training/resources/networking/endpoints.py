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
        "experiments": "MLflow's tracking servers",
        "events": "a script that sends events to EventBridge",
        "fsx": "a script that calls FSx's API; mounting a file system needs no endpoint",
        "kms": "a script that calls KMS; SageMaker and S3 use keys without it",
        "lambda": "the credentials function of a private registry, or one that the script calls",
        "logs": "a script that writes to other log groups; SageMaker writes the job's log without it",
        "monitoring": "a script that calls CloudWatch; SageMaker's metric definitions work without it",
        "sagemaker.api": "a script that calls SageMaker: experiments, the model registry",
        "sagemaker.runtime": "a script that calls an inference endpoint",
        "secretsmanager": "a script that reads secrets, such as the token of a model hub",
        "ssm": "remote debugging, or a script that reads parameters",
        "ssmmessages": "remote debugging: the session itself",
        "states": "a script that sends task results to Step Functions",
        "sts": "a script that assumes another role, or calls GetCallerIdentity",
    }
)
# Of services whose names do not begin with com.amazonaws. A tracking server's address is REGION.experiments.sagemaker.aws
# (mlflow_sagemaker_helpers.py of sagemaker-mlflow 0.5.0), which the CDK's `SAGEMAKER_EXPERIMENTS` is for.
_PREFIXES = {"experiments": "aws.sagemaker"}


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
    id = endpoint_id(service)
    if scope.node.try_find_child(id):
        raise must("endpoints", "list each service once", "['sts']", f"{service!r} twice")
    group = ec2.SecurityGroup(
        scope,
        f"{id}SecurityGroup",
        vpc=vpc,
        description=f"Endpoint of {service}: HTTPS from hosts of training jobs",
        allow_all_outbound=False,
    )
    group.connections.allow_from(hosts, ec2.Port.tcp(443), "hosts of training jobs")
    return ec2.InterfaceVpcEndpoint(
        scope,
        id,
        vpc=vpc,
        service=ec2.InterfaceVpcEndpointAwsService(service, _PREFIXES.get(service)),
        subnets=ec2.SubnetSelection(subnets=_in_few_zones(subnets.subnets)),
        security_groups=[group],
        open=False,
    )


def endpoint_id(service: str) -> str:
    """Return the construct id of a service's endpoint.

    Args:
        service: The service's name.
    """
    return "".join(part.capitalize() for part in service.split(".")) + "Endpoint"


def _in_few_zones(subnets: Sequence[ec2.ISubnet]) -> list[ec2.ISubnet]:
    """A subnet in each of the first zones; an endpoint is billed by zone, and hosts in other zones can reach it too."""
    first: dict[str, ec2.ISubnet] = {}
    for subnet in subnets:
        first.setdefault(subnet.availability_zone, subnet)
    return list(first.values())[:_ZONES]
