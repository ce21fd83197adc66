"""The versions of secrets and their staging labels, and the errors, as AWS answered LocalStack's tests.

Source: localstack/localstack at 8b9a79f, tests/aws/services/secretsmanager/test_secretsmanager.snapshot.json. In moto
GetSecretValue has the former value once AWSCURRENT was moved, a new version takes labels of users from the old one, a version
without a label is not deprecated, and a rotation leaves AWSCURRENT on two versions.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any

from moto.secretsmanager.exceptions import (
    InvalidRequestException,
    ResourceNotFoundException,
    SecretNotFoundException,
    SecretsManagerClientError,
    ValidationException,
)
from moto.secretsmanager.models import FakeSecret, ReplicaSecret, SecretsManagerBackend, secretsmanager_backends
from moto.secretsmanager.responses import SecretsManagerResponse

from sagemaker_local_account.core.patches import patch

_NAME = re.compile(r"[A-Za-z0-9/_+=.@!-]+")
_DAY = 86_400
_DELETED = "You can't perform this operation on the secret because it was marked for deletion."
_create = SecretsManagerBackend.create_secret
_get = SecretsManagerBackend.get_secret_value
_update_stage = SecretsManagerBackend.update_secret_version_stage
_tag, _untag = SecretsManagerBackend.tag_resource, SecretsManagerBackend.untag_resource
_to_dict = FakeSecret.to_dict


def install() -> None:
    """Patches moto's secrets."""
    backend = SecretsManagerBackend
    created = "name, secret_string, secret_binary, description, tags, kms_key_id, client_request_token, replica_regions"
    patch(backend, "create_secret", _created, f"self, {created}, force_overwrite")
    patch(backend, "get_secret_value", _value, "self, secret_id, version_id, version_stage")
    moved = "self, secret_id, version_stage, remove_from_version_id, move_to_version_id"
    patch(backend, "update_secret_version_stage", _moved, moved)
    rotated = "self, secret_id, client_request_token, rotation_lambda_arn, rotation_rules, rotate_immediately"
    patch(backend, "rotate_secret", _refuse_rotation, rotated)
    patch(backend, "tag_resource", _tagged, "self, arn, tags")
    patch(backend, "untag_resource", _untagged, "self, arn, tag_keys")
    patch(FakeSecret, "reset_default_version", _new_version, "self, secret_version, version_id")
    patch(FakeSecret, "to_dict", _described, "self")
    patch(SecretsManagerResponse, "list_secret_version_ids", _listed, "self")
    patch(SecretsManagerResponse, "backend", property(_backend))
    patch(SecretsManagerClientError, "__init__", _error, "self, error_type, message, _, **kwargs")


_as_moto = SecretsManagerClientError.__init__


def _error(self: SecretsManagerClientError, error_type: str, message: str, _: str = "", **kwargs: Any) -> None:
    _as_moto(self, error_type, message, **kwargs)
    self.code = 400
    member = "message" if error_type == "ValidationException" else "Message"
    self.description = json.dumps({"__type": error_type, member: message})


def _backend(self: SecretsManagerResponse) -> SecretsManagerBackend:
    """Checks the name in each request."""
    id = self._get_param("SecretId") or self._get_param("Name")
    if id and not str(id).startswith("arn:") and not _NAME.fullmatch(str(id)):
        raise ValidationException(
            "Invalid name. Must be a valid name containing alphanumeric characters, or any of the following: -/_+=.@!"
        )
    found: SecretsManagerBackend = secretsmanager_backends[self.current_account][self.region]
    return found


def _created(self: SecretsManagerBackend, name: str, *args: Any, **kwargs: Any) -> str:
    if name in self.secrets and self.secrets[name].is_deleted():
        raise InvalidRequestException(
            "You can't create this secret because a secret with this name is already scheduled for deletion."
        )
    made: str = _create(self, name, *args, **kwargs)
    return made


def _value(self: SecretsManagerBackend, secret_id: str, version_id: str, version_stage: str) -> dict[str, Any]:
    secret = self.secrets.get(secret_id)
    labels = [] if secret is None else [label for it in secret.versions.values() for label in it["version_stages"]]
    if (
        secret is not None
        and not secret.is_deleted()
        and version_stage
        and not version_id
        and version_stage not in labels
    ):
        raise ResourceNotFoundException(
            f"Secrets Manager can't find the specified secret value for staging label: {version_stage}"
        )
    found: dict[str, Any] = _get(self, secret_id, version_id, version_stage)
    secret = self.secrets[secret_id]
    today = int(time.time()) // _DAY * _DAY  # "the date that the secret was last accessed", without the time
    of_replica = secret.source if isinstance(secret, ReplicaSecret) else secret
    of_replica.account_accessed = of_replica.versions[found["VersionId"]]["account_accessed"] = today
    return found


def _moved(
    self: SecretsManagerBackend,
    secret_id: str,
    version_stage: str,
    remove_from_version_id: str,
    move_to_version_id: str,
) -> tuple[str, str]:
    answer: tuple[str, str] = _update_stage(self, secret_id, version_stage, remove_from_version_id, move_to_version_id)
    if version_stage == "AWSCURRENT" and move_to_version_id:
        self.secrets[secret_id].default_version_id = move_to_version_id
    return answer


def _refuse_rotation(
    self: SecretsManagerBackend,
    secret_id: str,
    client_request_token: Any = None,
    rotation_lambda_arn: Any = None,
    rotation_rules: Any = None,
    rotate_immediately: bool = True,
) -> str:
    if not rotation_lambda_arn:
        raise InvalidRequestException("No Lambda rotation function ARN is associated with this secret.")
    raise InvalidRequestException("the local account does not rotate secrets; put another value, by PutSecretValue")


def _tagged(self: SecretsManagerBackend, arn: str, tags: dict[str, str]) -> None:
    _refuse_deleted(self, arn)
    _tag(self, arn, tags)


def _untagged(self: SecretsManagerBackend, arn: str, tag_keys: list[str]) -> None:
    _refuse_deleted(self, arn)
    _untag(self, arn, tag_keys)


def _refuse_deleted(backend: SecretsManagerBackend, arn: str) -> None:
    if arn in backend.secrets and backend.secrets[arn].is_deleted():
        raise InvalidRequestException(_DELETED)


def _new_version(self: FakeSecret, secret_version: dict[str, Any], version_id: str) -> None:
    """Moves the labels of the new version to it; the one that was current is the previous one, and keeps labels of users."""
    for version in self.versions.values():
        was_current = "AWSCURRENT" in version["version_stages"]
        taken = {*secret_version["version_stages"], "AWSPREVIOUS", *(["AWSPENDING"] if was_current else [])}
        version["version_stages"] = [it for it in version["version_stages"] if it not in taken]
        if was_current:
            version["version_stages"].append("AWSPREVIOUS")
    self.versions[version_id] = secret_version
    self.default_version_id = version_id


def _described(self: FakeSecret) -> dict[str, Any]:
    described: dict[str, Any] = _to_dict(self)
    described["LastAccessedDate"] = getattr(self, "account_accessed", None)
    for name in ("VersionIdsToStages", "SecretVersionsToStages"):
        if name in described:
            described[name] = {id: stages for id, stages in described[name].items() if stages}
    return described


def _listed(self: SecretsManagerResponse) -> str:
    """ListSecretVersionIds: a version without a label is deprecated."""
    id = self._get_param("SecretId")
    secret = self.backend.secrets.get(id)
    if secret is None:
        raise SecretNotFoundException()
    deprecated = self._get_param("IncludeDeprecated")
    versions = [
        {
            "VersionId": id,
            "CreatedDate": version["createdate"],
            **({"VersionStages": version["version_stages"]} if version["version_stages"] else {}),
            **({"LastAccessedDate": version["account_accessed"]} if "account_accessed" in version else {}),
            "KmsKeyIds": [secret.kms_key_id or "DefaultEncryptionKey"],
        }
        for id, version in secret.versions.items()
        if deprecated or version["version_stages"]
    ]
    return json.dumps({"ARN": secret.arn, "Name": secret.name, "Versions": versions})
