"""Input data on file systems, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cdk_sagemaker_training.core.checks import absolute_path, not_empty
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.props.prop import IN_INPUT, Prop
from cdk_sagemaker_training.props.prop_types import Value, check_fields

if TYPE_CHECKING:
    from aws_cdk import aws_ec2 as ec2
    from aws_cdk.aws_efs import IFileSystem as IEfsFileSystem
    from aws_cdk.aws_fsx import IFileSystem as IFsxFileSystem

Directory = Annotated[str, Prop(known=IN_INPUT, rule=absolute_path, example="'/images'")]
ContentType = Annotated[str, Prop(known=IN_INPUT, rule=not_empty, example="'application/x-parquet'")]


@dataclass(frozen=True)
class FsxLustreChannel(Value):
    """A channel on FSx for Lustre: a directory of a file system, mounted at ``/opt/ml/input/data/<channel>``.

    Nothing is copied before the job starts. The job needs ``network=`` with a route to the file system.

    Args:
        file_system: The file system.
        directory: Absolute path of the directory within the file system.
        read_only: True mounts it read-only, False read-write.
        mount_name: Mount name of the file system, with which SageMaker's DirectoryPath begins. Required for an imported file
            system, whose mount name CDK does not have.
        content_type: MIME type of the data, which SageMaker passes to the container; None for none.

    Raises:
        ValueError: A path is not absolute, or an imported file system has no ``mount_name``.
    """

    file_system: IFsxFileSystem
    directory: Directory = "/"
    read_only: bool = True
    mount_name: Annotated[str | None, Prop(known=IN_INPUT, rule=not_empty, example="'x7jq3bmv'")] = None
    content_type: ContentType | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.mount_name is None and not hasattr(self.file_system, "mount_name"):
            raise must("mount_name", "be set for a file system that was imported", "'fsx' or 'x7jq3bmv'", "None")

    @property
    def _mount_name(self) -> str:
        return str(self.mount_name or getattr(self.file_system, "mount_name", ""))

    def channel_config(self, groups: Sequence[str] | None) -> dict[str, Any]:
        """Return the request's Channel without its name.

        Args:
            groups: Ignored: a file system is mounted in all instance groups.
        """
        path = f"/{self._mount_name}{self.directory}"
        return _config("FSxLustre", self.file_system.file_system_id, path, self.read_only, self.content_type)


@dataclass(frozen=True)
class EfsChannel(Value):
    """A channel on EFS: a directory of a file system, mounted at ``/opt/ml/input/data/<channel>``.

    Nothing is copied before the job starts. The job needs ``network=`` with mount targets of the file system. SageMaker mounts
    without an IAM role, as what EFS calls an anonymous client: with CDK's feature flag
    ``@aws-cdk/aws-efs:denyAnonymousAccess`` the file system needs ``allow_anonymous_access=True``.

    Args:
        file_system: The file system.
        directory: Absolute path of the directory within the file system.
        read_only: True mounts it read-only, False read-write.
        content_type: MIME type of the data, which SageMaker passes to the container; None for none.

    Raises:
        ValueError: ``directory`` is not an absolute path.
    """

    file_system: IEfsFileSystem
    directory: Directory = "/"
    read_only: bool = True
    content_type: ContentType | None = None

    def channel_config(self, groups: Sequence[str] | None) -> dict[str, Any]:
        """Return the request's Channel without its name.

        Args:
            groups: Ignored: a file system is mounted in all instance groups.
        """
        return _config("EFS", self.file_system.file_system_id, self.directory, self.read_only, self.content_type)


def allow_lustre(file_system: ec2.IConnectable, hosts: ec2.Connections) -> None:
    """Allow connections between hosts of jobs and the servers of a file system at Lustre's ports, in both directions.

    CDK's port range, 988 to 1023, includes the ports of FSx: 988, and 1018 to 1023 (guide, "File system access control with
    Amazon VPC"). CDK itself adds the rule among the file system's own servers.
    """
    servers = file_system.connections
    servers.allow_default_port_from(hosts, "hosts of training jobs read their channels")
    assert servers.default_port is not None
    why = "servers of a file system answer hosts of training jobs"
    for group in servers.security_groups:
        for host_group in hosts.security_groups:
            # A remote rule, so that it is in the file system's stack where the network is in another.
            host_group.add_ingress_rule(group, servers.default_port, why, True)
            if not group.allow_all_outbound:
                group.add_egress_rule(host_group, servers.default_port, why)


def _config(kind: str, id: str, directory: str, read_only: bool, content_type: str | None) -> dict[str, Any]:
    return {
        "ContentType": content_type,
        "DataSource": {
            "FileSystemDataSource": {
                "DirectoryPath": directory.rstrip("/") or "/",
                "FileSystemAccessMode": "ro" if read_only else "rw",
                "FileSystemId": id,
                "FileSystemType": kind,
            }
        },
    }
