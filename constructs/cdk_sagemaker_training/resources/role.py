"""``TrainingRole``: the execution role of training jobs."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jsii
from aws_cdk import Annotations, ArnFormat, Resource, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.lazy import check_at_synthesis
from cdk_sagemaker_training.core.nag import Suppressions
from cdk_sagemaker_training.data.s3 import S3AccessPoint
from cdk_sagemaker_training.props.prop_types import checked

if TYPE_CHECKING:
    from aws_cdk import aws_kms as kms
    from aws_cdk import aws_lambda as lambda_

    from cdk_sagemaker_training.resources.networking.network import TrainingNetwork

_LOG_GROUP = "/aws/sagemaker/TrainingJobs"
_METRIC_NAMESPACE = "/aws/sagemaker/TrainingJobs"

# Justifications of wildcards, for cdk-nag.
_WHY_EVERYTHING = (
    "ECR's login, calls that describe networks or file systems of FSx, and metrics have no resource; a condition on "
    "the namespace narrows metrics"
)
_WHY_INTERFACES = (
    "interfaces have no name before they are created; subnets and security groups are those of the network, by their ids if the "
    "account that owns the VPC is unknown"
)
_WHY_KEY = "kms:GenerateDataKey* and kms:ReEncrypt* are each the action and its variant without plaintext, on one key"
_WHY_OBJECTS = "a job reads, writes and deletes objects under a prefix, whose keys are not known in advance"
_WHY_VERSIONS = "the versions of one function"
_WHY_STREAMS = "SageMaker chooses the names of a job's log streams, in the log group of training jobs"

_SERVICE = "sagemaker.amazonaws.com"


@jsii.implements(iam.IGrantable)
class TrainingRole(Resource):
    """The execution role of training jobs, with permissions for their logs and metrics and those that are granted to it.

    ``TrainingWorkflow`` and ``TrainingTask`` grant it the job's channels, output, checkpoints, keys, image and network. Its
    methods ``grant_read(bucket, prefix)`` and the like grant to the role itself, each with the prefix or the actions that jobs
    need; CDK's own, such as ``bucket.grant_read(role)``, take it as any grantee.

    Attributes:
        role: CDK's role.
    """

    role: iam.IRole

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        role: iam.IRole | None = None,
        permissions_boundary: iam.IManagedPolicy | None = None,
    ) -> None:
        """Create a role, or use an existing one.

        Args:
            scope: The parent construct.
            id: The construct id.
            role: An existing role in place of a new one. Permissions are added to it, except if it was imported with
                ``mutable=False``.
            permissions_boundary: Permissions boundary of a new role. For all roles of a stack use CDK's
                ``iam.PermissionsBoundary.of(stack).apply(policy)``.

        Raises:
            ValueError: Both ``role`` and ``permissions_boundary`` are set.
        """
        if role is not None and permissions_boundary is not None:
            rule = "be left out with an existing role"
            example = "permissions_boundary=None"
            got = repr(
                permissions_boundary.node.path if hasattr(permissions_boundary, "node") else permissions_boundary
            )
            raise must("permissions_boundary", rule, example, got)
        super().__init__(scope, id, **({} if role is None else _environment_of(role)))
        self.role = role or iam.Role(
            self,
            "Resource",
            description="Runs SageMaker training jobs",
            permissions_boundary=permissions_boundary,
            # Only for jobs of this account: SageMaker's protection against the confused deputy.
            assumed_by=iam.ServicePrincipal(
                _SERVICE,
                conditions={"StringEquals": {"aws:SourceAccount": Stack.of(self).account}},
            ),
        )
        if role is None:
            self.node.default_child = self.role.node.default_child
        elif getattr(role, "assume_role_policy", None) is not None:
            check_at_synthesis(self, functools.partial(_untrusted, role))
        self._suppressions = Suppressions(self.role)
        self._allow_logs_and_metrics()

    @staticmethod
    @checked
    def from_role_arn(scope: Construct, id: str, role_arn: str, *, mutable: bool = True) -> TrainingRole:
        """Use an existing role by its ARN.

        Args:
            scope: The parent construct.
            id: The construct id.
            role_arn: The ARN.
            mutable: Whether permissions are added to it, which CDK does for a role of the stack's account.
        """
        role = iam.Role.from_role_arn(scope, f"{id}Role", role_arn, mutable=mutable)
        return TrainingRole(scope, id, role=role)

    @staticmethod
    @checked
    def from_role_name(scope: Construct, id: str, role_name: str) -> TrainingRole:
        """Use an existing role of the stack's account by its name; permissions are added to it.

        Args:
            scope: The parent construct.
            id: The construct id.
            role_name: The name.
        """
        return TrainingRole(scope, id, role=iam.Role.from_role_name(scope, f"{id}Role", role_name))

    @property
    @jsii.member(jsii_name="grantPrincipal")
    def grant_principal(self) -> iam.IPrincipal:
        """The principal of grants to the role."""
        return self.role.grant_principal

    @property
    def role_arn(self) -> str:
        """ARN of the role."""
        return self.role.role_arn

    @property
    def role_name(self) -> str:
        """Name of the role."""
        return self.role.role_name

    def grant(self, grantee: iam.IGrantable, *actions: str) -> iam.Grant:
        """Grant permission for actions on the role.

        Args:
            grantee: Another role, or any grantee.
            *actions: The actions, such as ``"iam:GetRole"``.
        """
        return self.role.grant(grantee.grant_principal, *actions)

    def grant_pass_role(self, grantee: iam.IGrantable) -> iam.Grant:
        """Grant permission to pass the role to SageMaker, and to no other service.

        Args:
            grantee: The role or another grantee that creates jobs.
        """
        return iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["iam:PassRole"],
            resource_arns=[self.role.role_arn],
            conditions={"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}},
        )

    def grant_read(self, bucket: s3.IBucket | S3AccessPoint, prefix: str) -> iam.Grant:
        """Grant jobs permission to list and read objects under a prefix, and to decrypt them with the bucket's key.

        Args:
            bucket: The bucket or access point.
            prefix: How the objects' keys begin.
        """
        grants = [*self._allow_list(bucket, prefix), *self._allow_objects(["s3:GetObject"], bucket, prefix)]
        if bucket.encryption_key:
            grants.append(bucket.encryption_key.grant_decrypt(self))
        return _combined(grants)

    def grant_write(self, bucket: s3.IBucket | S3AccessPoint, prefix: str) -> iam.Grant:
        """Grant jobs permission to write objects under a prefix, and to encrypt them with the bucket's key.

        Args:
            bucket: The bucket or access point.
            prefix: How the objects' keys begin.
        """
        grants = self._allow_objects(["s3:AbortMultipartUpload", "s3:PutObject"], bucket, prefix)
        if bucket.encryption_key:
            grants.append(self.grant_key(bucket.encryption_key))
        return _combined(grants)

    def grant_key(self, key: kms.IKey) -> iam.Grant:
        """Grant jobs permission to encrypt and decrypt with a key.

        Needed for a bucket that was imported by its name; other buckets grant their own key.

        Args:
            key: The key.
        """
        # Both, since S3 decrypts the parts of a large object to assemble it: with permission to encrypt only, as CDK's own task
        # grants it, the upload of a large model fails.
        grant = key.grant_encrypt_decrypt(self)
        if not grant.success:
            # aws/aws-cdk 34237: a policy cannot name a key by its alias, and only the flag has CDK write a condition instead.
            Annotations.of(self).add_warning_v2(
                "cdk-sagemaker-training:key-by-alias",
                "nothing is granted on a key that was imported by its alias, so that jobs may use it only if another policy "
                "allows it: import it like kms.Key.from_key_arn(self, 'Key', 'arn:...'), or set CDK's feature flag "
                "@aws-cdk/aws-kms:applyImportedAliasPermissionsToPrincipal.",
            )
        wide = ("kms:GenerateDataKey*", "kms:ReEncrypt*")
        self._suppressions.add({f"AwsSolutions-IAM5[Action::{action}]": _WHY_KEY for action in wide})
        return grant

    def grant_invoke(self, function: lambda_.IFunction) -> iam.Grant:
        """Grant jobs permission to invoke a function, such as the credentials provider of a private registry.

        Args:
            function: The function.
        """
        self._suppressions.add_wildcards(function.resource_arns_for_grant_invoke, _WHY_VERSIONS)
        return function.grant_invoke(self)

    def grant_checkpoints(self, bucket: s3.IBucket | S3AccessPoint, prefix: str) -> iam.Grant:
        """Grant jobs permission to read, write and delete checkpoints under a prefix.

        SageMaker deletes in S3 what a script deletes under its checkpoint path (guide, "Checkpoints in Amazon SageMaker AI").

        Args:
            bucket: The bucket or access point.
            prefix: How the objects' keys begin.
        """
        grants = [self.grant_read_write(bucket, prefix), *self._allow_objects(["s3:DeleteObject"], bucket, prefix)]
        return _combined(grants)

    def grant_read_write(self, bucket: s3.IBucket | S3AccessPoint, prefix: str) -> iam.Grant:
        """Grant jobs permission to read and write objects under a prefix.

        Args:
            bucket: The bucket or access point.
            prefix: How the objects' keys begin.
        """
        return _combined([self.grant_read(bucket, prefix), self.grant_write(bucket, prefix)])

    def grant_network(self, network: TrainingNetwork) -> iam.Grant:
        """Grant SageMaker permission to create and delete the hosts' network interfaces in a network's subnets.

        The ARN of a subnet contains the account of its owner, which is another account for a shared VPC (terraform-aws-iam 227,
        runs-on 463).

        Args:
            network: The network.
        """
        stack = Stack.of(self)

        def arns(resource: str, names: Sequence[str]) -> list[str]:
            return [stack.format_arn(service="ec2", resource=resource, resource_name=name) for name in names]

        interfaces, subnets = arns("network-interface", ["*"]), network.subnet_arns()
        groups = arns("security-group", [group.security_group_id for group in network.security_groups])
        grants = [
            self._allow(["ec2:CreateNetworkInterface"], [*interfaces, *groups, *subnets], why=_WHY_INTERFACES),
            # The condition is that of AWS's own policy for CodeBuild in a VPC. AWS's policies have none on the two actions
            # below, and a condition key that these calls lack would leave interfaces behind.
            self._allow(
                ["ec2:CreateNetworkInterfacePermission"],
                interfaces,
                {"ArnEquals": {"ec2:Subnet": subnets}},
                why=_WHY_INTERFACES,
            ),
            self._allow(["ec2:DeleteNetworkInterface", "ec2:DeleteNetworkInterfacePermission"], interfaces),
            # EC2 has no narrower resource for Describe actions.
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
            ),
        ]
        return _combined(grants)

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
        # CloudWatch has no resource for metrics; the condition on the namespace narrows this.
        self._allow(
            ["cloudwatch:PutMetricData"],
            ["*"],
            {"StringEquals": {"cloudwatch:namespace": _METRIC_NAMESPACE}},
            why=_WHY_EVERYTHING,
        )

    def _allow_list(self, bucket: s3.IBucket | S3AccessPoint, prefix: str) -> list[iam.Grant]:
        # The resource of ListBucket is the bucket, so a condition narrows it to the prefix.
        return [
            self._allow(
                ["s3:ListBucket"], [place.bucket_arn], {"StringLike": {"s3:prefix": [f"{prefix}*"]}, **condition}
            )
            for place, condition in policy_targets(bucket)
        ]

    def _allow_objects(self, actions: list[str], bucket: s3.IBucket | S3AccessPoint, prefix: str) -> list[iam.Grant]:
        return [
            self._allow(actions, [place.arn_for_objects(f"{prefix}*")], condition or None, why=_WHY_OBJECTS)
            for place, condition in policy_targets(bucket)
        ]

    def _allow(
        self,
        actions: list[str],
        resources: list[str],
        conditions: dict[str, Any] | None = None,
        *,
        why: str | None = None,
    ) -> iam.Grant:
        """Add a statement; ``why`` justifies the wildcards in its resources."""
        if why is not None:
            self._suppressions.add_wildcards(resources, why)
        return iam.Grant.add_to_principal(
            grantee=self.role, actions=actions, resource_arns=resources, conditions=conditions
        )


def _combined(grants: Sequence[iam.Grant]) -> iam.Grant:
    """One grant of several, which succeeded if one of them did (CDK's ``Grant.combine``)."""
    return functools.reduce(lambda all_, grant: all_.combine(grant), grants)


def _environment_of(role: iam.IRole) -> dict[str, str]:
    return {"account": role.env.account, "region": role.env.region}


def policy_targets(bucket: s3.IBucket | S3AccessPoint) -> list[tuple[s3.IBucket | S3AccessPoint, dict[str, Any]]]:
    """Return the resources that policies have to allow for a bucket or an access point.

    Returns:
        The bucket, or the access point and the bucket behind it, each with the condition under which it may be used.
    """
    behind = bucket.bucket if isinstance(bucket, S3AccessPoint) else None
    if behind is None:
        return [(bucket, {})]
    return [(bucket, {}), (behind, {"StringEquals": {"s3:DataAccessPointArn": bucket.bucket_arn}})]


def _untrusted(role: Any) -> list[ValueError]:
    """SageMaker assumes the jobs' role, whose trust policy must allow it ("Could not assume role", CreateTrainingJob)."""
    document = Stack.of(role).resolve(role.assume_role_policy)
    allowed = [statement for statement in document["Statement"] if statement["Effect"] == "Allow"]
    principals = [statement.get("Principal", "*") for statement in allowed]
    for principal in principals:
        services = [] if isinstance(principal, str) else principal.get("Service", [])
        known = services if isinstance(services, list) else [services]
        if principal in ("*", {"AWS": "*"}) or any(
            service == _SERVICE or isinstance(service, dict) for service in known
        ):
            return []
    rule = "be one that SageMaker may assume"
    example = "iam.Role(..., assumed_by=iam.ServicePrincipal('sagemaker.amazonaws.com'))"
    return [must("role", rule, example, f"{role.node.path}, which trusts {principals}")]
