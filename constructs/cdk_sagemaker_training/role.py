"""What a training job may do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jsii
from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_sagemaker_training.data import S3AccessPoint
from cdk_sagemaker_training.prop_types import checked
from cdk_sagemaker_training.review import Answers

if TYPE_CHECKING:
    from aws_cdk import aws_kms as kms
    from aws_cdk import aws_lambda as lambda_

    from cdk_sagemaker_training.network import TrainingNetwork

_LOG_GROUP = "/aws/sagemaker/TrainingJobs"
_METRIC_NAMESPACE = "/aws/sagemaker/TrainingJobs"

# Reasons for wildcards, beside which a review finds them.
_WHY_EVERYTHING = (
    "pulling an image takes a login that has no resource, as have what only describes networks or file systems of FSx, and "
    "metrics, of which a condition names the namespace"
)
_WHY_INTERFACES = (
    "interfaces have no name before they are made; subnets and security groups are the network's own, by their ids where the "
    "account that owns a VPC is not known"
)
_WHY_KEY = "kms:GenerateDataKey* and kms:ReEncrypt* are each the action and its variant without plaintext, on one key"
_WHY_OBJECTS = "a job reads, writes and deletes objects under a prefix, whose keys are not known before"
_WHY_VERSIONS = "a function's ARN with each of its versions, of the one function"
_WHY_STREAMS = "SageMaker names the log streams of a job, in the one log group of training jobs"


@jsii.implements(iam.IGrantable)
class TrainingRole(Construct):
    """The role that SageMaker takes on to run jobs: their logs and metrics, and what is granted to it.

    Channels, output, checkpoints, keys, image and network are granted by what runs the job. ``role`` uses one that there is
    already; permissions are added to it as CDK adds them to any role, not where it was imported with ``mutable=False``.
    ``permissions_boundary`` is a policy beyond which a new role's permissions do not reach, whatever is granted to it; for
    every role of a stack there is CDK's ``iam.PermissionsBoundary.of(stack).apply(policy)``.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        role: iam.IRole | None = None,
        permissions_boundary: iam.IManagedPolicy | None = None,
    ) -> None:
        super().__init__(scope, id)
        if role is not None and permissions_boundary is not None:
            raise ValueError(
                "permissions_boundary must be left out with a role that there is already, like permissions_boundary=None, "
                f"got {permissions_boundary.node.path if hasattr(permissions_boundary, 'node') else permissions_boundary!r}"
            )
        self.role: iam.IRole = role or iam.Role(
            self,
            "Resource",
            description="Runs SageMaker training jobs",
            permissions_boundary=permissions_boundary,
            # Only for jobs of this account: SageMaker's answer to the confused deputy.
            assumed_by=iam.ServicePrincipal(
                "sagemaker.amazonaws.com",
                conditions={"StringEquals": {"aws:SourceAccount": Stack.of(self).account}},
            ),
        )
        self._answers = Answers(self.role)
        self._allow_logs_and_metrics()

    @staticmethod
    @checked
    def from_role(scope: Construct, id: str, role: iam.IRole) -> TrainingRole:
        """The role that there is already; see ``role``."""
        return TrainingRole(scope, id, role=role)

    @property
    @jsii.member(jsii_name="grantPrincipal")
    def grant_principal(self) -> iam.IPrincipal:
        return self.role.grant_principal

    @property
    def role_arn(self) -> str:
        return self.role.role_arn

    def grant_pass_role(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` hand this role to SageMaker, and to no other service."""
        return iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["iam:PassRole"],
            resource_arns=[self.role.role_arn],
            conditions={"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}},
        )

    def grant_read(self, bucket: s3.IBucket | S3AccessPoint, prefix: str) -> None:
        """Let jobs read what lies under a prefix, as a channel does."""
        self._allow_list(bucket, prefix)
        self._allow_objects(["s3:GetObject"], bucket, prefix)
        if bucket.encryption_key:
            bucket.encryption_key.grant_decrypt(self)

    def grant_write(self, bucket: s3.IBucket | S3AccessPoint, prefix: str) -> None:
        """Let jobs write under a prefix, as a job's output is."""
        self._allow_objects(["s3:AbortMultipartUpload", "s3:PutObject"], bucket, prefix)
        if bucket.encryption_key:
            self.grant_key(bucket.encryption_key)

    def grant_key(self, key: kms.IKey) -> None:
        """Let jobs read what is encrypted with a key, and write with it.

        A bucket that knows its key grants it by itself; one that was imported by its name does not know.
        """
        # Both, since S3 reads the parts of a large object back to put it together: with leave to encrypt only, as CDK's own task
        # grants it, the upload of a large model fails.
        key.grant_encrypt_decrypt(self)
        wide = ("kms:GenerateDataKey*", "kms:ReEncrypt*")
        self._answers.add({f"AwsSolutions-IAM5[Action::{action}]": _WHY_KEY for action in wide})

    def grant_invoke(self, function: lambda_.IFunction) -> None:
        """Let SageMaker call a function in the job's name, as for the credentials of a private registry."""
        function.grant_invoke(self)
        self._answers.add_wildcards(function.resource_arns_for_grant_invoke, _WHY_VERSIONS)

    def grant_checkpoints(self, bucket: s3.IBucket | S3AccessPoint, prefix: str) -> None:
        """Let jobs keep checkpoints under a prefix: written while they run, read back when they start again.

        What a script deletes under its checkpoint path, SageMaker deletes in S3 (guide, "Checkpoints in Amazon SageMaker AI").
        """
        self.grant_read_write(bucket, prefix)
        self._allow_objects(["s3:DeleteObject"], bucket, prefix)

    def grant_read_write(self, bucket: s3.IBucket | S3AccessPoint, prefix: str) -> None:
        """Let jobs read and write under a prefix, as a compiler's cache is."""
        self.grant_read(bucket, prefix)
        self.grant_write(bucket, prefix)

    def grant_network(self, network: TrainingNetwork) -> None:
        """Let SageMaker put the hosts' network interfaces into the network's subnets, and take them out again.

        A subnet's ARN has the account of its owner, which of a shared VPC is another's (terraform-aws-iam 227, runs-on 463).
        """
        stack = Stack.of(self)

        def arns(resource: str, names: Sequence[str]) -> list[str]:
            return [stack.format_arn(service="ec2", resource=resource, resource_name=name) for name in names]

        interfaces, subnets = arns("network-interface", ["*"]), network.subnet_arns()
        groups = arns("security-group", [group.security_group_id for group in network.security_groups])
        self._allow(["ec2:CreateNetworkInterface"], [*interfaces, *groups, *subnets], why=_WHY_INTERFACES)
        # The condition is that of AWS's own policy for CodeBuild in a VPC. Of the two below no policy of AWS's has one, and a key
        # that a call turned out not to have would leave interfaces behind.
        self._allow(
            ["ec2:CreateNetworkInterfacePermission"],
            interfaces,
            {"ArnEquals": {"ec2:Subnet": subnets}},
            why=_WHY_INTERFACES,
        )
        self._allow(["ec2:DeleteNetworkInterface", "ec2:DeleteNetworkInterfacePermission"], interfaces)
        # EC2 has no narrower resource for what only describes.
        self._allow(
            [
                "ec2:DescribeDhcpOptions",
                "ec2:DescribeNetworkInterfaces",
                "ec2:DescribeSecurityGroups",
                "ec2:DescribeSubnets",
                "ec2:DescribeVpcs",
            ],
            ["*"],
            why=_WHY_EVERYTHING,
        )

    def _allow_logs_and_metrics(self) -> None:
        streams = Stack.of(self).format_arn(
            service="logs",
            resource="log-group",
            resource_name=f"{_LOG_GROUP}:*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        self._allow(
            ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
            [streams],
            why=_WHY_STREAMS,
        )
        # CloudWatch has no resource for metrics; the namespace is what narrows this.
        self._allow(
            ["cloudwatch:PutMetricData"],
            ["*"],
            {"StringEquals": {"cloudwatch:namespace": _METRIC_NAMESPACE}},
            why=_WHY_EVERYTHING,
        )

    def _allow_list(self, bucket: s3.IBucket | S3AccessPoint, prefix: str) -> None:
        # A listing is of the bucket, so what narrows it to the prefix is a condition.
        for place, condition in also_behind(bucket):
            self._allow(
                ["s3:ListBucket"], [place.bucket_arn], {"StringLike": {"s3:prefix": [f"{prefix}*"]}, **condition}
            )

    def _allow_objects(self, actions: list[str], bucket: s3.IBucket | S3AccessPoint, prefix: str) -> None:
        for place, condition in also_behind(bucket):
            self._allow(actions, [place.arn_for_objects(f"{prefix}*")], condition or None, why=_WHY_OBJECTS)

    def _allow(
        self,
        actions: list[str],
        resources: list[str],
        conditions: dict[str, Any] | None = None,
        *,
        why: str | None = None,
    ) -> None:
        """Add a statement; ``why`` is the reason for the wildcards in its resources."""
        self.role.add_to_principal_policy(
            iam.PolicyStatement(actions=actions, resources=resources, conditions=conditions)
        )
        if why is not None:
            self._answers.add_wildcards(resources, why)


def also_behind(bucket: s3.IBucket | S3AccessPoint) -> list[tuple[s3.IBucket | S3AccessPoint, dict[str, Any]]]:
    """A bucket, or an access point and the bucket behind it, each with the condition on which it may be used."""
    behind = bucket.bucket if isinstance(bucket, S3AccessPoint) else None
    if behind is None:
        return [(bucket, {})]
    return [(bucket, {}), (behind, {"StringEquals": {"s3:DataAccessPointArn": bucket.bucket_arn}})]
