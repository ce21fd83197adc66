"""CloudFormation's FSx for Lustre file systems and data repository associations, which moto lacks."""

from __future__ import annotations

import secrets
from typing import Any

from moto.cloudformation.exceptions import ValidationError
from moto.ec2.exceptions import InvalidSubnetIdError
from moto.ec2.models import ec2_backends
from moto.fsx.models import fsx_backends
from typing_extensions import override

from sagemaker_local_account.aws.kms.authorization import key_arn
from sagemaker_local_account.aws.resource_base import Properties, ResourceBase, replace_unless
from sagemaker_local_account.aws.resource_types import ServiceResources, real
from sagemaker_local_account.core.location import Location
from sagemaker_local_account.storage.file_systems import FileSystems
from sagemaker_local_account.storage.lustre_links import Link
from sagemaker_local_account.storage.transfer import StorageError

_file_systems: FileSystems


def install(file_systems: FileSystems) -> None:
    """Sets the account's file systems, whose links the associations are."""
    global _file_systems
    _file_systems = file_systems


class FileSystem(ResourceBase):
    """AWS::FSx::FileSystem of type LUSTRE."""

    @override
    def create(self) -> None:
        prop = self.properties.get
        if prop("FileSystemType") != "LUSTRE":
            raise ValidationError(
                message=f"FileSystemType must be LUSTRE, the only one of the local account, got {prop('FileSystemType')!r}"
            )
        self._check()
        location, key = Location(self.account_id, self.region_name), prop("KmsKeyId")
        created = self._backend.create_file_system(
            client_request_token="",
            file_system_type="LUSTRE",
            storage_capacity=int(prop("StorageCapacity", 0)),
            storage_type=prop("StorageType", "SSD"),
            subnet_ids=prop("SubnetIds"),
            security_group_ids=prop("SecurityGroupIds", []),
            tags=prop("Tags"),
            kms_key_id=key_arn(key, location) if key else None,
            windows_configuration=None,
            lustre_configuration=prop("LustreConfiguration", {}),
            ontap_configuration=None,
            file_system_type_version=prop("FileSystemTypeVersion"),
            open_zfs_configuration=None,
        )
        self.physical_resource_id = created.file_system_id

    @override
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

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        self._backend.delete_file_system(self.physical_resource_id, "", None, None, None)

    @override
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


class DataRepositoryAssociation(ResourceBase):
    """AWS::FSx::DataRepositoryAssociation."""

    @override
    def create(self) -> None:
        prop = self.properties.get
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
            import_at_first=str(prop("BatchImportMetaDataOnCreate", False)).lower() == "true",
        )
        try:
            _file_systems.add_link(link)
        except (LookupError, StorageError) as error:
            raise ValidationError(message=str(error)) from None

    @override
    def update(self, former: Properties) -> None:
        replace_unless(self.properties, former, {"S3", "Tags"})
        link = _file_systems.links[self.physical_resource_id]
        link.imports, link.exports = _events(self.properties)

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        _file_systems.links.pop(self.physical_resource_id, None)

    @override
    def attributes(self) -> dict[str, str]:
        link = _file_systems.links[self.physical_resource_id]
        return {"AssociationId": link.id, "ResourceARN": link.arn}


def _events(properties: Properties) -> tuple[frozenset[str], frozenset[str]]:
    """What a link imports and what it exports."""
    policies = properties.get("S3", {})
    return (
        frozenset(policies.get("AutoImportPolicy", {}).get("Events", [])),
        frozenset(policies.get("AutoExportPolicy", {}).get("Events", [])),
    )


RESOURCES = ServiceResources(
    types={
        "AWS::FSx::DataRepositoryAssociation": real(
            "imports a prefix in S3 when a job starts; changes of jobs are exported when they end",
            "BatchImportMetaDataOnCreate DataRepositoryPath FileSystemId FileSystemPath ImportedFileChunkSize S3 Tags",
            made_by=DataRepositoryAssociation,
        ),
        "AWS::FSx::FileSystem": real(
            "Lustre only: a folder of the account, which jobs mount; capacity and speed are those of this machine's disk, "
            "without encryption and backups",
            "FileSystemType FileSystemTypeVersion KmsKeyId LustreConfiguration SecurityGroupIds StorageCapacity StorageType "
            "SubnetIds Tags",
            made_by=FileSystem,
            created_first=True,
        ),
    },
)
