"""What requests to KMS are authorized by."""

from __future__ import annotations

from typing import Any

from sagemaker_local_account.core.location import Location
from sagemaker_local_account.iam.service_authorization import ServiceAuthorization

_ON_KEYS = """
CancelKeyDeletion CreateAlias CreateGrant Decrypt DeleteAlias DeleteImportedKeyMaterial DeriveSharedSecret DescribeKey
DisableKey DisableKeyRotation EnableKey EnableKeyRotation Encrypt GenerateDataKey GenerateDataKeyPair
GenerateDataKeyPairWithoutPlaintext GenerateDataKeyWithoutPlaintext GenerateMac GetKeyPolicy GetKeyRotationStatus
GetParametersForImport GetPublicKey ImportKeyMaterial ListGrants ListKeyPolicies ListKeyRotations ListResourceTags
PutKeyPolicy ReEncryptFrom ReEncryptTo ReplicateKey RetireGrant RevokeGrant RotateKeyOnDemand ScheduleKeyDeletion Sign
SynchronizeMultiRegionKey TagResource UntagResource UpdateAlias UpdateKeyDescription UpdatePrimaryRegion Verify VerifyMac
"""


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


def _policy_of(arn: str, location: Location) -> Any:
    from moto.kms.models import kms_backends

    key = kms_backends[location.account][location.region].keys.get(arn.rpartition("/")[2])
    return None if key is None else key.policy


AUTHORIZATION = ServiceAuthorization(
    "kms",
    resources=dict.fromkeys(_ON_KEYS.split(), "key/{KeyId}"),
    without_resource={"ListAliases", "ListKeys"},
    policy_of=_policy_of,
)
