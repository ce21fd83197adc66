"""What requests to KMS are authorized by."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sagemaker_local_account.core.location import Location
from sagemaker_local_account.iam.policies import Call
from sagemaker_local_account.iam.service_authorization import ServiceAuthorization

_NAMES = """
CancelKeyDeletion CreateAlias CreateGrant Decrypt DeleteAlias DeleteImportedKeyMaterial DeriveSharedSecret DescribeKey
DisableKey DisableKeyRotation EnableKey EnableKeyRotation Encrypt GenerateDataKey GenerateDataKeyPair
GenerateDataKeyPairWithoutPlaintext GenerateDataKeyWithoutPlaintext GenerateMac GetKeyPolicy GetKeyRotationStatus
GetParametersForImport GetPublicKey ImportKeyMaterial ListGrants ListKeyPolicies ListKeyRotations ListResourceTags
PutKeyPolicy ReEncryptFrom ReEncryptTo ReplicateKey RetireGrant RevokeGrant RotateKeyOnDemand ScheduleKeyDeletion Sign
SynchronizeMultiRegionKey TagResource UntagResource UpdateAlias UpdateKeyDescription UpdatePrimaryRegion Verify VerifyMac
"""
_ON_KEYS = frozenset(_NAMES.split())


def key_arn(key: str, location: Location) -> str:
    """Returns the ARN of a key given by its id, its alias or the ARN of either."""
    from moto.kms.models import kms_backends

    if not key.startswith("arn:") or ":alias/" in key:
        backend = kms_backends[location.account][location.region]
        id = backend.any_id_to_key_id(key)
        if id in backend.keys:
            return str(backend.keys[id].arn)
        return key if key.startswith("arn:") else f"arn:aws:kms:{location.region}:{location.account}:key/{key}"
    return key


def calls_for_caller(
    service: str, key: str | None, actions: Iterable[str], context: Mapping[str, Any], location: Location
) -> list[Call]:
    """Returns what a service calls for its caller; none with AWS's own key, which lets the account's principals use it so.

    Args:
        service: its name in hosts, such as "sns".
        key: by its id, its alias or the ARN of either; None without one.
        actions: of KMS, such as "Decrypt".
        context: the condition keys of the caller's request.
        location: of the service.
    """
    if not key or key.endswith(f"alias/aws/{service}"):
        return []
    via = {**context, "kms:viaservice": (f"{service}.{location.region}.amazonaws.com",)}
    return [Call(f"kms:{action}", key_arn(key, location), via) for action in actions]


def _policy_of(arn: str, location: Location) -> Any:
    from moto.kms.models import kms_backends

    key = kms_backends[location.account][location.region].keys.get(arn.rpartition("/")[2])
    return None if key is None else key.policy


def _resources_of(operation: str, request: Mapping[str, Any], location: Location) -> list[str] | None:
    """The key by its ARN, whatever names it: an alias, or what was encrypted with it."""
    keys = [*map(request.get, ("KeyId", "SourceKeyId", "TargetKeyId")), _key_of(request.get("CiphertextBlob"))]
    named = [key_arn(str(key), location) for key in keys if key]
    return [*dict.fromkeys(named)] if named and operation in _ON_KEYS else None


def _with_destination(call: Call, request: Mapping[str, Any], location: Location) -> Iterator[Call]:
    """ReEncrypt requires one action on the key that it decrypts with, and another on the key that it encrypts with."""
    if call.action == "kms:ReEncryptFrom":
        yield Call("kms:ReEncryptTo", key_arn(str(request.get("DestinationKeyId", "*")), location), call.context)


def _key_of(blob: Any) -> str:
    from moto.kms.utils import _deserialize_ciphertext_blob

    try:
        return str(_deserialize_ciphertext_blob(base64.b64decode(blob)).key_id)
    except (TypeError, ValueError, struct.error):  # KMS itself rejects it
        return ""


AUTHORIZATION = ServiceAuthorization(
    "kms",
    resources=dict.fromkeys(_ON_KEYS, "key/{KeyId}"),
    resources_of=_resources_of,
    actions={"ReEncrypt": "ReEncryptFrom"},
    further=_with_destination,
    without_resource={"ListAliases", "ListKeys"},
    policy_of=_policy_of,
)
