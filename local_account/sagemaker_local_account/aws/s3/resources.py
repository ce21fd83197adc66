"""S3's resources in CloudFormation: properties of buckets that moto drops, bucket policies, and deletion."""

from __future__ import annotations

import json
from typing import Any

from moto.cloudformation.exceptions import ValidationError
from moto.iam.access_control import IAMPolicy, PermissionResult
from moto.s3.exceptions import S3ClientError
from moto.s3.models import FakeBucket, S3Backend, get_canned_acl, s3_backends
from typing_extensions import override

from sagemaker_local_account.aws.property_backfill import Backfill
from sagemaker_local_account.aws.resource_base import Properties, ResourceBase, is_true
from sagemaker_local_account.aws.resource_types import ResourceType, ServiceResources, real
from sagemaker_local_account.aws.s3 import notifications
from sagemaker_local_account.core.patches import patch


def install() -> None:
    """Patches moto's bucket policies, what they may be, and their evaluation, and the encryption that each bucket has."""
    patch(FakeBucket, "get_permission", _get_permission, "self, action, resource")
    patch(S3Backend, "put_bucket_policy", _put_bucket_policy, "self, bucket_name, policy")
    patch(S3Backend, "get_bucket_encryption", _get_bucket_encryption, "self, bucket_name")


class AutoDeleteObjects(ResourceBase):
    """`auto_delete_objects=True` of a CDK bucket: on AWS CDK's Lambda function empties the bucket before its deletion."""

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        buckets = s3_backends[account_id]["aws"]
        bucket = buckets.buckets.get(self.properties["BucketName"])
        for name, versions in [] if bucket is None else bucket.keys.lists():
            for version in [*versions] if bucket.is_versioned else [None]:
                buckets.delete_object(bucket.name, name, version_id=version and version.version_id)


class BucketPolicy(ResourceBase):
    """AWS::S3::BucketPolicy."""

    @override
    def create(self) -> None:
        self.physical_resource_id = self.properties["Bucket"]
        policy = json.dumps(self.properties["PolicyDocument"]).encode()
        s3_backends[self.account_id]["aws"].put_bucket_policy(self.physical_resource_id, policy)

    @classmethod
    @override
    def update_from_cloudformation_json(cls, original_resource: Any, cloudformation_json: Any, **details: Any) -> Any:
        if original_resource.physical_resource_id != cloudformation_json["Properties"]["Bucket"]:
            raise NotImplementedError
        return cls.create_from_cloudformation_json("", cloudformation_json, **_place(details))

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        s3_backends[account_id]["aws"].delete_bucket_policy(self.physical_resource_id)


def _put_bucket_policy(self: S3Backend, bucket_name: str, policy: bytes) -> None:
    """Refuses what is no policy, which moto keeps, and at which each later request to the bucket would fail."""
    try:
        found = json.loads(policy)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise S3ClientError("MalformedPolicy", "Policies must be valid JSON and the first byte must be '{'")
    statements = found.get("Statement")
    listed = statements if isinstance(statements, list) else [statements]
    if not all(isinstance(statement, dict) for statement in listed) or not listed:
        raise S3ClientError("MalformedPolicy", "Missing required field Statement")
    _moto_put_bucket_policy(self, bucket_name, policy)


_moto_put_bucket_policy = S3Backend.put_bucket_policy


def _get_bucket_encryption(self: S3Backend, bucket_name: str) -> dict[str, Any]:
    """Returns a bucket's encryption, by default SSE-S3: of such a bucket moto has none (`test_s3_default_bucket_encryption`)."""
    default = {"Rule": {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}, "BucketKeyEnabled": "false"}}
    return self.get_bucket(bucket_name).encryption or default


def _get_permission(self: FakeBucket, action: str, resource: str) -> Any:
    """Evaluates only statements for all principals and without conditions.

    moto treats every statement as such: the usual "Deny * without TLS" would deny everything. Loopback counts as secure
    transport.
    """
    if self.policy is None:
        return PermissionResult.NEUTRAL
    policy = json.loads(self.policy)
    statements = policy["Statement"] if isinstance(policy["Statement"], list) else [policy["Statement"]]
    plain = [
        statement
        for statement in statements
        if "Condition" not in statement and statement.get("Principal") in ("*", {"AWS": "*"}, {"AWS": ["*"]})
    ]
    return IAMPolicy(json.dumps({**policy, "Statement": plain})).is_action_permitted(action, resource)


def _bucket(bucket: FakeBucket, properties: Properties, account_id: str, region_name: str) -> None:
    buckets = s3_backends[account_id]["aws"]
    acl = properties.get("AccessControl", "Private")
    if acl not in _ACLS:
        raise ValidationError(
            message=f"AccessControl must be one of {', '.join(_ACLS)} in the local account, got {acl!r}"
        )
    bucket.set_acl(get_canned_acl(_ACLS[acl]))
    if "VersioningConfiguration" in properties:
        buckets.put_bucket_versioning(bucket.name, properties["VersioningConfiguration"]["Status"])
    elif bucket.versioning_status == "Enabled":
        buckets.put_bucket_versioning(bucket.name, "Suspended")
    # On AWS new buckets block all public access by default.
    all_blocked = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
    block = properties.get("PublicAccessBlockConfiguration") or dict.fromkeys(all_blocked, True)
    buckets.put_public_access_block(
        bucket.name, {name: str(is_true(block.get(name, False))).lower() for name in all_blocked}
    )
    rules = properties.get("OwnershipControls", {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]})["Rules"]
    buckets.put_bucket_ownership_controls(bucket.name, rules[0]["ObjectOwnership"])
    buckets.put_bucket_lifecycle(
        bucket.name,
        [_lifecycle_rule(rule) for rule in properties.get("LifecycleConfiguration", {"Rules": []})["Rules"]],
    )
    if not properties.get("Tags"):
        buckets.delete_bucket_tagging(bucket.name)
    if "BucketEncryption" not in properties:
        bucket.encryption = None
    notifications.configure(bucket, _notifications(properties.get("NotificationConfiguration", {})))
    logging = properties.get("LoggingConfiguration")
    bucket.logging = (
        {"TargetBucket": logging.get("DestinationBucketName"), "TargetPrefix": logging.get("LogFilePrefix", "")}
        if logging
        else {}
    )


# The canned ACLs: the template's names and the API's.
_ACLS = {
    "AuthenticatedRead": "authenticated-read",
    "LogDeliveryWrite": "log-delivery-write",
    "Private": "private",
    "PublicRead": "public-read",
    "PublicReadWrite": "public-read-write",
}

_LIFECYCLE = {
    "AbortIncompleteMultipartUpload",
    "ExpirationDate",
    "ExpirationInDays",
    "ExpiredObjectDeleteMarker",
    "Id",
    "NoncurrentVersionExpiration",
    "NoncurrentVersionTransitions",
    "Prefix",
    "Status",
    "Transitions",
}


# The lists of a template's notifications: those of a request, and the destination in each.
_NOTIFICATIONS = {
    "LambdaConfigurations": ("CloudFunctionConfiguration", "Function", "CloudFunction"),
    "QueueConfigurations": ("QueueConfiguration", "Queue", "Queue"),
    "TopicConfigurations": ("TopicConfiguration", "Topic", "Topic"),
}


def _notifications(given: Properties) -> Properties:
    """The notifications of a template as those of a request."""
    made: Properties = {}
    for name, (listed, in_template, destination) in _NOTIFICATIONS.items():
        for one in given.get(name, []):
            configuration = {destination: one[in_template], "Event": [one["Event"]]}
            if rules := one.get("Filter", {}).get("S3Key", {}).get("Rules"):
                named = [{"Name": rule["Name"].capitalize(), "Value": rule.get("Value", "")} for rule in rules]
                configuration["Filter"] = {"S3Key": {"FilterRule": named}}
            made.setdefault(listed, []).append(configuration)
    if is_true(given.get("EventBridgeConfiguration", {}).get("EventBridgeEnabled", False)):
        made["EventBridgeConfiguration"] = {}
    return made


def _lifecycle_rule(rule: Properties) -> Properties:
    """A lifecycle rule of a template as a parameter of moto's backend."""
    unknown = sorted(set(rule) - _LIFECYCLE)
    if unknown:
        raise ValidationError(
            message=f"LifecycleConfiguration: the local account does not support {', '.join(unknown)} in a rule"
        )
    made: Properties = {"ID": rule.get("Id"), "Status": rule["Status"], "Filter": {"Prefix": rule.get("Prefix", "")}}
    expiration = {
        name: rule[name_in_template]
        for name_in_template, name in (
            ("ExpirationDate", "Date"),
            ("ExpirationInDays", "Days"),
            ("ExpiredObjectDeleteMarker", "ExpiredObjectDeleteMarker"),
        )
        if name_in_template in rule
    }
    if expiration:
        made["Expiration"] = expiration
    for name in ("AbortIncompleteMultipartUpload", "NoncurrentVersionExpiration"):
        if name in rule:
            made[name] = rule[name]
    made["Transition"] = [
        {"Days": one.get("TransitionInDays"), "Date": one.get("TransitionDate"), "StorageClass": one["StorageClass"]}
        for one in rule.get("Transitions", [])
    ]
    made["NoncurrentVersionTransition"] = [
        {"NoncurrentDays": one["TransitionInDays"], "StorageClass": one["StorageClass"]}
        for one in rule.get("NoncurrentVersionTransitions", [])
    ]
    return made


def _place(details: dict[str, Any]) -> dict[str, Any]:
    return {name: details[name] for name in ("account_id", "region_name")}


def _delete_bucket(bucket: FakeBucket, account_id: str, region_name: str) -> None:
    """Deletes a bucket; moto reports success for a bucket that is not empty."""
    buckets = s3_backends[account_id]["aws"]
    if bucket.name in buckets.buckets and buckets.delete_bucket(bucket.name) is None:
        raise ValidationError(message=f"The bucket you tried to delete is not empty: {bucket.name}")


RESOURCES = ServiceResources(
    types={
        "AWS::S3::Bucket": real(
            "stores objects, writes access logs and sends notifications; its lifecycle rules are stored and not applied",
            "AccessControl BucketEncryption BucketName LifecycleConfiguration LoggingConfiguration NotificationConfiguration "
            "OwnershipControls PublicAccessBlockConfiguration Tags VersioningConfiguration",
            longest_name=63,
        ),
        "AWS::S3::BucketPolicy": real("evaluated", "Bucket PolicyDocument", made_by=BucketPolicy),
        "Custom::S3AutoDeleteObjects": ResourceType(
            "emulated", "empties the bucket before it is deleted", made_by=AutoDeleteObjects
        ),
    },
    delete={FakeBucket: _delete_bucket},
    backfills={FakeBucket: Backfill(_bucket, name="BucketName")},
    install=install,
)
