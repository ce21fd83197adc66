"""CloudFormation's KMS keys and aliases.

moto's CloudFormation supports a key's policy, description and rotation, drops other properties, cannot update a key, and removes
a deleted key at once; on AWS a deleted key is pending deletion.
"""

from __future__ import annotations

import json
from typing import Any

from moto.cloudformation.exceptions import ValidationError
from moto.kms.models import kms_backends
from typing_extensions import override

from sagemaker_local_account.aws.resource_base import Properties, ResourceBase, is_true
from sagemaker_local_account.aws.resource_types import ServiceResources, real

_DAYS = 30  # the default of PendingWindowInDays


class Key(ResourceBase):
    """AWS::KMS::Key."""

    @override
    def create(self) -> None:
        prop = self.properties.get
        if prop("KeyUsage", "ENCRYPT_DECRYPT") != "ENCRYPT_DECRYPT" and "KeySpec" not in self.properties:
            raise ValidationError(message=f"KeySpec is missing; a key with KeyUsage {prop('KeyUsage')} needs it")
        key = self._backend.create_key(
            policy=_policy(self.properties),
            key_usage=prop("KeyUsage", "ENCRYPT_DECRYPT"),
            key_spec=prop("KeySpec", "SYMMETRIC_DEFAULT"),
            description=prop("Description", ""),
            tags=None,
            multi_region=is_true(prop("MultiRegion", False)),
        )
        self.physical_resource_id = key.id
        self._set()

    @override
    def update(self, former: Properties) -> None:
        for name in ("KeyUsage", "KeySpec", "MultiRegion"):
            if self.properties.get(name) != former.get(name):
                raise ValidationError(message=f"{name} of a KMS key cannot be changed; give the key another logical id")
        self._set()

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        self._backend.schedule_key_deletion(
            self.physical_resource_id, int(self.properties.get("PendingWindowInDays", _DAYS))
        )

    @override
    def attributes(self) -> dict[str, str]:
        return {"Arn": self._backend.keys[self.physical_resource_id].arn, "KeyId": self.physical_resource_id}

    def _set(self) -> None:
        key = self._backend.keys[self.physical_resource_id]
        policy = _policy(self.properties)
        key.policy = policy or key.generate_default_policy()
        key.description = self.properties.get("Description", "")
        key.key_rotation_status = is_true(self.properties.get("EnableKeyRotation", False))
        key.rotation_period_in_days = int(self.properties.get("RotationPeriodInDays", 365))
        (self._backend.enable_key if is_true(self.properties.get("Enabled", True)) else self._backend.disable_key)(
            key.id
        )
        tags = [{"TagKey": tag["Key"], "TagValue": tag["Value"]} for tag in self.properties.get("Tags", [])]
        self._backend.tagger.delete_all_tags_for_resource(key.id)
        self._backend.tagger.tag_resource(key.id, tags)

    @property
    def _backend(self) -> Any:
        return kms_backends[self.account_id][self.region_name]


class Alias(ResourceBase):
    """AWS::KMS::Alias."""

    @override
    def create(self) -> None:
        name = self.physical_resource_id = self.properties["AliasName"]
        if not name.startswith("alias/"):
            raise ValidationError(message=f"AliasName must begin with alias/, like alias/mine, got {name!r}")
        if self._backend.alias_exists(name):
            raise ValidationError(message=f"{name} already exists")
        self._backend.create_alias(target_key_id=self.properties["TargetKeyId"], alias_name=name)

    @override
    def update(self, former: Properties) -> None:
        if self.properties["AliasName"] != former["AliasName"]:
            raise NotImplementedError
        self._backend.update_alias(target_key_id=self.properties["TargetKeyId"], alias_name=self.physical_resource_id)

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        self._backend.delete_alias(self.physical_resource_id)

    @property
    def _backend(self) -> Any:
        return kms_backends[self.account_id][self.region_name]


def _policy(properties: Properties) -> str | None:
    policy = properties.get("KeyPolicy")
    return json.dumps(policy) if isinstance(policy, dict) else policy


RESOURCES = ServiceResources(
    types={
        "AWS::KMS::Alias": real("names a key", "AliasName TargetKeyId", made_by=Alias),
        "AWS::KMS::Key": real(
            "encrypts and decrypts while it is enabled; a deleted key is pending deletion; keys are not rotated",
            "Description EnableKeyRotation Enabled KeyPolicy KeySpec KeyUsage MultiRegion PendingWindowInDays Tags",
            made_by=Key,
        ),
    },
)
