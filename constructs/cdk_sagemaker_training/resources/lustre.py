"""``LustreFileSystem``: FSx for Lustre in a job's network, linked to a bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import jsii
from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_iam as iam
from constructs import Construct

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.data.file_systems import allow_lustre
from cdk_sagemaker_training.data.s3 import check_no_subfolder
from cdk_sagemaker_training.props.prop import Known, Prop
from cdk_sagemaker_training.props.prop_types import checked

if TYPE_CHECKING:
    from aws_cdk import aws_kms as kms

    from cdk_sagemaker_training.data.s3 import S3Prefix
    from cdk_sagemaker_training.resources.networking.network import TrainingNetwork

_THROUGHPUTS = (125, 250, 500, 1_000)  # MB/s for each TiB, PerUnitStorageThroughput of PERSISTENT_2


_MADE = Known("deployment", "since the file system is made with it")
_CHECKED = Known("synth", "since CDK's file system checks it")


@jsii.implements(ec2.IConnectable)
class LustreFileSystem(Construct):
    """A file system of FSx for Lustre that presents the objects under an S3 prefix as files, for ``FsxLustreChannel``.

    Only jobs in its network can reach it. FSx imports metadata when the file system is created and the content of a file when it
    is first read; new, changed and deleted objects are imported automatically. It is billed whether a job runs or not.

    Attributes:
        file_system: CDK's file system.
        file_system_id: Id of the file system.
        mount_name: Mount name of the file system.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        network: TrainingNetwork,
        data: S3Prefix,
        storage_gib: Annotated[int, Prop(known=_CHECKED, example="1_200")] = 1_200,
        throughput: Annotated[int, Prop(known=_MADE, example="125")] = 125,
        export: bool = False,
        encryption_key: kms.IKey | None = None,
        removal_policy: RemovalPolicy | None = None,
    ) -> None:
        """Create a file system (PERSISTENT_2 on SSD, encrypted).

        If the bucket has a customer managed key, FSx's service-linked role is allowed to use it; the policy of an imported key
        has to be extended by hand.

        Args:
            scope: The parent construct.
            id: The construct id.
            network: Network of the jobs that read it, in one availability zone: traffic between zones is billed, and slower.
            data: Location of the objects in S3.
            storage_gib: Storage capacity, in GiB: 1200 or a multiple of 2400.
            throughput: Throughput, in MB/s for each TiB of storage: 125, 250, 500 or 1000. The price depends on it.
            export: Whether changes of files are written back to S3.
            encryption_key: Encryption key of the files; FSx's own key by default.
            removal_policy: Removal policy; RETAIN by default.

        Raises:
            ValueError: The network has more than one subnet, or a size is invalid.
        """
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
        """Network connections of the file system."""
        return self.file_system.connections

    def _wait_for_rules(self) -> None:
        """Make the file system depend on the rules of its security group.

        FSx refuses a file system whose servers cannot reach each other at port 988; without the dependency CloudFormation may
        create it before the rules (aws-parallelcluster 1198 and 6181).
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
    """Allow FSx to use the bucket's key, as in FSx's guide ("Working with server-side encrypted Amazon S3 buckets").

    The role is matched by a condition, because FSx creates one for each file system, and a policy cannot have a principal that
    does not exist yet.
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
    # The number is known once the CLI has looked up the VPC.
    if len(subnets) != 1 and not network.subnets.is_pending_lookup:
        rule = "be in one availability zone for a file system of FSx for Lustre"
        raise must("network", rule, "TrainingNetwork(self, 'Network', max_azs=1)", f"one with {len(subnets)} subnets")


def _check_size(storage_gib: int, throughput: int) -> None:
    if not is_unresolved(throughput) and throughput not in _THROUGHPUTS:
        rule = f"be one of {', '.join(map(str, _THROUGHPUTS))} MB/s for each TiB"
        raise must("throughput", rule, "125", repr(throughput))
    # StorageCapacity of AWS::FSx::FileSystem, of PERSISTENT_2 on SSD.
    if not (storage_gib == 1_200 or (storage_gib > 0 and storage_gib % 2_400 == 0)):
        raise must("storage_gib", "be 1200 or a multiple of 2400", "2_400", repr(storage_gib))
