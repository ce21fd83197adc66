"""A file system of FSx for Lustre in a job's network, linked to a bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jsii
from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_iam as iam
from constructs import Construct

from cdk_sagemaker_training.data import check_no_subfolder
from cdk_sagemaker_training.file_systems import allow_lustre
from cdk_sagemaker_training.prop_types import checked
from cdk_sagemaker_training.tokens import is_unresolved

if TYPE_CHECKING:
    from aws_cdk import aws_kms as kms

    from cdk_sagemaker_training.data import S3Prefix
    from cdk_sagemaker_training.network import TrainingNetwork

_THROUGHPUTS = (125, 250, 500, 1_000)  # MB/s for each TiB, PerUnitStorageThroughput of PERSISTENT_2


@jsii.implements(ec2.IConnectable)
class LustreFileSystem(Construct):
    """A file system of FSx for Lustre that shows what lies under a prefix in S3 as files, as fast as a job's hosts read them.

    It is what an ``FsxLustreChannel`` names: the jobs in ``network`` reach it, and no others. Names come at once, a file's
    content when it is first read; what is new, changed or gone in S3 follows. ``export`` True writes what jobs change to S3.

    It is billed by the second whether a job runs or not, ``storage_gib`` times the price of the ``throughput`` (MB/s for each
    TiB: 125, 250, 500 or 1000). Its files are encrypted, with ``encryption_key`` or FSx's own key. Where the bucket has a key of
    yours, its policy lets FSx's service-linked role use it; to the policy of an imported key that has to be added by hand.
    ``removal_policy`` is RETAIN unless said.

    Raises ``ValueError`` for a network in more than one availability zone: the file system is in one, and hosts in another would
    pay for each byte and wait for it.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        network: TrainingNetwork,
        data: S3Prefix,
        storage_gib: int = 1_200,
        throughput: int = 125,
        export: bool = False,
        encryption_key: kms.IKey | None = None,
        removal_policy: RemovalPolicy | None = None,
    ) -> None:
        super().__init__(scope, id)
        _check_network(network)
        check_no_subfolder("data", data)
        _check_size(storage_gib, throughput)
        self.file_system = fsx.LustreFileSystem(
            self,
            "Resource",
            vpc=network.vpc,
            vpc_subnet=network.subnets.subnets[0],
            storage_capacity_gib=storage_gib,
            file_system_type_version=fsx.FileSystemTypeVersion.V_2_15,
            lustre_configuration=fsx.LustreConfiguration(
                deployment_type=fsx.LustreDeploymentType.PERSISTENT_2,
                per_unit_storage_throughput=throughput,
                data_compression_type=fsx.LustreDataCompressionType.LZ4,
            ),
            kms_key=encryption_key,
            removal_policy=removal_policy or RemovalPolicy.RETAIN,
        )
        self.file_system_id: str = self.file_system.file_system_id
        self.mount_name: str = self.file_system.mount_name
        allow_lustre(self, network.connections)
        self._wait_for_rules()
        self._link(data, export)
        if data.bucket.encryption_key:
            _allow_key(data.bucket.encryption_key, Stack.of(self), export=export)

    @property
    @jsii.member(jsii_name="connections")
    def connections(self) -> ec2.Connections:
        return self.file_system.connections

    def _wait_for_rules(self) -> None:
        """Make the file system after the rules of its security group.

        FSx refuses one whose servers may not reach each other at port 988, which without a dependency CloudFormation sometimes
        makes first (aws-parallelcluster 1198 and 6181).
        """
        resource = self.file_system.node.default_child
        assert isinstance(resource, fsx.CfnFileSystem)
        for group in self.connections.security_groups:
            for rule in group.node.children:
                if isinstance(rule, ec2.CfnSecurityGroupIngress):
                    resource.node.add_dependency(rule)

    def _link(self, data: S3Prefix, export: bool) -> None:
        events = fsx.CfnDataRepositoryAssociation.AutoImportPolicyProperty(events=["NEW", "CHANGED", "DELETED"])
        written = fsx.CfnDataRepositoryAssociation.AutoExportPolicyProperty(events=["NEW", "CHANGED", "DELETED"])
        fsx.CfnDataRepositoryAssociation(
            self,
            "Data",
            file_system_id=self.file_system_id,
            file_system_path="/",
            data_repository_path=data.uri,
            batch_import_meta_data_on_create=True,
            s3=fsx.CfnDataRepositoryAssociation.S3Property(
                auto_import_policy=events, auto_export_policy=written if export else None
            ),
        )


def _allow_key(key: kms.IKey, stack: Stack, *, export: bool) -> None:
    """Let FSx use the bucket's key, as FSx's guide has it ("Working with server-side encrypted Amazon S3 buckets").

    The role is named by a condition: there is one for each file system, made together with it, and a policy cannot name as its
    principal what is not there yet.
    """
    role = "role/aws-service-role/s3.data-source.lustre.fsx.amazonaws.com/AWSServiceRoleForFSxS3Access_*"
    writing = ["kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"]
    key.add_to_resource_policy(
        iam.PolicyStatement(
            principals=[iam.AnyPrincipal()],
            actions=["kms:Decrypt", "kms:DescribeKey", *(writing if export else [])],
            resources=["*"],
            conditions={
                "StringEquals": {
                    "kms:CallerAccount": stack.account,
                    "kms:ViaService": f"s3.{stack.region}.amazonaws.com",
                },
                "ArnLike": {"aws:PrincipalArn": f"arn:{stack.partition}:iam::{stack.account}:{role}"},
            },
        )
    )


def _check_network(network: TrainingNetwork) -> None:
    subnets = network.subnets.subnets
    # How many there are is known once the CLI has looked the VPC up.
    if len(subnets) != 1 and not network.subnets.is_pending_lookup:
        raise ValueError(
            "network must be in one availability zone for a file system of FSx for Lustre, "
            f"like TrainingNetwork(self, 'Network', max_azs=1), got one with {len(subnets)} subnets"
        )


def _check_size(storage_gib: int, throughput: int) -> None:
    if not is_unresolved(throughput) and throughput not in _THROUGHPUTS:
        raise ValueError(
            f"throughput must be one of {', '.join(map(str, _THROUGHPUTS))} MB/s for each TiB, like 125, got {throughput!r}"
        )
    if is_unresolved(storage_gib):
        return
    # StorageCapacity of AWS::FSx::FileSystem, of PERSISTENT_2 on SSD.
    if not (storage_gib == 1_200 or (storage_gib > 0 and storage_gib % 2_400 == 0)):
        raise ValueError(f"storage_gib must be 1200 or a multiple of 2400, like 2_400, got {storage_gib!r}")
