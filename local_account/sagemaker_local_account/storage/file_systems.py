"""File systems of FSx for Lustre and EFS: moto has their APIs, and a folder each has their files.

    state/file-systems/fs-0123456789abcdef0/

Every job that mounts a file system shares its folder, and files that the user puts there are visible to jobs. As on AWS, a mount
is
checked: its path, the network, and the file system's policy.
"""

from __future__ import annotations

import functools
import json
import logging
import shutil
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moto.ec2.models import ec2_backends
from moto.efs.models import EFSBackend, efs_backends
from moto.fsx.models import FSxBackend, fsx_backends

from sagemaker_local_account.core.image_names import ImageError
from sagemaker_local_account.core.image_tree import locate
from sagemaker_local_account.core.patches import patch
from sagemaker_local_account.core.service_errors import refused
from sagemaker_local_account.iam.authorizer import Authorizer
from sagemaker_local_account.iam.policies import Call, UnsupportedCondition, effect_of, principals
from sagemaker_local_account.runtime.spec import Mount
from sagemaker_local_account.storage import reachable
from sagemaker_local_account.storage.lustre_links import Link
from sagemaker_local_account.storage.reachable import NetworkInterface
from sagemaker_local_account.storage.transfer import StorageError

_log = logging.getLogger(__name__)

LUSTRE_PORT, NFS_PORT = 988, 2049
# A request has no role for a mount, so the client is anonymous in EFS's terms, and root.
_OF_A_CLIENT = ("elasticfilesystem:ClientMount", "elasticfilesystem:ClientRootAccess")
# The parameters of moto's creation and deletion of a file system.
FSX_CREATION = (
    "self, client_request_token, file_system_type, storage_capacity, storage_type, subnet_ids, "
    "security_group_ids, tags, kms_key_id, windows_configuration, lustre_configuration, "
    "ontap_configuration, file_system_type_version, open_zfs_configuration"
)
_SIGNATURES: dict[Any, tuple[str, str]] = {
    EFSBackend: (
        "self, creation_token, performance_mode, encrypted, kms_key_id, throughput_mode, "
        "provisioned_throughput_in_mibps, availability_zone_name, backup, tags",
        "self, file_system_id",
    ),
    FSxBackend: (
        FSX_CREATION,
        "self, file_system_id, client_request_token, windows_configuration, lustre_configuration, "
        "open_zfs_configuration",
    ),
}


@dataclass(frozen=True)
class FileSystem:
    """A file system for a mount.

    Args:
        id: its id.
        arn: its ARN.
        port: the TCP port of its servers.
        interfaces: the network interfaces of its servers or mount targets.
        mount_name: Lustre's mount name; "" for EFS.
        policy: EFS's file system policy; None without one.
    """

    id: str
    arn: str
    port: int
    interfaces: tuple[NetworkInterface, ...]
    mount_name: str = ""
    policy: str | None = None


class FileSystems:
    """The file systems of one account, in all its regions.

    Args:
        folder: the folder for their files.
        account: the account id.
        authorizer: evaluates policies.
        s3: the client for data repository associations.
    """

    def __init__(self, folder: Path, account: str, authorizer: Authorizer, s3: Any) -> None:
        self._folder = folder
        self._account = account
        self._authorizer = authorizer
        self._s3 = s3
        self._lock = threading.Lock()
        self.links: dict[str, Link] = {}

    def open(self) -> None:
        """Empties the folder, and patches moto to make and remove the folders of file systems."""
        shutil.rmtree(self._folder, ignore_errors=True)
        for backend, (creation, deletion) in _SIGNATURES.items():
            patch(backend, "create_file_system", self._with_folder(backend.create_file_system), creation)
            patch(backend, "delete_file_system", self._without_folder(backend.delete_file_system), deletion)

    def _with_folder(self, moto_creates: Any) -> Any:
        @functools.wraps(moto_creates)
        def create(*args: Any, **details: Any) -> Any:
            created = moto_creates(*args, **details)
            try:
                self.folder(created.file_system_id)
            except OSError:  # a full disk
                args[0].delete_file_system(created.file_system_id)
                raise
            return created

        return create

    def _without_folder(self, moto_deletes: Any) -> Any:
        @functools.wraps(moto_deletes)
        def delete(backend: Any, file_system_id: str, *args: Any, **details: Any) -> Any:
            answer = moto_deletes(backend, file_system_id, *args, **details)
            self.links = {name: link for name, link in self.links.items() if link.file_system_id != file_system_id}
            shutil.rmtree(self._folder / file_system_id, ignore_errors=True)
            return answer

        return delete

    def folder(self, id: str) -> Path:
        """Returns the folder of a file system on this machine."""
        folder = self._folder / id
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def add_link(self, link: Link) -> None:
        """Adds a data repository association.

        Raises:
            LookupError: the file system does not exist.
            StorageError: FSx cannot read the bucket.
        """
        self._lustre(link.file_system_id, link.region)
        with self._lock:
            link.initialize(self._s3, self._authorizer, self.folder(link.file_system_id))
            self.links[link.id] = link

    def check(self, request: Mapping[str, Any], region: str) -> None:
        """Raises ServiceError for a job with channels on file systems that its region lacks, or without VpcConfig."""
        for name, source in sources(request):
            if not request.get("VpcConfig"):
                raise refused(
                    f"VpcConfig must be specified for a channel with FileSystemDataSource, got none with channel {name}"
                )
            try:
                self._find(source, region)
            except LookupError as error:
                raise refused(f"channel {name}: {error}") from None

    def mount(self, name: str, source: Mapping[str, Any], network: Mapping[str, Any], region: str) -> Mount:
        """Mounts a channel's file system, after importing changes from linked buckets.

        Args:
            name: the channel's name.
            source: its FileSystemDataSource.
            network: the job's VpcConfig.
            region: the job's region.

        Raises:
            StorageError: it cannot be mounted, or a bucket cannot be read; the message is the job's FailureReason.
        """
        directory = source["DirectoryPath"]
        prefix = f"ClientError: Unable to mount file system: {source['FileSystemId']}, directory path: {directory}. "
        try:
            found = self._find(source, region)
        except LookupError as error:
            raise StorageError(f"{prefix}{error}") from None
        read_only = source["FileSystemAccessMode"] == "ro"
        self._check_network(found, network, ec2_backends[self._account][region], prefix)
        self._check_policy(found, prefix, read_only=read_only)
        with self._lock:
            root = self.folder(found.id)
            for link in self._links_of(found.id):
                link.import_changes(self._s3, self._authorizer, root)
            try:
                folder = locate(root, _path_within(found, directory))
            except (ImageError, LookupError) as error:
                raise StorageError(f"{prefix}{error}") from None
        if not folder.is_dir():
            raise StorageError(f"{prefix}No such file or directory: the path of a channel must exist before the job")
        return Mount(f"/opt/ml/input/data/{name}", folder, read_only)

    def export(self, request: Mapping[str, Any]) -> None:
        """Exports the changes of a job to linked buckets; errors are logged."""
        written = {source["FileSystemId"] for _, source in sources(request) if source["FileSystemAccessMode"] == "rw"}
        with self._lock:
            for link in [link for id in sorted(written) for link in self._links_of(id)]:
                try:
                    link.export(self._s3, self._authorizer, self.folder(link.file_system_id))
                except StorageError as error:
                    _log.warning("%s is not exported to %s: %s", link.file_system_id, link.uri, error)

    def _links_of(self, id: str) -> list[Link]:
        return [link for link in self.links.values() if link.file_system_id == id]

    def _find(self, source: Mapping[str, Any], region: str) -> FileSystem:
        """Raises LookupError where the region has no such file system of that type."""
        find = {"EFS": self._efs, "FSxLustre": self._lustre}[source["FileSystemType"]]
        return find(source["FileSystemId"], region)

    def _lustre(self, id: str, region: str) -> FileSystem:
        found = fsx_backends[self._account][region].file_systems.get(id)
        if found is None or found.file_system_type != "LUSTRE":
            raise LookupError(
                f"File system '{id}' does not exist: the account has no FSx for Lustre file system with that id in {region}"
            )
        interfaces = tuple(
            NetworkInterface(subnet, tuple(found.security_group_ids or ())) for subnet in found.subnet_ids
        )
        return FileSystem(
            id, found.resource_arn, LUSTRE_PORT, interfaces, (found.lustre_configuration or {}).get("MountName", "")
        )

    def _efs(self, id: str, region: str) -> FileSystem:
        found = efs_backends[self._account][region].file_systems_by_id.get(id)
        if found is None:
            raise LookupError(
                f"File system '{id}' does not exist: the account has no EFS file system with that id in {region}"
            )
        interfaces = tuple(
            NetworkInterface(it.subnet_id, tuple(it.security_groups or ())) for it in found.iter_mount_targets()
        )
        return FileSystem(id, found.file_system_arn, NFS_PORT, interfaces, policy=found.file_system_policy)

    def _check_network(self, found: FileSystem, network: Mapping[str, Any], ec2: Any, prefix: str) -> None:
        hosts = [NetworkInterface(subnet, tuple(network["SecurityGroupIds"])) for subnet in network["Subnets"]]
        reason = reachable.blocked_reason(ec2, hosts, found.interfaces, found.port)
        if reason:
            # The first sentences are the service's, also for Lustre.
            raise StorageError(
                f"{prefix}File system connection timed out. Please ensure that mount target IP address of file system is "
                "reachable and the security groups you associate with file system must allow inbound access on "
                f"{'NFS' if found.port == NFS_PORT else 'Lustre'} port. ({reason})"
            )

    def _check_policy(self, found: FileSystem, prefix: str, *, read_only: bool) -> None:
        """Evaluates EFS's file system policy; without one every client is allowed everything (EFS's guide)."""
        if not self._authorizer.enforced or found.policy is None:
            return
        context = {"elasticfilesystem:accessedviamounttarget": ("true",), "aws:securetransport": ("false",)}
        for action in (*_OF_A_CLIENT, *([] if read_only else ["elasticfilesystem:ClientWrite"])):
            try:
                call = Call(action, found.arn, context)
                effect = effect_of(
                    [json.loads(found.policy)],
                    call,
                    lambda statement: ("AWS", "*") in principals(statement.get("Principal")),
                )
            except UnsupportedCondition as error:
                raise StorageError(f"{prefix}{error} in its policy is not evaluated here") from None
            if effect != "Allow":
                raise StorageError(
                    f"{prefix}mount.nfs4: access denied by server while mounting: the policy of the file system does not allow "
                    f"anonymous clients the action {action}"
                )


def sources(request: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the names and FileSystemDataSources of the channels on file systems."""
    for channel in request.get("InputDataConfig", []):
        source = channel["DataSource"].get("FileSystemDataSource")
        if source is not None:
            yield channel["ChannelName"], source


def _path_within(found: FileSystem, directory: str) -> str:
    """The path within a file system: for Lustre, DirectoryPath without the mount name; raises LookupError for another name.

    Source: SageMaker's guide, "Configure data input channel to use Amazon FSx for Lustre".
    """
    if not directory.startswith("/"):
        raise LookupError(f"DirectoryPath must be absolute, like '/images', got {directory!r}")
    if not found.mount_name:
        return directory
    name, _, rest = directory[1:].partition("/")
    if name != found.mount_name:
        raise LookupError(
            f"Is '{name}' the correct filesystem name? DirectoryPath must begin with the mount name of the file system, like "
            f"'/{found.mount_name}/images'"
        )
    return rest
