"""FSx for Lustre in moto: mount names, the check of the network, and DescribeDataRepositoryAssociations."""

from __future__ import annotations

import functools
import json
import secrets
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.ec2.models import ec2_backends
from moto.fsx.models import FSxBackend
from moto.fsx.responses import FSxResponse

from sagemaker_local_account.core.patches import add, patch
from sagemaker_local_account.storage import reachable
from sagemaker_local_account.storage.file_systems import FSX_CREATION, LUSTRE_PORT, FileSystems
from sagemaker_local_account.storage.reachable import NetworkInterface

_file_systems: FileSystems


def install(file_systems: FileSystems) -> None:
    """Patches moto's FSx; `FileSystems.open` must have been called."""
    global _file_systems
    _file_systems = file_systems
    patch(
        FSxBackend,
        "create_file_system",
        _check_network(_with_mount_name(FSxBackend.create_file_system)),
        FSX_CREATION,
    )
    add(FSxResponse, "describe_data_repository_associations", _describe_associations)


def _check_network(create: Any) -> Any:
    """Rejects a Lustre file system whose servers cannot reach each other, as FSx does.

    Source: FSx's guide, "Creating an FSx for Lustre file system fails"; also where the security group's rule is created a second
    later (aws-parallelcluster 1198 and 6181).
    """

    @functools.wraps(create)
    def checked(backend: Any, *args: Any, **details: Any) -> Any:
        if details["file_system_type"] == "LUSTRE":
            groups = tuple(details["security_group_ids"] or ())
            if not details["subnet_ids"]:  # required (service model)
                raise JsonRESTError("BadRequest", "SubnetIds must name a subnet, like subnet-0a1b2c3d, got none")
            servers = [NetworkInterface(subnet, groups) for subnet in details["subnet_ids"]]
            ec2 = ec2_backends[backend.account_id][backend.region_name]
            if reachable.blocked_reason(ec2, servers, servers, LUSTRE_PORT):
                raise JsonRESTError(
                    "InvalidNetworkSettings",
                    "The file system cannot be created because the default security group in the subnet provided or the provided "
                    f"security groups do not permit Lustre LNET network traffic on port {LUSTRE_PORT}",
                )
        return create(backend, *args, **details)

    return checked


def _with_mount_name(create: Any) -> Any:
    """Adds the mount name, which moto lacks: random, except "fsx" for SCRATCH_1."""

    @functools.wraps(create)
    def with_mount_name(*args: Any, **details: Any) -> Any:
        created = create(*args, **details)
        given = created.lustre_configuration or {}
        oldest = given.get("DeploymentType", "SCRATCH_1") == "SCRATCH_1"
        if created.file_system_type == "LUSTRE":
            created.lustre_configuration = {**given, "MountName": "fsx" if oldest else secrets.token_hex(4)}
        return created

    return with_mount_name


def _describe_associations(self: FSxResponse) -> str:
    """DescribeDataRepositoryAssociations by ids, or of the whole region."""
    wanted = json.loads(self.body).get("AssociationIds")
    here = [link for link in _file_systems.links.values() if link.region == self.region]
    links = [link for link in here if not wanted or link.id in wanted]
    return json.dumps(
        {
            "Associations": [
                {
                    "AssociationId": link.id,
                    "ResourceARN": link.arn,
                    "FileSystemId": link.file_system_id,
                    "FileSystemPath": link.path,
                    "DataRepositoryPath": link.uri,
                    "BatchImportMetaDataOnCreate": link.import_at_first,
                    "Lifecycle": "AVAILABLE",
                    "S3": {
                        "AutoImportPolicy": {"Events": sorted(link.imports)},
                        "AutoExportPolicy": {"Events": sorted(link.exports)},
                    },
                }
                for link in links
            ]
        }
    )
