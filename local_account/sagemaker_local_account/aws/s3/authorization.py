"""What requests to S3 are authorized by, and the KMS calls of access to an encrypted object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sagemaker_local_account.aws.kms.authorization import key_arn
from sagemaker_local_account.core import s3_requests
from sagemaker_local_account.core.location import Location
from sagemaker_local_account.iam.policies import Call
from sagemaker_local_account.iam.service_authorization import ServiceAuthorization

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

_KEY_ACTIONS = {"s3:GetObject": "kms:Decrypt", "s3:PutObject": "kms:GenerateDataKey"}


def _calls_of(environ: WSGIEnvironment) -> list[Call]:
    return [Call(*found) for found in s3_requests.actions_of(environ)]


def _with_key(call: Call, location: Location) -> list[Call]:
    """What S3 calls for who reads or writes an object that is encrypted with a customer managed key."""
    if call.action not in _KEY_ACTIONS:
        return []
    name, _, object_key = call.resource.removeprefix("arn:aws:s3:::").partition("/")
    bucket = _bucket(name, location)
    key = None if bucket is None else _key_of(call, bucket, object_key, location)
    if key is None:
        return []
    via = (f"s3.{bucket.region_name}.amazonaws.com",)
    return [Call(_KEY_ACTIONS[call.action], key, {**call.context, "kms:viaservice": via})]


def _key_of(call: Call, bucket: Any, object_key: str, location: Location) -> str | None:
    encryption, key_id = None, None
    if call.action == "s3:GetObject":
        found = bucket.keys.get(object_key)
        encryption, key_id = (found.encryption, found.kms_key_id) if found is not None else (None, None)
    else:
        names = ("s3:x-amz-server-side-encryption", "s3:x-amz-server-side-encryption-aws-kms-key-id")
        encryption, key_id = (next(iter(call.context.get(name, ())), None) for name in names)
    if encryption is None and bucket.encryption:
        rule = bucket.encryption["Rule"]
        default = (rule[0] if isinstance(rule, list) else rule).get("ApplyServerSideEncryptionByDefault", {})
        encryption, key_id = default.get("SSEAlgorithm"), default.get("KMSMasterKeyID")
    location = Location(location.account, bucket.region_name)
    # SSE-S3 requires no permissions of the caller.
    return key_arn(key_id, location) if encryption in ("aws:kms", "aws:kms:dsse") and key_id else None


def _bucket(name: str, location: Location) -> Any:
    from moto.s3.models import s3_backends

    return s3_backends[location.account]["aws"].buckets.get(name)


def _policy_of(arn: str, location: Location) -> Any:
    bucket = _bucket(arn.removeprefix("arn:aws:s3:::").partition("/")[0], location)
    return None if bucket is None else bucket.policy


AUTHORIZATION = ServiceAuthorization(
    "s3", without_resource={"ListAllMyBuckets"}, calls=_calls_of, implied=_with_key, policy_of=_policy_of
)
