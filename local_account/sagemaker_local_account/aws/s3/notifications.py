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
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import xmltodict
from moto.awslambda.models import lambda_backends
from moto.core.responses import ActionResult, EmptyResult
from moto.s3 import models, notifications
from moto.s3.exceptions import InvalidArgumentError, InvalidNotificationDestination, MalformedXML
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
            if not one or not one.get(destination) or not one.get("Event"):
                raise MalformedXML
            for rule in _rules(one.get("Filter")):
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
        InvalidNotificationDestination: a destination is in another region.
    """
    asked = notification_config or {}
    unvalidated = asked.get("SkipDestinationValidation", False)
    given = {name: asked[name] for name in (*_DESTINATIONS, "EventBridgeConfiguration") if name in asked}
    listed = [(one[names[0]], one, names[0]) for name, names in _DESTINATIONS.items() for one in given.get(name, ())]
    for arn, _, destination in listed:
        if len(arn.split(":")) < 6 or not arn.startswith("arn:"):
            raise InvalidArgumentError("The ARN could not be parsed", destination, arn)
        if arn.split(":")[3] != self.region_name:
            raise InvalidNotificationDestination
    _check_overlaps([one for _, one, _ in listed])
    for arn, _, _ in () if unvalidated else listed:
        if why := _why_not(self, arn):
            _log.warning("bucket %s: its notifications are refused: %s: %s", self.name, arn, why)
            raise InvalidArgumentError(UNVALIDATED, arn, why)
    _moto_set_configuration(self, given)


def _check_overlaps(configurations: list[dict[str, Any]]) -> None:
    for one, other in itertools.combinations(configurations, 2):
        common = [(a, b) for a in one["Event"] for b in other["Event"] if _same(a, b)]
        if not common:
            continue
        of_one, of_other = (_affixes(each.get("Filter")) for each in (one, other))
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


def _rules(filters: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The rules of a configuration's Filter, which may be empty or absent."""
    found: list[dict[str, Any]] = ((filters or {}).get("S3Key") or {}).get("FilterRule", [])
    return found


def _affixes(filters: dict[str, Any] | None) -> dict[str, str]:
    """The Prefix and the Suffix that a configuration's Filter has."""
    return {rule["Name"]: rule["Value"] for rule in _rules(filters)}


def _why_not(bucket: FakeBucket, arn: str) -> str:
    """Why a bucket cannot send its events to a destination; "" where it can."""
    _, _, service, region, account, *_, name = arn.split(":")
    kind = {"lambda": "function", "sqs": "queue"}.get(service, "topic")
    refused = f"Permissions on the destination {kind} do not allow S3 to publish notifications from this bucket"
    missing = f"The destination {kind} does not exist"
    if service == "lambda":
        refused = missing = f"Not authorized to invoke function [{arn}]"
        exists = _is_found(lambda_backends[account][region].get_function, arn)
    elif service == "sqs":
        exists = name in sqs_backends[account][region].queues
    else:
        exists = arn in sns_backends[account][region].topics
    if not exists:
        return missing
    if name.endswith(".fifo"):  # "Supported event destinations", S3's guide
        return f"a FIFO {kind} is no destination of S3"
    try:
        _permit(bucket.name, Call(invocations.action_of(arn), arn))
    except LookupError:
        return refused
    return ""


def _is_found(of: Any, arn: str) -> bool:
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
    given = _affixes(self.filters)
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
    versions = bucket.keys.getlist(key_name, [])
    was_marker = any(isinstance(one, models.FakeDeleteMarker) and str(one.version_id) == version_id for one in versions)
    with _silence():
        done, headers = _moto_delete_object(self, bucket_name, key_name, version_id, bypass)
    # An object that does not exist is deleted too: recorded in test_delete_objects.
    if bucket.notification_configuration is not None and (done or not bucket.is_versioned):
        version = version_id or headers.get("version-id")
        is_marker = version_id is None and "version-id" in headers
        event = "ObjectRemoved:DeleteMarkerCreated" if is_marker else "ObjectRemoved:Delete"
        _send(_Event(bucket, event, key_name, version=version, etag=_EMPTY if is_marker else None))
    if done and was_marker:  # moto says it of some only
        headers["delete-marker"] = "true"
    return done, headers


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    _request.is_silent = True
    try:
        yield
    finally:
        _request.is_silent = False


@dataclass(frozen=True)
class _Event:
    """An event of an object, as each kind of destination gets it.

    Attributes:
        bucket: moto's.
        name: such as ``ObjectCreated:Put``.
        key: of the object.
        version: of the object, in a bucket with versions.
        etag: None for what is gone.
        size: in bytes, of what is there.
        storage_class: that from which an object is restored.
        expires: when it is no longer restored.
    """

    bucket: Any
    name: str
    key: str
    version: str | None = None
    etag: str | None = None
    size: int | None = None
    storage_class: str | None = None
    expires: str | None = None
    time: datetime = field(default_factory=lambda: datetime.now(UTC))
    request_id: str = field(default_factory=lambda: secrets.token_hex(8).upper())
    sequencer: str = field(
        default_factory=lambda: f"{time.time_ns():018X}"
    )  # of a key's events the later has the larger

    @property
    def _is_change(self) -> bool:
        return self.name.startswith(("ObjectTagging", "ObjectAcl"))

    def record(self, configuration_id: str) -> dict[str, Any]:
        """The event for queues, topics and functions."""
        given = {
            "key": urllib.parse.quote_plus(self.key, safe="/*"),
            "size": self.size,
            "eTag": self.etag,
            "versionId": self.version,
            "sequencer": None if self._is_change else self.sequencer,
        }
        bucket = {
            "name": self.bucket.name,
            "ownerIdentity": {"principalId": self._principal("owner")},
            "arn": self.bucket.arn,
        }
        record = {
            "eventVersion": "2.3" if self._is_change else "2.1",
            "eventSource": "aws:s3",
            "awsRegion": self.bucket.region_name,
            "eventTime": bus.iso(self.time),
            "eventName": self.name,
            "userIdentity": {"principalId": self._principal("user")},
            "requestParameters": {"sourceIPAddress": "127.0.0.1"},
            "responseElements": {"x-amz-request-id": self.request_id, "x-amz-id-2": secrets.token_urlsafe(48)},
            "s3": {
                "s3SchemaVersion": "1.0",
                "configurationId": configuration_id,
                "bucket": bucket,
                "object": _present(given),
            },
        }
        if self.name == "ObjectRestore:Completed":
            restored = {
                "lifecycleRestorationExpiryTime": self.expires,
                "lifecycleRestoreStorageClass": self.storage_class,
            }
            record["glacierEventData"] = {"restoreEventData": restored}
        return record

    def detail(self, reason: str) -> dict[str, Any]:
        """The detail of the event for EventBridge; those without a reason have no sequencer."""
        given = {
            "key": self.key,
            "size": self.size,
            "etag": self.etag,
            "version-id": self.version,
            "sequencer": self.sequencer if reason else None,
        }
        deletion = {
            "ObjectRemoved:Delete": "Permanently Deleted",
            "ObjectRemoved:DeleteMarkerCreated": "Delete Marker Created",
        }
        by_aws = self.name == "ObjectRestore:Completed"
        return _present(
            {
                "version": "0",
                "bucket": {"name": self.bucket.name},
                "object": _present(given),
                "request-id": self.request_id,
                "requester": self.bucket.account_id,
                "source-ip-address": None if by_aws else "127.0.0.1",
                "reason": reason or None,
                "deletion-type": deletion.get(self.name),
                "source-storage-class": self.storage_class,
                "restore-expiry-time": self.expires if by_aws else None,
            }
        )

    def _principal(self, of: str) -> str:
        """The identity of the bucket's owner, or of who sends its requests: one of each, of letters and digits as on AWS."""
        digest = hashlib.sha256(f"{of} {self.bucket.account_id}".encode()).hexdigest()
        return f"A{digest[:13].upper()}"


def _present(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _send_event(account_id: str, event_name: str, bucket: Any, key: Any) -> None:
    """moto's, which calls it with each event of an object."""
    if bucket.notification_configuration is None:
        return
    name = str(getattr(event_name, "value", event_name)).removeprefix("s3:")
    parts = name == "ObjectCreated:Put" and key.multipart is not None  # the event of its completion follows
    if _request.is_silent or parts or (name == "ObjectTagging:Put" and not _request.tags):
        return
    is_restored = name.startswith("ObjectRestore")
    _send(
        _Event(
            bucket,
            name,
            key.name,
            version=None if key.version_id == "null" else key.version_id,
            etag=key.etag.strip('"'),
            size=key.size if is_restored or name.startswith("ObjectCreated") else None,
            storage_class=key.storage_class if is_restored else None,
            expires=key._expiry.strftime("%Y-%m-%dT%H:%M:%SZ") if is_restored and key._expiry else None,
        )
    )


def _send(event: _Event) -> None:
    """Delivers an event to all who asked for it, after this call, which fails for nothing that they do."""
    bucket = event.bucket
    configuration = bucket.notification_configuration
    for one in (*configuration.cloud_function, *configuration.queue, *configuration.topic):
        if one.matches(f"s3:{event.name}", event.key):
            records = {"Records": [event.record(one.id)]}
            _Installed.deliveries.add(functools.partial(_deliver, bucket.name, one.arn, records))
    if configuration.event_bridge is not None and event.name in _DETAIL_TYPES:
        kind, reason = _DETAIL_TYPES[event.name]
        place = Location(bucket.account_id, bucket.region_name)
        bus.put_event(bucket.arn, "aws.s3", kind, event.detail(reason), place)


def _deliver(bucket: str, arn: str, message: dict[str, Any]) -> None:
    permit = functools.partial(_permit, bucket)
    try:
        invocations.invoke(arn, json.dumps(message), permit, subject="Amazon S3 Notification")
    except Exception as error:
        log_failure(_log, error, "bucket %s: event not delivered to %s", bucket, arn)


def _permit(bucket: str, call: Call) -> None:
    _Installed.authorizer.check_service(SERVICE, call, f"arn:aws:s3:::{bucket}")


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
