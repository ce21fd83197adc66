"""Resource-based policies, and the KMS calls that access to an encrypted S3 object or SNS topic implies."""

from __future__ import annotations

import json
from typing import Any

from sagemaker_local_account.iam.api_calls import Location
from sagemaker_local_account.iam.policies import Call, Document

_KEY_ACTIONS = {
    "s3:GetObject": ("kms:Decrypt",),
    "s3:PutObject": ("kms:GenerateDataKey",),
    "sns:Publish": ("kms:Decrypt", "kms:GenerateDataKey"),  # of who publishes, as CDK's `topic.grant_publish` grants
}


def of(arn: str, location: Location) -> Document | None:
    """Returns the policy of a bucket (also for its objects), function, repository, key, topic or queue; None without one."""
    service = arn.split(":")[2:3]
    location = Location(location.account, region_of(arn) or location.region)
    find = _FINDERS.get(service[0] if service else "")
    found = find(arn, location) if find else None
    return json.loads(found) if isinstance(found, str | bytes) else found


def trust(arn: str, location: Location) -> Document | None:
    """Returns the trust policy of a role; None for a role that is not there."""
    from moto.iam.exceptions import NotFoundException
    from moto.iam.models import iam_backends

    try:
        role = iam_backends[location.account]["aws"].get_role_by_arn(arn)
    except NotFoundException:
        return None
    document = role.assume_role_policy_document
    return json.loads(document) if isinstance(document, str) else document


def region_of(arn: str) -> str:
    """Returns the region of an ARN; "" for ARNs without one, such as S3's and IAM's, and for "*"."""
    return f"{arn}::::".split(":")[3]


def calls_with(call: Call, location: Location) -> list[Call]:
    """Returns the KMS calls that S3 or SNS makes for the caller where there is encryption with a customer managed key."""
    if call.action not in _KEY_ACTIONS:
        return []
    if call.action == "sns:Publish":
        return _calls_for_topic(call, location)
    name = call.resource.removeprefix("arn:aws:s3:::").partition("/")
    key = _key_of_object(call, name[0], name[2], location)
    bucket = _bucket(name[0], location)
    via = (f"s3.{location.region if bucket is None else bucket.region_name}.amazonaws.com",)
    return [Call(action, key, {**call.context, "kms:viaservice": via}) for action in _KEY_ACTIONS[call.action] if key]


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


def _calls_for_topic(call: Call, location: Location) -> list[Call]:
    from moto.sns.models import sns_backends

    location = Location(location.account, region_of(call.resource) or location.region)
    topic = sns_backends[location.account][location.region].topics.get(call.resource)
    key = "" if topic is None else topic.kms_master_key_id
    if not key or key.endswith("alias/aws/sns"):  # AWS's own key lets the account's principals use it by SNS
        return []
    context = {**call.context, "kms:viaservice": (f"sns.{location.region}.amazonaws.com",)}
    return [Call(action, key_arn(key, location), context) for action in _KEY_ACTIONS[call.action]]


def _key_of_object(call: Call, bucket_name: str, key: str, location: Location) -> str | None:
    bucket = _bucket(bucket_name, location)
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
    location = Location(location.account, bucket.region_name)
    # SSE-S3 requires no permissions of the caller.
    return key_arn(key_id, location) if encryption in ("aws:kms", "aws:kms:dsse") and key_id else None


def _bucket(name: str, location: Location) -> Any:
    from moto.s3.models import s3_backends

    return s3_backends[location.account]["aws"].buckets.get(name)


def _of_bucket(arn: str, location: Location) -> Any:
    bucket = _bucket(arn.removeprefix("arn:aws:s3:::").partition("/")[0], location)
    return None if bucket is None else bucket.policy


def _of_repository(arn: str, location: Location) -> Any:
    from moto.ecr.models import ecr_backends

    repository = ecr_backends[location.account][location.region].repositories.get(arn.partition(":repository/")[2])
    return None if repository is None else repository.policy


def _of_key(arn: str, location: Location) -> Any:
    from moto.kms.models import kms_backends

    key = kms_backends[location.account][location.region].keys.get(arn.rpartition("/")[2])
    return None if key is None else key.policy


def _of_topic(arn: str, location: Location) -> Any:
    from moto.sns.models import sns_backends

    topic = sns_backends[location.account][location.region].topics.get(arn)
    return None if topic is None else topic._policy_json


def _of_queue(arn: str, location: Location) -> Any:
    from moto.sqs.models import sqs_backends

    queue = sqs_backends[location.account][location.region].queues.get(arn.rpartition(":")[2])
    return None if queue is None else queue.policy


def _of_function(arn: str, location: Location) -> Any:
    from moto.awslambda.models import lambda_backends

    functions = lambda_backends[location.account][location.region].list_functions()
    found = next((function for function in functions if function.function_arn == arn), None)
    if found is None or not found.policy.statements:
        return None
    return {"Version": "2012-10-17", "Statement": found.policy.statements}


_FINDERS = {
    "ecr": _of_repository,
    "kms": _of_key,
    "lambda": _of_function,
    "s3": _of_bucket,
    "sns": _of_topic,
    "sqs": _of_queue,
}
