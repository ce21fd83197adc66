"""What a training job may do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jsii
from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

if TYPE_CHECKING:
    from cdk_sagemaker_training.network import TrainingNetwork

_LOG_GROUP = "/aws/sagemaker/TrainingJobs"
_METRIC_NAMESPACE = "/aws/sagemaker/TrainingJobs"


@jsii.implements(iam.IGrantable)
class TrainingRole(Construct):
    """The role that SageMaker takes on to run jobs: their logs and metrics, and what is granted to it.

    Channels, output, checkpoints, image and network are granted by what runs the job. ``role`` uses one that there is
    already; permissions are added to it as CDK adds them to any role, not where it was imported with ``mutable=False``.
    """

    def __init__(self, scope: Construct, id: str, *, role: iam.IRole | None = None) -> None:
        super().__init__(scope, id)
        self.role: iam.IRole = role or iam.Role(
            self,
            "Resource",
            description="Runs SageMaker training jobs",
            # Only for jobs of this account: SageMaker's answer to the confused deputy.
            assumed_by=iam.ServicePrincipal(
                "sagemaker.amazonaws.com",
                conditions={"StringEquals": {"aws:SourceAccount": Stack.of(self).account}},
            ),
        )
        self._allow_logs_and_metrics()

    @staticmethod
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

    def grant_read(self, bucket: s3.IBucket, prefix: str) -> None:
        """Let jobs read what lies under a prefix, as a channel does."""
        self._allow_list(bucket, prefix)
        self._allow(["s3:GetObject"], [bucket.arn_for_objects(f"{prefix}*")])
        if bucket.encryption_key:
            bucket.encryption_key.grant_decrypt(self)

    def grant_write(self, bucket: s3.IBucket, prefix: str) -> None:
        """Let jobs write under a prefix, as a job's output is."""
        self._allow(["s3:AbortMultipartUpload", "s3:PutObject"], [bucket.arn_for_objects(f"{prefix}*")])
        if bucket.encryption_key:
            # S3 reads the parts of a large object back to put it together.
            bucket.encryption_key.grant_encrypt_decrypt(self)

    def grant_checkpoints(self, bucket: s3.IBucket, prefix: str) -> None:
        """Let jobs keep checkpoints under a prefix: written while they run, read back when they start again."""
        self.grant_read_write(bucket, prefix)

    def grant_read_write(self, bucket: s3.IBucket, prefix: str) -> None:
        """Let jobs read and write under a prefix, as a compiler's cache is."""
        self.grant_read(bucket, prefix)
        self.grant_write(bucket, prefix)

    def grant_network(self, network: TrainingNetwork) -> None:
        """Let SageMaker put the hosts' network interfaces into the network's subnets, and take them out again."""
        stack = Stack.of(self)

        def arns(resource: str, names: Sequence[str]) -> list[str]:
            return [stack.format_arn(service="ec2", resource=resource, resource_name=name) for name in names]

        interfaces = arns("network-interface", ["*"])
        self._allow(
            ["ec2:CreateNetworkInterface"],
            [
                *interfaces,
                *arns("security-group", [network.security_group.security_group_id]),
                *arns("subnet", network.subnets.subnet_ids),
            ],
        )
        self._allow(
            [
                "ec2:CreateNetworkInterfacePermission",
                "ec2:DeleteNetworkInterface",
                "ec2:DeleteNetworkInterfacePermission",
            ],
            interfaces,
        )
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
        )

    def _allow_logs_and_metrics(self) -> None:
        streams = Stack.of(self).format_arn(
            service="logs",
            resource="log-group",
            resource_name=f"{_LOG_GROUP}:*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        self._allow(
            ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"], [streams]
        )
        # CloudWatch has no resource for metrics; the namespace is what narrows this.
        self._allow(
            ["cloudwatch:PutMetricData"],
            ["*"],
            {"StringEquals": {"cloudwatch:namespace": _METRIC_NAMESPACE}},
        )

    def _allow_list(self, bucket: s3.IBucket, prefix: str) -> None:
        # A listing is of the bucket, so what narrows it to the prefix is a condition.
        self._allow(["s3:ListBucket"], [bucket.bucket_arn], {"StringLike": {"s3:prefix": [f"{prefix}*"]}})

    def _allow(self, actions: list[str], resources: list[str], conditions: dict[str, Any] | None = None) -> None:
        self.role.add_to_principal_policy(
            iam.PolicyStatement(actions=actions, resources=resources, conditions=conditions)
        )
