"""EFS's resources in CloudFormation, which moto supports without Fn::GetAtt, updates and file system policies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from moto.efs.models import efs_backends
from typing_extensions import override

from sagemaker_local_account.aws.resource_base import Properties, ResourceBase, is_true, replace_unless
from sagemaker_local_account.aws.resource_types import ServiceResources, real


class FileSystem(ResourceBase):
    """AWS::EFS::FileSystem."""

    @override
    def create(self) -> None:
        prop = self.properties.get
        created = self._backend.create_file_system(
            self.physical_resource_id,
            performance_mode=prop("PerformanceMode", "generalPurpose"),
            encrypted=is_true(prop("Encrypted", False)),
            kms_key_id=prop("KmsKeyId"),
            throughput_mode=prop("ThroughputMode", "bursting"),
            provisioned_throughput_in_mibps=prop("ProvisionedThroughputInMibps", 0),
            availability_zone_name=prop("AvailabilityZoneName"),
            backup=False,
            tags=[],
        )
        self.physical_resource_id = created.file_system_id
        self._set()

    @override
    def update(self, former: Properties) -> None:
        fixed = {"AvailabilityZoneName", "Encrypted", "KmsKeyId", "PerformanceMode"}
        replace_unless(self.properties, former, (set(self.properties) | set(former)) - fixed)
        self._set()

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        self._backend.delete_file_system(self.physical_resource_id)

    @override
    def attributes(self) -> dict[str, str]:
        return {"Arn": self._found.file_system_arn, "FileSystemId": self.physical_resource_id}

    def _set(self) -> None:
        found, prop = self._found, self.properties.get
        found.throughput_mode = prop("ThroughputMode", "bursting")
        found.provisioned_throughput_in_mibps = prop("ProvisionedThroughputInMibps", 0)
        found.lifecycle_policies = prop("LifecyclePolicies", [])
        found._backup = prop("BackupPolicy", {}).get("Status") == "ENABLED"
        found.file_system_policy = json.dumps(prop("FileSystemPolicy")) if prop("FileSystemPolicy") else None
        _retag(self._backend, self.physical_resource_id, prop("FileSystemTags", []))

    @property
    def _found(self) -> Any:
        return self._backend.file_systems_by_id[self.physical_resource_id]

    @property
    def _backend(self) -> Any:
        return efs_backends[self.account_id][self.region_name]


class MountTarget(ResourceBase):
    """AWS::EFS::MountTarget."""

    @override
    def create(self) -> None:
        prop = self.properties.get
        created = self._backend.create_mount_target(
            prop("FileSystemId"), prop("SubnetId"), prop("IpAddress"), prop("SecurityGroups")
        )
        self.physical_resource_id = created.mount_target_id

    @override
    def update(self, former: Properties) -> None:
        replace_unless(self.properties, former, {"SecurityGroups"})
        self._backend.modify_mount_target_security_groups(self.physical_resource_id, self.properties["SecurityGroups"])

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        self._backend.delete_mount_target(self.physical_resource_id)

    @override
    def attributes(self) -> dict[str, str]:
        found = self._backend.mount_targets_by_id[self.physical_resource_id]
        return {"Id": found.mount_target_id, "IpAddress": found.ip_address}

    @property
    def _backend(self) -> Any:
        return efs_backends[self.account_id][self.region_name]


class AccessPoint(ResourceBase):
    """AWS::EFS::AccessPoint, which training jobs do not use."""

    @override
    def create(self) -> None:
        prop = self.properties.get
        token = prop("ClientToken", self.physical_resource_id)
        created = self._backend.create_access_point(
            token, [], self.properties["FileSystemId"], prop("PosixUser", {}), prop("RootDirectory", {})
        )
        self.physical_resource_id = created.access_point_id
        _retag(self._backend, self.physical_resource_id, prop("AccessPointTags", []))

    @override
    def update(self, former: Properties) -> None:
        replace_unless(self.properties, former, {"AccessPointTags"})
        _retag(self._backend, self.physical_resource_id, self.properties.get("AccessPointTags", []))

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        self._backend.delete_access_point(self.physical_resource_id)

    @override
    def attributes(self) -> dict[str, str]:
        found = self._backend.access_points[self.physical_resource_id]
        return {"AccessPointId": found.access_point_id, "Arn": found.access_point_arn}

    @property
    def _backend(self) -> Any:
        return efs_backends[self.account_id][self.region_name]


def _retag(backend: Any, id: str, tags: list[Mapping[str, str]]) -> None:
    backend.tagging_service.delete_all_tags_for_resource(id)
    backend.tagging_service.tag_resource(id, tags)


RESOURCES = ServiceResources(
    types={
        "AWS::EFS::AccessPoint": real(
            "stored; training jobs mount file systems without one, so its root directory is not created for them",
            "AccessPointTags ClientToken FileSystemId PosixUser RootDirectory",
            made_by=AccessPoint,
        ),
        "AWS::EFS::FileSystem": real(
            "a folder of the account, which jobs mount; its policy is evaluated; without encryption, backups and "
            "lifecycle policies",
            "AvailabilityZoneName BackupPolicy Encrypted FileSystemPolicy FileSystemTags KmsKeyId LifecyclePolicies "
            "PerformanceMode ProvisionedThroughputInMibps ThroughputMode",
            made_by=FileSystem,
        ),
        "AWS::EFS::MountTarget": real(
            "allows jobs in its VPC to mount the file system, if its security groups do",
            "FileSystemId IpAddress SecurityGroups SubnetId",
            made_by=MountTarget,
        ),
    },
)
