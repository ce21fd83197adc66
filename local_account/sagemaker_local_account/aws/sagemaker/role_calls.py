"""The IAM calls of SageMaker with a job's role that the account evaluates without making them.

They are for pulling the image, using KMS keys, describing file systems, and creating network interfaces in a VPC, and are
evaluated when a job is created. Other calls are made with the role: reading channels and checkpoints, writing artifacts,
checkpoints, logs and metrics. `docs/permissions.md` has the table of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sagemaker_local_account.aws.ec2.authorization import subnet_arn
from sagemaker_local_account.aws.kms.authorization import key_arn
from sagemaker_local_account.core.image_names import ECR_REGISTRY, reference
from sagemaker_local_account.core.location import Location
from sagemaker_local_account.iam.policies import Call

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
    """Returns the calls for pulling the image; none for an image outside of ECR."""
    image = reference(request["AlgorithmSpecification"].get("TrainingImage", ""))
    registry = ECR_REGISTRY.fullmatch(image.registry)
    if registry is None:
        return []
    repository = f"arn:aws:ecr:{registry['region']}:{registry['account']}:repository/{image.repository}"
    return [Call("ecr:GetAuthorizationToken"), *(Call(action, repository) for action in PULL)]


def network_calls(request: Mapping[str, Any], location: Location) -> list[Call]:
    """Returns the calls for describing the VPC, and creating and deleting the hosts' network interfaces."""
    network = request.get("VpcConfig")
    if not network:
        return []
    ec2 = f"arn:aws:ec2:{location.region}:{location.account}:"
    interface = f"{ec2}network-interface/*"
    subnets = [subnet_arn(subnet, location) for subnet in network["Subnets"]]
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


def key_calls(request: Mapping[str, Any], location: Location) -> list[Call]:
    """Returns the calls for encrypting the hosts' volumes with a customer managed key."""
    key = request["ResourceConfig"].get("VolumeKmsKeyId")
    if not key:
        return []
    via = {"kms:viaservice": (f"sagemaker.{location.region}.amazonaws.com",), "kms:grantisforawsresource": ("true",)}
    return [Call("kms:CreateGrant", key_arn(key, location), via)]


def file_system_calls(request: Mapping[str, Any], location: Location) -> list[Call]:
    """Returns the calls for describing the file systems of channels.

    They are those of AmazonSageMakerFullAccess' file system permissions that a mount requires. ``fsx:DescribeFileSystems`` has no
    resource type ("Actions, resources, and condition keys for Amazon FSx").
    """
    sources = [channel["DataSource"].get("FileSystemDataSource") for channel in request.get("InputDataConfig", [])]
    efs = f"arn:aws:elasticfilesystem:{location.region}:{location.account}:file-system/"
    return [
        Call("elasticfilesystem:DescribeMountTargets", f"{efs}{source['FileSystemId']}")
        if source["FileSystemType"] == "EFS"
        else Call("fsx:DescribeFileSystems")
        for source in sources
        if source
    ]
