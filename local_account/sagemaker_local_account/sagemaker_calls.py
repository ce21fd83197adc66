"""What SageMaker does with a job's role beside what the account does by calls of its own: pulling the image, using keys,
finding file systems, and putting network interfaces into a VPC. Each is evaluated as the calls that it takes on AWS, when a
job is created.

What the account does as calls of its own, under the role: reading channels and checkpoints, writing artefacts, checkpoints,
logs and metrics. `docs/permissions.md` is the table of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import resource_policies
from .api_calls import Place, subnet_arn
from .policies import Call
from .references import ECR_REGISTRY, reference

PULL = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
DESCRIBE_NETWORK = (
    "ec2:DescribeDhcpOptions",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
)
DELETE_INTERFACE = ("ec2:DeleteNetworkInterface", "ec2:DeleteNetworkInterfacePermission")


def image_calls(request: Mapping[str, Any]) -> list[Call]:
    """Pulling the image. One that is in no ECR takes none."""
    image = reference(request["AlgorithmSpecification"].get("TrainingImage", ""))
    registry = ECR_REGISTRY.fullmatch(image.registry)
    if registry is None:
        return []
    repository = f"arn:aws:ecr:{registry['region']}:{registry['account']}:repository/{image.repository}"
    return [Call("ecr:GetAuthorizationToken"), *(Call(action, repository) for action in PULL)]


def network_calls(request: Mapping[str, Any], place: Place) -> list[Call]:
    """Looking at the VPC, and making and deleting the hosts' network interfaces in its subnets."""
    network = request.get("VpcConfig")
    if not network:
        return []
    ec2 = f"arn:aws:ec2:{place.region}:{place.account}:"
    interface = f"{ec2}network-interface/*"
    subnets = [subnet_arn(subnet, place) for subnet in network["Subnets"]]
    created = [
        interface,
        *subnets,
        *(f"{ec2}security-group/{group}" for group in network["SecurityGroupIds"]),
    ]
    return [
        *(Call(action) for action in DESCRIBE_NETWORK),
        *(Call("ec2:CreateNetworkInterface", resource) for resource in created),
        *(Call("ec2:CreateNetworkInterfacePermission", interface, {"ec2:subnet": (subnet,)}) for subnet in subnets),
        *(Call(action, interface) for action in DELETE_INTERFACE),
    ]


def key_calls(request: Mapping[str, Any], place: Place) -> list[Call]:
    """Letting EC2 encrypt the hosts' volumes with a key of the user's."""
    key = request["ResourceConfig"].get("VolumeKmsKeyId")
    if not key:
        return []
    via = {"kms:viaservice": (f"sagemaker.{place.region}.amazonaws.com",), "kms:grantisforawsresource": ("true",)}
    return [Call("kms:CreateGrant", resource_policies.key_arn(key, place), via)]


def file_system_calls(request: Mapping[str, Any], place: Place) -> list[Call]:
    """Finding out where the file systems of channels are mounted from.

    Of all that AWS's policy AmazonSageMakerFullAccess has for file systems, this is what a mount takes to know.
    ``fsx:DescribeFileSystems`` has no resource ("Actions, resources, and condition keys for Amazon FSx").
    """
    sources = [channel["DataSource"].get("FileSystemDataSource") for channel in request.get("InputDataConfig", [])]
    efs = f"arn:aws:elasticfilesystem:{place.region}:{place.account}:file-system/"
    return [
        Call("elasticfilesystem:DescribeMountTargets", f"{efs}{source['FileSystemId']}")
        if source["FileSystemType"] == "EFS"
        else Call("fsx:DescribeFileSystems")
        for source in sources
        if source
    ]
