"""What requests to Secrets Manager are authorized by, and its KMS calls for a secret with a customer managed key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sagemaker_local_account.aws.kms.authorization import calls_for_caller
from sagemaker_local_account.core.location import Location, region_of
from sagemaker_local_account.iam.policies import Call
from sagemaker_local_account.iam.service_authorization import ServiceAuthorization

_ON_SECRETS = """
CancelRotateSecret DeleteResourcePolicy DeleteSecret DescribeSecret GetResourcePolicy GetSecretValue ListSecretVersionIds
PutResourcePolicy PutSecretValue RemoveRegionsFromReplication ReplicateSecretToRegions RestoreSecret RotateSecret
StopReplicationToReplica TagResource UntagResource UpdateSecret UpdateSecretVersionStage ValidateResourcePolicy
"""
# "Secret encryption and decryption in AWS Secrets Manager", by what is called with the secret's value.
_KEY_CALLS = {"GetSecretValue": ("Decrypt",), "PutSecretValue": ("GenerateDataKey", "Decrypt")}
_NEW_KEY_CALLS = ("CreateSecret", "UpdateSecret")


def _secret(id: str, location: Location) -> Any:
    from moto.secretsmanager.models import secretsmanager_backends

    region = region_of(id) or location.region
    return secretsmanager_backends[location.account][region].secrets.get(id)


def _resources_of(operation: str, request: Mapping[str, Any], location: Location) -> list[str] | None:
    """The secret by its whole ARN, whether its name, its ARN or a part of that names it."""
    base = f"arn:aws:secretsmanager:{location.region}:{location.account}:secret:"
    if operation == "CreateSecret":
        return [f"{base}{request.get('Name')}-??????"]  # six characters that are not known yet
    id = request.get("SecretId")
    if operation not in _ON_SECRETS.split() or not id:
        return None
    found = _secret(str(id), location)
    if found is not None:
        return [str(found.arn)]
    return [str(id) if str(id).startswith("arn:") else f"{base}{id}"]


def _with_key(call: Call, location: Location) -> list[Call]:
    actions = _KEY_CALLS.get(call.action.removeprefix("secretsmanager:"), ())
    location = Location(location.account, region_of(call.resource) or location.region)
    found = _secret(call.resource, location) if actions else None
    return (
        [] if found is None else calls_for_caller("secretsmanager", found.kms_key_id, actions, call.context, location)
    )


def _with_new_key(call: Call, request: Mapping[str, Any], location: Location) -> Iterator[Call]:
    if call.action.removeprefix("secretsmanager:") in _NEW_KEY_CALLS:
        actions, key = ("GenerateDataKey", "Decrypt"), request.get("KmsKeyId")
        yield from calls_for_caller("secretsmanager", key, actions, call.context, location)


def _policy_of(arn: str, location: Location) -> Any:
    found = _secret(arn, location)
    return None if found is None else found.policy


AUTHORIZATION = ServiceAuthorization(
    "secretsmanager",
    resources=dict.fromkeys([*_ON_SECRETS.split(), "CreateSecret"], "secret:{SecretId|Name}"),
    resources_of=_resources_of,
    without_resource={"BatchGetSecretValue", "GetRandomPassword", "ListSecrets"},
    further=_with_new_key,
    implied=_with_key,
    policy_of=_policy_of,
)
