"""The policies of resources, and the calls that a call to a resource brings with it because of how it is encrypted."""

from __future__ import annotations

import json
from typing import Any

from .api_calls import Place
from .policies import Call, Document

_KEY_ACTIONS = {"s3:GetObject": ("kms:Decrypt",), "s3:PutObject": ("kms:GenerateDataKey",)}


def of(arn: str, place: Place) -> Document | None:
    """The policy of a bucket (for its objects too), a repository, a key, a topic or a queue. None where it has none."""
    service = arn.split(":")[2:3]
    place = Place(place.account, region_of(arn) or place.region)
    find = {"s3": _of_bucket, "ecr": _of_repository, "kms": _of_key, "sns": _of_topic, "sqs": _of_queue}.get(
        service[0] if service else ""
    )
    found = find(arn, place) if find else None
    return json.loads(found) if isinstance(found, str | bytes) else found


def region_of(arn: str) -> str:
    """The region in an ARN; "" in those that have none, as of S3 and IAM, and for "*"."""
    return f"{arn}::::".split(":")[3]


def calls_with(call: Call, place: Place) -> list[Call]:
    """What S3 asks of KMS for the caller, where an object is encrypted with a key of KMS."""
    if call.action not in _KEY_ACTIONS:
        return []
    name = call.resource.removeprefix("arn:aws:s3:::").partition("/")
    key = _key_of_object(call, name[0], name[2], place)
    bucket = _bucket(name[0], place)
    via = (f"s3.{place.region if bucket is None else bucket.region_name}.amazonaws.com",)
    return [Call(action, key, {**call.context, "kms:viaservice": via}) for action in _KEY_ACTIONS[call.action] if key]


def key_arn(key: str, place: Place) -> str:
    """The ARN of a key that is named by its id, its alias or an ARN of either."""
    from moto.kms.models import kms_backends

    if not key.startswith("arn:") or ":alias/" in key:
        backend = kms_backends[place.account][place.region]
        id = backend.any_id_to_key_id(key)
        if id in backend.keys:
            return str(backend.keys[id].arn)
        return key if key.startswith("arn:") else f"arn:aws:kms:{place.region}:{place.account}:key/{key}"
    return key


def _key_of_object(call: Call, bucket_name: str, key: str, place: Place) -> str | None:
    bucket = _bucket(bucket_name, place)
    if bucket is None:
        return None
    encryption, key_id = None, None
    if call.action == "s3:GetObject":
        found = bucket.keys.get(key)
        encryption, key_id = (found.encryption, found.kms_key_id) if found is not None else (None, None)
    else:
        names = ("s3:x-amz-server-side-encryption", "s3:x-amz-server-side-encryption-aws-kms-key-id")
        encryption, key_id = (next(iter(call.context.get(name, ())), None) for name in names)
    if encryption is None and bucket.encryption:
        rule = bucket.encryption["Rule"]
        default = (rule[0] if isinstance(rule, list) else rule).get("ApplyServerSideEncryptionByDefault", {})
        encryption, key_id = default.get("SSEAlgorithm"), default.get("KMSMasterKeyID")
    place = Place(place.account, bucket.region_name)
    # A bucket that is encrypted with AWS's own key for S3 asks nothing of its callers.
    return key_arn(key_id, place) if encryption in ("aws:kms", "aws:kms:dsse") and key_id else None


def _bucket(name: str, place: Place) -> Any:
    from moto.s3.models import s3_backends

    return s3_backends[place.account]["aws"].buckets.get(name)


def _of_bucket(arn: str, place: Place) -> Any:
    bucket = _bucket(arn.removeprefix("arn:aws:s3:::").partition("/")[0], place)
    return None if bucket is None else bucket.policy


def _of_repository(arn: str, place: Place) -> Any:
    from moto.ecr.models import ecr_backends

    repository = ecr_backends[place.account][place.region].repositories.get(arn.partition(":repository/")[2])
    return None if repository is None else repository.policy


def _of_key(arn: str, place: Place) -> Any:
    from moto.kms.models import kms_backends

    key = kms_backends[place.account][place.region].keys.get(arn.rpartition("/")[2])
    return None if key is None else key.policy


def _of_topic(arn: str, place: Place) -> Any:
    from moto.sns.models import sns_backends

    topic = sns_backends[place.account][place.region].topics.get(arn)
    return None if topic is None else topic._policy_json


def _of_queue(arn: str, place: Place) -> Any:
    from moto.sqs.models import sqs_backends

    queue = sqs_backends[place.account][place.region].queues.get(arn.rpartition(":")[2])
    return None if queue is None else queue.policy
