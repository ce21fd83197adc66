"""The notifications of buckets: to queues, topics and functions, and to EventBridge.

moto checks neither destinations nor permissions, drops what cannot be delivered without a word, puts each event on all buses of
EventBridge, sends a second event for the tags of a new object, and none for a delete marker or a version.

Sources: the events and errors are those that LocalStack recorded on AWS, ``tests/aws/services/s3/test_s3_notifications_*.py``;
why a queue is refused, aws/aws-cli issue 8162; configurations that overlap, minio/minio issue 2472 and
aws-solutions/aws-waf-security-automations issue 49; the rest "Event message structure", "EventBridge event message structure"
and "Deletion types" in S3's guide. Of a requester and its address the account has the account's number and loopback.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import logging
import secrets
import threading
import time
import urllib.parse
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import xmltodict
from moto.awslambda.models import lambda_backends
from moto.core.responses import ActionResult, EmptyResult
from moto.s3 import models, notifications
from moto.s3.exceptions import InvalidArgumentError, MalformedXML
from moto.s3.models import FakeBucket, Notification, S3Backend
from moto.s3.responses import S3Response
from moto.sns.models import sns_backends
from moto.sqs.models import sqs_backends

from sagemaker_local_account.aws.events import bus, invocations
from sagemaker_local_account.aws.log_failures import log_failure
from sagemaker_local_account.core.location import Location
from sagemaker_local_account.core.patches import patch
from sagemaker_local_account.iam.authorizer import Authorizer
from sagemaker_local_account.iam.policies import Call

SERVICE = "s3.amazonaws.com"
UNVALIDATED = "Unable to validate the following destination configurations"

_log = logging.getLogger(__name__)
_moto_delete_object = S3Backend.delete_object
_moto_put_object_acl = S3Backend.put_object_acl
_moto_put_object_tagging = S3Response.put_object_tagging
_moto_set_configuration = FakeBucket.set_notification_configuration

# The members of a configuration, and of the destination in each: those of a request, and those of a response.
_DESTINATIONS = {
    "TopicConfiguration": ("Topic", "TopicConfigurations", "TopicArn", "topic"),
    "QueueConfiguration": ("Queue", "QueueConfigurations", "QueueArn", "queue"),
    "CloudFunctionConfiguration": (
        "CloudFunction",
        "LambdaFunctionConfigurations",
        "LambdaFunctionArn",
        "cloud_function",
    ),
}

# An event of EventBridge by that of other destinations, and its reason.
_DETAIL_TYPES = {
    "ObjectCreated:Put": ("Object Created", "PutObject"),
    "ObjectCreated:Post": ("Object Created", "POST Object"),
    "ObjectCreated:Copy": ("Object Created", "CopyObject"),
    "ObjectCreated:CompleteMultipartUpload": ("Object Created", "CompleteMultipartUpload"),
    "ObjectRemoved:Delete": ("Object Deleted", "DeleteObject"),
    "ObjectRemoved:DeleteMarkerCreated": ("Object Deleted", "DeleteObject"),
    "ObjectRestore:Post": ("Object Restore Initiated", ""),
    "ObjectRestore:Completed": ("Object Restore Completed", ""),
    "ObjectTagging:Put": ("Object Tags Added", ""),
    "ObjectTagging:Delete": ("Object Tags Deleted", ""),
    "ObjectAcl:Put": ("Object ACL Updated", ""),
}
_EMPTY = "d41d8cd98f00b204e9800998ecf8427e"  # the ETag of a delete marker


class _Installed:
    """The authorizer of the running account, which evaluates the permissions of deliveries, and what delivers."""

    authorizer: Authorizer
    deliveries: invocations.Deliveries


class _Request(threading.local):
    """What the request of this thread does."""

    tags = False
    is_silent = False


_request = _Request()


def install(authorizer: Authorizer, deliveries: invocations.Deliveries) -> None:
    """Patches moto's notifications."""
    _Installed.authorizer, _Installed.deliveries = authorizer, deliveries
    patch(notifications, "send_event", _send_event, "account_id, event_name, bucket, key")
    patch(notifications, "send_test_event", _send_test_event, "account_id, bucket")
    patch(S3Response, "_notification_config_from_body", _from_body, "self")
    patch(S3Response, "get_bucket_notification", _get, "self")
    patch(S3Response, "put_object_tagging", _put_tags, "self")
    patch(S3Backend, "delete_object", _delete, "self, bucket_name, key_name, version_id, bypass")
    patch(S3Backend, "put_object_acl", _put_acl, "self, bucket_name, key_name, acl, disable_notification")
    patch(Notification, "_key_matches", _key_matches, "self, key_name")
    patch(FakeBucket, "set_notification_configuration", configure, "self, notification_config")


def _from_body(self: S3Response) -> dict[str, Any]:
    """The configuration of a PutBucketNotificationConfiguration, in which names of filters have any case."""
    given = xmltodict.parse(self.body, force_list=(*_DESTINATIONS, "Event", "FilterRule"))
    found: dict[str, Any] = given.get("NotificationConfiguration") or {}
    if "EventBridgeConfiguration" in found:
        found["EventBridgeConfiguration"] = {}
    for name, (destination, *_) in _DESTINATIONS.items():
        for one in found.get(name, ()):
            if not one.get(destination) or not one.get("Event"):
                raise MalformedXML
            for rule in ((one.get("Filter") or {}).get("S3Key") or {}).get("FilterRule", ()):
                rule["Name"] = _rule_name(rule.get("Name"))
                rule["Value"] = rule.get("Value") or ""
    if self.headers.get("x-amz-skip-destination-validation", "").lower() == "true":
        found["SkipDestinationValidation"] = True
    return found


def _rule_name(name: Any) -> str:
    named = str(name).capitalize()
    if named not in ("Prefix", "Suffix"):
        raise InvalidArgumentError("filter rule name must be either prefix or suffix", "FilterRule.Name", str(name))
    return named


def configure(self: FakeBucket, notification_config: dict[str, Any] | None) -> None:
    """Sets a bucket's notifications, as a request has them, and refuses what S3 refuses.

    Raises:
        InvalidArgumentError: a destination does not exist or does not allow S3, or configurations overlap.
    """
    given = dict(notification_config or {})
    unvalidated = given.pop("SkipDestinationValidation", False)
    listed = [(one[names[0]], one, names[0]) for name, names in _DESTINATIONS.items() for one in given.get(name, ())]
    for arn, _, destination in listed:
        if len(arn.split(":")) < 6 or not arn.startswith("arn:"):
            raise InvalidArgumentError("The ARN could not be parsed", destination, arn)
    _check_overlaps([one for _, one, _ in listed])
    if not unvalidated:
        for arn, _, _ in listed:
            if why := _why_not(self, arn):
                raise InvalidArgumentError(UNVALIDATED, arn, why)
    _moto_set_configuration(self, given)


def _check_overlaps(configurations: list[dict[str, Any]]) -> None:
    for one, other in itertools.combinations(configurations, 2):
        common = [(a, b) for a in one["Event"] for b in other["Event"] if _same(a, b)]
        if not common:
            continue
        of_one, of_other = _filters(one), _filters(other)
        if not of_one and not of_other:
            text = "Configurations overlap. Configurations on the same bucket cannot share a common event type."
            raise InvalidArgumentError(text, "Event", ", ".join(common[0]))
        prefixes, suffixes = ((of_one.get(name, ""), of_other.get(name, "")) for name in ("Prefix", "Suffix"))
        starts = prefixes[0].startswith(prefixes[1]) or prefixes[1].startswith(prefixes[0])
        if starts and (suffixes[0].endswith(suffixes[1]) or suffixes[1].endswith(suffixes[0])):
            text = (
                "Configuration is ambiguously defined. Cannot have overlapping suffixes in two rules if the prefixes are "
                "overlapping for the same event type."
            )
            raise InvalidArgumentError(text, "Event", ", ".join(common[0]))


def _same(one: str, other: str) -> bool:
    """Whether two types, of which each may end with ``*``, have an event in common."""
    return one == other or any(a.endswith("*") and b.startswith(a[:-1]) for a, b in ((one, other), (other, one)))


def _filters(configuration: dict[str, Any]) -> dict[str, str]:
    rules = ((configuration.get("Filter") or {}).get("S3Key") or {}).get("FilterRule", ())
    return {rule["Name"]: rule["Value"] for rule in rules}


def _why_not(bucket: FakeBucket, arn: str) -> str:
    """Why a bucket cannot send its events to a destination; "" where it can."""
    _, _, service, region, account, *_, name = arn.split(":")
    if region != bucket.region_name:
        return "The notification destination service region is not valid for the bucket location constraint"
    if service == "lambda":
        exists = account in lambda_backends and _found(lambda_backends[account][region].get_function, arn)
        refused = f"Not authorized to invoke function [{arn}]"
        missing = refused
    elif service == "sqs":
        exists = name in sqs_backends[account][region].queues
        missing = "The destination queue does not exist"
        refused = "Permissions on the destination queue do not allow S3 to publish notifications from this bucket"
    else:
        exists = arn in sns_backends[account][region].topics
        missing = "The destination topic does not exist"
        refused = "Permissions on the destination topic do not allow S3 to publish notifications from this bucket"
    if not exists:
        return missing
    try:
        _permit(bucket.name, Call(invocations.action_of(arn), arn))
    except LookupError:
        return refused
    return ""


def _found(of: Any, arn: str) -> bool:
    try:
        return of(arn) is not None
    except Exception:  # moto's, which has one of its own for each reason
        return False


def _get(self: S3Response) -> Any:
    """GetBucketNotificationConfiguration, in which moto's has no EventBridge."""
    found = self.backend.get_bucket_notification_configuration(self.bucket_name)
    if not found:
        return self.serialized(EmptyResult())
    result: dict[str, Any] = {}
    for _, listed, arn, attribute in _DESTINATIONS.values():
        configurations = []
        for one in getattr(found, attribute):
            configuration = {"Id": one.id, arn: one.arn, "Events": one.events}
            if one.filters:
                configuration["Filter"] = {"Key": {"FilterRules": one.filters["S3Key"]["FilterRule"]}}
            configurations.append(configuration)
        if configurations:
            result[listed] = configurations
    if found.event_bridge is not None:
        result["EventBridgeConfiguration"] = {}
    self.data["Action"] = "GetBucketNotificationConfiguration"
    return self.serialized(ActionResult(result))


def _key_matches(self: Notification, key_name: str) -> bool:
    rules = (self.filters.get("S3Key") or {}).get("FilterRule", ())
    given = {rule["Name"]: rule["Value"] for rule in rules}
    return key_name.startswith(given.get("Prefix", "")) and key_name.endswith(given.get("Suffix", ""))


def _put_tags(self: S3Response) -> Any:
    """PutObjectTagging; the tags of a new object, which moto sets likewise, are no event of their own."""
    _request.tags = True
    try:
        return _moto_put_object_tagging(self)
    finally:
        _request.tags = False


def _put_acl(
    self: S3Backend, bucket_name: str, key_name: str, acl: Any, disable_notification: bool | None = False
) -> None:
    """An ACL that is as it was is no event."""
    key = self.get_object(bucket_name, key_name)
    former = _grants(key)
    _moto_put_object_acl(self, bucket_name, key_name, acl, disable_notification=True)
    if not disable_notification and _grants(key) != former:
        _send_event(self.account_id, "s3:ObjectAcl:Put", self.get_bucket(bucket_name), key)


def _grants(key: Any) -> set[tuple[Any, ...]]:
    acl = None if key is None else key.acl or models.get_canned_acl("private")
    listed = [] if acl is None else acl.grants
    return {
        (grantee.id, grantee.uri, permission)
        for grant in listed
        for grantee in grant.grantees
        for permission in grant.permissions
    }


def _delete(
    self: S3Backend, bucket_name: str, key_name: str, version_id: str | None = None, bypass: bool = False
) -> tuple[bool, dict[str, Any]]:
    bucket = self.get_bucket(bucket_name)
    versions = bucket.keys.getlist(key_name, []) if version_id else []
    if any(isinstance(one, models.FakeDeleteMarker) and str(one.version_id) == version_id for one in versions):
        was_marker = {"delete-marker": "true"}  # moto has it for some only
    else:
        was_marker = {}
    with _silence():
        done, headers = _moto_delete_object(self, bucket_name, key_name, version_id, bypass)
    if done or not bucket.is_versioned:  # an object that does not exist is deleted too: recorded in test_delete_objects
        version = version_id or headers.get("version-id")
        is_marker = version_id is None and "version-id" in headers
        event = "s3:ObjectRemoved:DeleteMarkerCreated" if is_marker else "s3:ObjectRemoved:Delete"
        _send(bucket, event.removeprefix("s3:"), key_name, {"version": version, "etag": _EMPTY if is_marker else None})
    return done, {**headers, **was_marker} if done else headers


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    _request.is_silent = True
    try:
        yield
    finally:
        _request.is_silent = False


def _send_event(account_id: str, event_name: str, bucket: Any, key: Any) -> None:
    """moto's, which calls it with each event of an object."""
    name = str(getattr(event_name, "value", event_name)).removeprefix("s3:")
    parts = name == "ObjectCreated:Put" and key.multipart is not None  # the event of its completion follows
    if _request.is_silent or parts or (name == "ObjectTagging:Put" and not _request.tags):
        return
    version = None if key.version_id == "null" else key.version_id
    about: dict[str, Any] = {"version": version, "etag": key.etag.strip('"')}
    if name.startswith(("ObjectCreated", "ObjectRestore")):
        about["size"] = key.size
    if name.startswith("ObjectRestore"):
        about["class"] = key.storage_class
        about["expires"] = _iso(key._expiry)
    _send(bucket, name, key.name, about)


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _send(bucket: Any, name: str, key: str, about: dict[str, Any]) -> None:
    """Delivers an event to all who asked for it, after this call, which fails for nothing that they do."""
    configuration = bucket.notification_configuration
    if configuration is None:
        return
    now, request = datetime.now(UTC), secrets.token_hex(8).upper()
    ordered = f"{time.time_ns():018X}"  # of two events of a key the later has the larger
    for one in (*configuration.cloud_function, *configuration.queue, *configuration.topic):
        if one.matches(f"s3:{name}", key):
            record = _record(bucket, name, key, about, (one.id, now, request, ordered))
            _Installed.deliveries.add(functools.partial(_deliver, bucket.name, one.arn, {"Records": [record]}))
    if configuration.event_bridge is not None and name in _DETAIL_TYPES:
        kind, reason = _DETAIL_TYPES[name]
        detail = _detail(bucket, name, key, about, (reason, request, ordered))
        bus.put_event(bucket.arn, "aws.s3", kind, detail, Location(bucket.account_id, bucket.region_name))


def _deliver(bucket: str, arn: str, message: dict[str, Any]) -> None:
    try:
        invocations.invoke(
            arn, json.dumps(message), functools.partial(_permit, bucket), subject="Amazon S3 Notification"
        )
    except Exception as error:
        log_failure(_log, error, "bucket %s: event not delivered to %s", bucket, arn)


def _permit(bucket: str, call: Call) -> None:
    _Installed.authorizer.check_service(SERVICE, call, f"arn:aws:s3:::{bucket}")


def _record(
    bucket: Any, name: str, key: str, about: dict[str, Any], given: tuple[str, datetime, str, str]
) -> dict[str, Any]:
    """An event as queues, topics and functions get it."""
    configuration, now, request, ordered = given
    described = {"key": urllib.parse.quote_plus(key, safe="/*")}
    if "size" in about:
        described["size"] = about["size"]
    if about["etag"]:
        described["eTag"] = about["etag"]
    if about["version"]:
        described["versionId"] = about["version"]
    is_change = name.startswith(("ObjectTagging", "ObjectAcl"))
    if not is_change:
        described["sequencer"] = ordered
    record = {
        "eventVersion": "2.3" if is_change else "2.1",
        "eventSource": "aws:s3",
        "awsRegion": bucket.region_name,
        "eventTime": bus.iso(now),
        "eventName": name,
        "userIdentity": {"principalId": _principal("user", bucket)},
        "requestParameters": {"sourceIPAddress": "127.0.0.1"},
        "responseElements": {"x-amz-request-id": request, "x-amz-id-2": secrets.token_urlsafe(48)},
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": configuration,
            "bucket": {
                "name": bucket.name,
                "ownerIdentity": {"principalId": _principal("owner", bucket)},
                "arn": bucket.arn,
            },
            "object": described,
        },
    }
    if name == "ObjectRestore:Completed":
        restored = {
            "lifecycleRestorationExpiryTime": about["expires"],
            "lifecycleRestoreStorageClass": about["class"],
        }
        record["glacierEventData"] = {"restoreEventData": restored}
    return record


def _principal(of: str, bucket: Any) -> str:
    """The identity of a bucket's owner, or of who sends its requests: one of each, of letters and digits as on AWS."""
    return f"A{hashlib.sha256(f'{of} {bucket.account_id}'.encode()).hexdigest()[:13].upper()}"


def _detail(bucket: Any, name: str, key: str, about: dict[str, Any], given: tuple[str, str, str]) -> dict[str, Any]:
    """The detail of an event as EventBridge gets it."""
    reason, request, ordered = given
    described: dict[str, Any] = {"key": key}
    if "size" in about:
        described["size"] = about["size"]
    if about["etag"]:
        described["etag"] = about["etag"]
    if about["version"]:
        described["version-id"] = about["version"]
    if reason:
        described["sequencer"] = ordered
    detail: dict[str, Any] = {
        "version": "0",
        "bucket": {"name": bucket.name},
        "object": described,
        "request-id": request,
        "requester": bucket.account_id,
    }
    if name != "ObjectRestore:Completed":
        detail["source-ip-address"] = "127.0.0.1"
    if reason:
        detail["reason"] = reason
    if name.startswith("ObjectRemoved"):
        is_marker = name.endswith("DeleteMarkerCreated")
        detail["deletion-type"] = "Delete Marker Created" if is_marker else "Permanently Deleted"
    if name.startswith("ObjectRestore"):
        detail["source-storage-class"] = about["class"]
    if name == "ObjectRestore:Completed":
        detail["restore-expiry-time"] = about["expires"]
    return detail


def _send_test_event(account_id: str, bucket: Any) -> None:
    """Each queue and topic of a new configuration gets a message, as on AWS."""
    configuration = bucket.notification_configuration
    for arn in dict.fromkeys(one.arn for one in (*configuration.queue, *configuration.topic)):
        event = {
            "Service": "Amazon S3",
            "Event": "s3:TestEvent",
            "Time": bus.iso(datetime.now(UTC)),
            "Bucket": bucket.name,
            "RequestId": secrets.token_hex(8).upper(),
            "HostId": secrets.token_urlsafe(48),
        }
        _Installed.deliveries.add(functools.partial(_deliver, bucket.name, arn, event))
