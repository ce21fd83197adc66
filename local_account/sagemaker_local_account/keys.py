"""KMS keys, which stop working when they are disabled or deleted, and CloudFormation's keys and aliases.

moto's CloudFormation takes a key's policy, description and rotation, drops the rest, cannot change it, and forgets a deleted
key at once; on AWS it waits for its deletion. moto encrypts with keys in any state.
"""

from __future__ import annotations

import functools
import json
from typing import Any

from moto.cloudformation.exceptions import ValidationError
from moto.core.exceptions import JsonRESTError
from moto.kms.models import KmsBackend, kms_backends

from .emulated import Emulated, Properties, is_true
from .patches import patch

_DAYS = 30  # PendingWindowInDays unless said


def install() -> None:
    patch(KmsBackend, "decrypt", _decrypt, "self, ciphertext_blob, encryption_context, key_id")
    for name, parameters in _WITH_A_KEY.items():
        patch(KmsBackend, name, _only_with_an_enabled_key(name), parameters)


def _only_with_an_enabled_key(name: str) -> Any:
    operation = getattr(KmsBackend, name)

    @functools.wraps(operation)
    def guarded(self: KmsBackend, key_id: str, *args: Any, **details: Any) -> Any:
        _check(self.keys.get(self.any_id_to_key_id(key_id)))
        return operation(self, key_id, *args, **details)

    return guarded


def _decrypt(self: KmsBackend, ciphertext_blob: bytes, *args: Any, **details: Any) -> Any:
    # moto's ciphertext begins with its key's id.
    _check(self.keys.get(ciphertext_blob[:36].decode(errors="replace")))
    return _moto_decrypt(self, ciphertext_blob, *args, **details)


_moto_decrypt = KmsBackend.decrypt
_WITH_A_KEY = {
    "encrypt": "self, key_id, plaintext, encryption_context",
    "generate_data_key": "self, key_id, encryption_context, number_of_bytes, key_spec",
    "create_grant": "self, key_id, grantee_principal, operations, name, constraints, retiring_principal",
}


def _check(key: Any) -> None:
    if key is None:
        return  # moto says so
    if key.key_state == "PendingDeletion":
        raise JsonRESTError("KMSInvalidStateException", f"{key.arn} is pending deletion.")
    if not key.enabled:
        raise JsonRESTError("DisabledException", f"{key.arn} is disabled.")


class Key(Emulated):
    """AWS::KMS::Key."""

    def create(self) -> None:
        said = self.properties.get
        if said("KeyUsage", "ENCRYPT_DECRYPT") != "ENCRYPT_DECRYPT" and "KeySpec" not in self.properties:
            raise ValidationError(message=f"KeySpec is missing; a key with KeyUsage {said('KeyUsage')} needs it")
        key = self._backend.create_key(
            policy=_policy(self.properties),
            key_usage=said("KeyUsage", "ENCRYPT_DECRYPT"),
            key_spec=said("KeySpec", "SYMMETRIC_DEFAULT"),
            description=said("Description", ""),
            tags=None,
            multi_region=is_true(said("MultiRegion", False)),
        )
        self.physical_resource_id = key.id
        self._set()

    def update(self, former: Properties) -> None:
        for name in ("KeyUsage", "KeySpec", "MultiRegion"):
            if self.properties.get(name) != former.get(name):
                raise ValidationError(message=f"{name} of a KMS key cannot be changed; give the key another logical id")
        self._set()

    def delete(self, account_id: str, region_name: str) -> None:
        self._backend.schedule_key_deletion(
            self.physical_resource_id, int(self.properties.get("PendingWindowInDays", _DAYS))
        )

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


class Alias(Emulated):
    """AWS::KMS::Alias."""

    def create(self) -> None:
        name = self.physical_resource_id = self.properties["AliasName"]
        if not name.startswith("alias/"):
            raise ValidationError(message=f"AliasName must begin with alias/, like alias/mine, got {name!r}")
        if self._backend.alias_exists(name):
            raise ValidationError(message=f"{name} already exists")
        self._backend.create_alias(target_key_id=self.properties["TargetKeyId"], alias_name=name)

    def update(self, former: Properties) -> None:
        if self.properties["AliasName"] != former["AliasName"]:
            raise NotImplementedError
        self._backend.update_alias(target_key_id=self.properties["TargetKeyId"], alias_name=self.physical_resource_id)

    def delete(self, account_id: str, region_name: str) -> None:
        self._backend.delete_alias(self.physical_resource_id)

    @property
    def _backend(self) -> Any:
        return kms_backends[self.account_id][self.region_name]


def _policy(properties: Properties) -> str | None:
    policy = properties.get("KeyPolicy")
    return json.dumps(policy) if isinstance(policy, dict) else policy


NATIVE: dict[str, Any] = {"AWS::KMS::Alias": Alias, "AWS::KMS::Key": Key}
