"""Stand-ins for the types in annotations whose modules are imported by type checkers only.

CDK's interfaces have no class in Python that all implementations are instances of, and to import them takes longer than all
checks together. A value is known by the attributes that it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

from cdk_sagemaker_training.props.prop import Kind

# By the names that annotations have. Without attributes: a class whose module imports it anyway.
_KINDS: Mapping[str, Kind] = {
    "Channel": Kind("a channel", "S3Channel(bucket, 'images/')", ("channel_config",)),
    "Construct": Kind("a construct", "self", ("node",)),
    "Duration": Kind("a Duration", "Duration.hours(6)", ("to_seconds",)),
    "IBucket": Kind("a bucket", "s3.Bucket(self, 'Bucket')", ("bucket_name",)),
    "IChainable": Kind("states", "sfn.Succeed(self, 'NotGoodEnough')", ("start_state", "end_states")),
    "IEfsFileSystem": Kind("a file system of EFS", "efs.FileSystem(self, 'Files', vpc=vpc)", ("file_system_id",)),
    "IFsxFileSystem": Kind("a file system of FSx", "LustreFileSystem(self, 'Lustre', ...)", ("file_system_id",)),
    "IFunction": Kind("a function", "lambda_.Function(self, 'Credentials', ...)", ("function_arn",)),
    "LogOptions": Kind("a LogOptions", "sfn.LogOptions(destination=group, level=sfn.LogLevel.ALL)"),
    "RemovalPolicy": Kind("a RemovalPolicy", "RemovalPolicy.DESTROY"),
    "Size": Kind("a Size", "Size.gibibytes(100)", ("to_gibibytes",)),
    "Ec2InstanceType": Kind("an ec2.InstanceType", "ec2.InstanceType('g5.xlarge')", ("to_string", "is_burstable")),
    "ITrainingQueue": Kind("a TrainingQueue", "TrainingQueue(self, 'Queue', capacity=8)", ("queue_arn", "share")),
    "TrainingImage": Kind(
        "a TrainingImage",
        "TrainingImage.from_dlc(self, 'Image', 'pytorch-training', '2.6.0-gpu-py312')",
        ("image_uri", "grant_pull"),
    ),
    "TrainingNetwork": Kind("a TrainingNetwork", "TrainingNetwork(self, 'Network')", ("vpc_config",)),
    "TrainingRole": Kind("a role, not its ARN", "TrainingRole(self, 'Role')", ("role_arn", "grant_checkpoints")),
    "ec2.ISecurityGroup": Kind(
        "a security group", "ec2.SecurityGroup(self, 'Group', vpc=vpc)", ("security_group_id", "connections")
    ),
    "ec2.IVpc": Kind("a VPC", "ec2.Vpc.from_lookup(self, 'Vpc', is_default=True)", ("vpc_id", "select_subnets")),
    "ec2.SubnetSelection": Kind(
        "a SubnetSelection",
        "ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)",
        ("subnet_type", "subnet_filters"),
    ),
    "ecr.IRepository": Kind("a repository of ECR", "ecr.Repository(self, 'Repository')", ("repository_arn",)),
    "ecr_assets.Platform": Kind("a Platform", "ecr_assets.Platform.LINUX_AMD64", ("platform",)),
    "iam.IManagedPolicy": Kind(
        "a managed policy",
        "iam.ManagedPolicy.from_aws_managed_policy_name('PowerUserAccess')",
        ("managed_policy_arn",),
    ),
    "iam.IRole": Kind("a role, not its ARN", "TrainingRole(self, 'Role')", ("role_arn",)),
    "kms.IKey": Kind("a key, not its ARN", "kms.Key(self, 'Key')", ("key_arn",)),
    "sns.ITopic": Kind("a topic", "sns.Topic(self, 'Topic')", ("topic_arn",)),
}


@cache
def stand_ins() -> Mapping[str, Any]:
    """Return stand-ins, and namespaces of these for modules such as ``iam``, by the names that annotations use."""
    names: dict[str, Any] = {}
    for name, kind in _KINDS.items():
        module, _, attribute = name.rpartition(".")
        stand_in = type(attribute, (), {"_kind": kind})
        if module:
            setattr(names.setdefault(module, SimpleNamespace()), attribute, stand_in)
        elif kind.has:
            names[name] = stand_in
    return names


def kind_of(annotated: type) -> Kind | None:
    """Return the kind of a class or a stand-in; None for a class that declares none (``prop.kind``)."""
    declared: Kind | None = getattr(annotated, "_kind", None)
    return declared or _KINDS.get(annotated.__name__)
