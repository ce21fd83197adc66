"""FSx for Lustre and its links to buckets: moto has the file systems only, without a mount name and not for CloudFormation."""

from __future__ import annotations

import functools
import json
import secrets
from typing import Any

from moto.cloudformation.exceptions import ValidationError
from moto.core.exceptions import JsonRESTError
from moto.ec2.exceptions import InvalidSubnetIdError
from moto.ec2.models import ec2_backends
from moto.fsx.models import FSxBackend, fsx_backends
from moto.fsx.responses import FSxResponse

from . import reachable
from .api_calls import Place
from .emulated import Emulated, Properties, replace_unless
from .file_systems import FSX_CREATION, LUSTRE_PORT, FileSystems
from .lustre_links import Link
from .patches import add, patch
from .reachable import Door
from .resource_policies import key_arn
from .storage import StorageError

_of_the_account: FileSystems


def install(file_systems: FileSystems) -> None:
    """Give the resources of this module the account's file systems, which have been opened."""
    global _of_the_account
    _of_the_account = file_systems
    patch(
        FSxBackend,
        "create_file_system",
        _in_its_network(_with_mount_name(FSxBackend.create_file_system)),
        FSX_CREATION,
    )
    add(FSxResponse, "describe_data_repository_associations", _describe_links)


def _in_its_network(create: Any) -> Any:
    """FSx refuses a Lustre file system whose servers would not reach each other (guide, "Creating an FSx for Lustre file system
    fails"), also where the rule comes a second later (aws-parallelcluster 1198 and 6181)."""

    @functools.wraps(create)
    def in_its_network(backend: Any, *args: Any, **details: Any) -> Any:
        if details["file_system_type"] == "LUSTRE":
            groups = tuple(details["security_group_ids"] or ())
            servers = [Door(subnet, groups) for subnet in details["subnet_ids"]]
            ec2 = ec2_backends[backend.account_id][backend.region_name]
            if reachable.why_not(ec2, servers, servers, LUSTRE_PORT):
                raise JsonRESTError(
                    "InvalidNetworkSettings",
                    "The file system cannot be created because the default security group in the subnet provided or the provided "
                    f"security groups do not permit Lustre LNET network traffic on port {LUSTRE_PORT}",
                )
        return create(backend, *args, **details)

    return in_its_network


def _with_mount_name(create: Any) -> Any:
    """moto's file systems have no mount name; those of AWS have a random one, but for the oldest kind."""

    @functools.wraps(create)
    def with_mount_name(*args: Any, **details: Any) -> Any:
        created = create(*args, **details)
        given = created.lustre_configuration or {}
        oldest = given.get("DeploymentType", "SCRATCH_1") == "SCRATCH_1"
        if created.file_system_type == "LUSTRE":
            created.lustre_configuration = {**given, "MountName": "fsx" if oldest else secrets.token_hex(4)}
        return created

    return with_mount_name


def _describe_links(self: FSxResponse) -> str:
    """DescribeDataRepositoryAssociations, by their ids; without any, of all of the region."""
    wanted = json.loads(self.body).get("AssociationIds")
    here = [link for link in _of_the_account.links.values() if link.region == self.region]
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


class FileSystem(Emulated):
    """AWS::FSx::FileSystem of type LUSTRE."""

    def create(self) -> None:
        said = self.properties.get
        if said("FileSystemType") != "LUSTRE":
            raise ValidationError(
                message=f"FileSystemType must be LUSTRE, the only one of the local account, got {said('FileSystemType')!r}"
            )
        self._check()
        place, key = Place(self.account_id, self.region_name), said("KmsKeyId")
        created = self._backend.create_file_system(
            client_request_token="",
            file_system_type="LUSTRE",
            storage_capacity=int(said("StorageCapacity", 0)),
            storage_type=said("StorageType", "SSD"),
            subnet_ids=said("SubnetIds"),
            security_group_ids=said("SecurityGroupIds", []),
            tags=said("Tags"),
            kms_key_id=key_arn(key, place) if key else None,
            windows_configuration=None,
            lustre_configuration=said("LustreConfiguration", {}),
            ontap_configuration=None,
            file_system_type_version=said("FileSystemTypeVersion"),
            open_zfs_configuration=None,
        )
        self.physical_resource_id = created.file_system_id

    def update(self, former: Properties) -> None:
        replace_unless(self.properties, former, {"LustreConfiguration", "StorageCapacity", "Tags"})
        self._check()
        kept, found = former.get("LustreConfiguration", {}), self._found
        if kept.get("DeploymentType") != self.properties.get("LustreConfiguration", {}).get("DeploymentType"):
            raise NotImplementedError
        name = found.lustre_configuration["MountName"]
        found.storage_capacity = int(self.properties.get("StorageCapacity", 0))
        found.lustre_configuration = {**self.properties.get("LustreConfiguration", {}), "MountName": name}
        self._backend.tagger.delete_all_tags_for_resource(found.resource_arn)
        self._backend.tagger.tag_resource(found.resource_arn, self.properties.get("Tags", []))

    def delete(self, account_id: str, region_name: str) -> None:
        self._backend.delete_file_system(self.physical_resource_id, "", None, None, None)

    def attributes(self) -> dict[str, str]:
        found = self._found
        name = found.lustre_configuration["MountName"]
        return {"DNSName": found.dns_name, "LustreMountName": name, "ResourceARN": found.resource_arn}

    def _check(self) -> None:
        """FSx's rules that a stack may break; and the older way to link a bucket, which is not here."""
        subnets = self.properties.get("SubnetIds") or []
        if len(subnets) != 1:
            raise ValidationError(message=f"SubnetIds must have exactly one subnet for FSx for Lustre, got {subnets!r}")
        try:
            ec2_backends[self.account_id][self.region_name].get_subnet(subnets[0])
        except InvalidSubnetIdError as error:
            raise ValidationError(message=str(error.message)) from None
        older = {"ImportPath", "ExportPath", "AutoImportPolicy", "ImportedFileChunkSize"}
        if found := sorted(older & set(self.properties.get("LustreConfiguration", {}))):
            raise ValidationError(
                message=f"the local account links buckets by AWS::FSx::DataRepositoryAssociation only, got {', '.join(found)}"
            )

    @property
    def _found(self) -> Any:
        return self._backend.file_systems[self.physical_resource_id]

    @property
    def _backend(self) -> Any:
        return fsx_backends[self.account_id][self.region_name]


class DataRepositoryAssociation(Emulated):
    """AWS::FSx::DataRepositoryAssociation."""

    def create(self) -> None:
        said = self.properties.get
        id = self.physical_resource_id = f"dra-{secrets.token_hex(9)[:17]}"
        file_system = self.properties["FileSystemId"]
        link = Link(
            id,
            f"arn:aws:fsx:{self.region_name}:{self.account_id}:association/{file_system}/{id}",
            self.account_id,
            file_system,
            self.properties["FileSystemPath"],
            self.properties["DataRepositoryPath"],
            *_events(self.properties),
            import_at_first=str(said("BatchImportMetaDataOnCreate", False)).lower() == "true",
        )
        try:
            _of_the_account.add_link(link)
        except (LookupError, StorageError) as error:
            raise ValidationError(message=str(error)) from None

    def update(self, former: Properties) -> None:
        replace_unless(self.properties, former, {"S3", "Tags"})
        link = _of_the_account.links[self.physical_resource_id]
        link.imports, link.exports = _events(self.properties)

    def delete(self, account_id: str, region_name: str) -> None:
        _of_the_account.links.pop(self.physical_resource_id, None)

    def attributes(self) -> dict[str, str]:
        link = _of_the_account.links[self.physical_resource_id]
        return {"AssociationId": link.id, "ResourceARN": link.arn}


def _events(properties: Properties) -> tuple[frozenset[str], frozenset[str]]:
    """What a link imports and what it exports."""
    policies = properties.get("S3", {})
    return (
        frozenset(policies.get("AutoImportPolicy", {}).get("Events", [])),
        frozenset(policies.get("AutoExportPolicy", {}).get("Events", [])),
    )


NATIVE: dict[str, Any] = {
    "AWS::FSx::DataRepositoryAssociation": DataRepositoryAssociation,
    "AWS::FSx::FileSystem": FileSystem,
}
