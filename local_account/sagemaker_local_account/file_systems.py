"""What jobs see of file systems of FSx for Lustre and of EFS: moto keeps what their APIs say, a folder each holds their files.

    state/file-systems/fs-0123456789abcdef0/

The folder is the file system: every job that mounts it sees the same, and what a user puts there, jobs read. A job's request is
held against what a mount takes on AWS: the path, the network, and the policy of the file system.
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

from . import reachable
from .lustre_links import Link
from .patches import patch
from .permissions import Permissions
from .policies import Call, NotEvaluated, principals, verdict
from .reachable import Door
from .references import ImageError
from .service_errors import refused
from .spec import Mount
from .storage import StorageError
from .trees import locate

_log = logging.getLogger(__name__)

LUSTRE_PORT, NFS_PORT = 988, 2049
# All that a request says of a mount is a path, so that no role authorizes it: it is what EFS calls an anonymous client, and root.
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
    """What a mount takes to know; ``mount_name`` is "" of EFS, which has none, and ``policy`` None of Lustre."""

    id: str
    arn: str
    port: int
    doors: tuple[Door, ...]
    mount_name: str = ""
    policy: str | None = None


class FileSystems:
    """The file systems of one account, in all its regions. ``s3`` is the client by which links with buckets are kept."""

    def __init__(self, folder: Path, account: str, permissions: Permissions, s3: Any) -> None:
        self._folder = folder
        self._account = account
        self._permissions = permissions
        self._s3 = s3
        self._lock = threading.Lock()
        self.links: dict[str, Link] = {}

    def open(self) -> None:
        """Take the folder: what an earlier account held there ended with it. What moto makes and deletes has its part in it."""
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
            except OSError:  # a full disk: there is no file system then
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
        """Where the files of a file system are on this machine."""
        folder = self._folder / id
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def add_link(self, link: Link) -> None:
        """Link a folder of a file system with a bucket. Raises StorageError where FSx cannot read that."""
        self._lustre(link.file_system_id, link.region)
        with self._lock:
            link.begin(self._s3, self._permissions, self.folder(link.file_system_id))
            self.links[link.id] = link

    def check(self, request: Mapping[str, Any], region: str) -> None:
        """Refuse a job whose channels are on file systems that its region lacks, or that cannot be mounted without a network."""
        for name, source in sources(request):
            if not request.get("VpcConfig"):
                raise refused(
                    "VpcConfig must be specified for a channel with FileSystemDataSource, which is mounted in a VPC, "
                    f"got none with channel {name}"
                )
            try:
                self._find(source, region)
            except LookupError as error:
                raise refused(f"channel {name}: {error}") from None

    def mount(self, name: str, source: Mapping[str, Any], network: Mapping[str, Any], region: str) -> Mount:
        """A channel as its hosts see it, with what the buckets that its file system is linked to hold by now.

        Raises:
            StorageError: it cannot be mounted, or a bucket cannot be read; the text is the job's FailureReason.
        """
        directory = source["DirectoryPath"]
        unable = f"ClientError: Unable to mount file system: {source['FileSystemId']}, directory path: {directory}. "
        try:
            found = self._find(source, region)
        except LookupError as error:
            raise StorageError(f"{unable}{error}") from None
        read_only = source["FileSystemAccessMode"] == "ro"
        self._check_network(found, network, ec2_backends[self._account][region], unable)
        self._check_policy(found, unable, read_only=read_only)
        with self._lock:
            root = self.folder(found.id)
            for link in self._links_of(found.id):
                link.show(self._s3, self._permissions, root)
            try:
                folder = locate(root, _path_within(found, directory))
            except (ImageError, LookupError) as error:
                raise StorageError(f"{unable}{error}") from None
        if not folder.is_dir():
            raise StorageError(f"{unable}No such file or directory: the path of a channel must be there before the job")
        return Mount(f"/opt/ml/input/data/{name}", folder, read_only)

    def export(self, request: Mapping[str, Any]) -> None:
        """Write what a job has changed to the buckets whose links say so. Why one cannot be written is in the account's log."""
        written = {source["FileSystemId"] for _, source in sources(request) if source["FileSystemAccessMode"] == "rw"}
        with self._lock:
            for link in [link for id in sorted(written) for link in self._links_of(id)]:
                try:
                    link.export(self._s3, self._permissions, self.folder(link.file_system_id))
                except StorageError as error:
                    _log.warning("%s is not written to %s: %s", link.file_system_id, link.uri, error)

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
                f"File system '{id}' does not exist: the account has no FSx for Lustre of that id in {region}"
            )
        doors = tuple(Door(subnet, tuple(found.security_group_ids or ())) for subnet in found.subnet_ids)
        return FileSystem(
            id, found.resource_arn, LUSTRE_PORT, doors, (found.lustre_configuration or {}).get("MountName", "")
        )

    def _efs(self, id: str, region: str) -> FileSystem:
        found = efs_backends[self._account][region].file_systems_by_id.get(id)
        if found is None:
            raise LookupError(f"File system '{id}' does not exist: the account has no EFS of that id in {region}")
        doors = tuple(Door(it.subnet_id, tuple(it.security_groups or ())) for it in found.iter_mount_targets())
        return FileSystem(id, found.file_system_arn, NFS_PORT, doors, policy=found.file_system_policy)

    def _check_network(self, found: FileSystem, network: Mapping[str, Any], ec2: Any, unable: str) -> None:
        hosts = [Door(subnet, tuple(network["SecurityGroupIds"])) for subnet in network["Subnets"]]
        reason = reachable.why_not(ec2, hosts, found.doors, found.port)
        if reason:
            # The first sentences are the service's own, which it says of Lustre too.
            raise StorageError(
                f"{unable}File system connection timed out. Please ensure that mount target IP address of file system is "
                "reachable and the security groups you associate with file system must allow inbound access on "
                f"{'NFS' if found.port == NFS_PORT else 'Lustre'} port. ({reason})"
            )

    def _check_policy(self, found: FileSystem, unable: str, *, read_only: bool) -> None:
        """EFS in a policy of its own; without one every client that reaches it may do everything (EFS's guide)."""
        if not self._permissions.enforced or found.policy is None:
            return
        context = {"elasticfilesystem:accessedviamounttarget": ("true",), "aws:securetransport": ("false",)}
        for action in (*_OF_A_CLIENT, *([] if read_only else ["elasticfilesystem:ClientWrite"])):
            try:
                call = Call(action, found.arn, context)
                said = verdict([json.loads(found.policy)], call, lambda named: ("AWS", "*") in principals(named))
            except NotEvaluated as error:
                raise StorageError(f"{unable}{error} in its policy is not evaluated here") from None
            if said != "Allow":
                raise StorageError(
                    f"{unable}mount.nfs4: access denied by server while mounting: the policy of the file system does not let "
                    f"clients without a role do {action}"
                )


def sources(request: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The channels of a request that are on file systems: their names and FileSystemDataSources."""
    for channel in request.get("InputDataConfig", []):
        source = channel["DataSource"].get("FileSystemDataSource")
        if source is not None:
            yield channel["ChannelName"], source


def _path_within(found: FileSystem, directory: str) -> str:
    """What follows the mount name in a DirectoryPath, which begins with it on Lustre (guide, "Configure data input channel
    to use Amazon FSx for Lustre"). Raises LookupError for another name."""
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
