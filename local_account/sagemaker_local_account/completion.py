"""What moto's CloudFormation drops of a resource's properties, done after it has made or changed the resource."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moto.cloudformation.exceptions import ValidationError
from moto.ec2.models import ec2_backends
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.models.elastic_ip_addresses import ElasticAddress
from moto.ec2.models.internet_gateways import InternetGateway
from moto.ec2.models.nat_gateways import NatGateway
from moto.ec2.models.route_tables import RouteTable
from moto.ec2.models.subnets import Subnet
from moto.ec2.models.vpcs import VPC, VPCEndPoint
from moto.logs.models import LogGroup
from moto.s3.models import FakeBucket, get_canned_acl, s3_backends
from moto.sqs.models import Queue

from .emulated import Properties

Complete = Callable[[Any, Properties, str, str], None]


def install() -> None:
    for of, (create, update) in _WRAPPED.items():
        of.create_from_cloudformation_json = classmethod(create)
        if update is not None:
            of.update_from_cloudformation_json = classmethod(update)


def _completed(of: Any, complete: Complete) -> tuple[Any, Any]:
    """moto's creating and updating of a type, with what is still missing done after it."""
    moto_create, moto_update = of.create_from_cloudformation_json, of.update_from_cloudformation_json

    def create(
        cls: Any, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **more: Any
    ) -> Any:
        resource = moto_create(resource_name, cloudformation_json, account_id, region_name, **more)
        complete(resource, cloudformation_json["Properties"], account_id, region_name)
        return resource

    def update(cls: Any, original_resource: Any, cloudformation_json: Any, **details: Any) -> Any:
        properties = cloudformation_json["Properties"]
        if of is FakeBucket:  # by which moto looks for it, though a template need not say it
            properties.setdefault("BucketName", original_resource.name)
        resource = moto_update(original_resource=original_resource, cloudformation_json=cloudformation_json, **details)
        complete(resource, properties, details["account_id"], details["region_name"])
        return resource

    return create, None if hasattr(moto_update, "__isabstractmethod__") else update


def _tags(resource: TaggedEC2Resource, properties: Properties, account_id: str, region_name: str) -> None:
    tags = {tag["Key"]: tag["Value"] for tag in properties.get("Tags", [])}
    if tags:
        ec2_backends[account_id][region_name].create_tags([resource.physical_resource_id], tags)


def _vpc(vpc: VPC, properties: Properties, account_id: str, region_name: str) -> None:
    for name, attribute, default in (
        ("EnableDnsSupport", "enable_dns_support", True),
        ("EnableDnsHostnames", "enable_dns_hostnames", False),
    ):
        setattr(vpc, attribute, "true" if _true(properties.get(name, default)) else "false")


def _subnet(subnet: Subnet, properties: Properties, account_id: str, region_name: str) -> None:
    subnet.map_public_ip_on_launch = _true(properties.get("MapPublicIpOnLaunch", False))


def _log_group(group: LogGroup, properties: Properties, account_id: str, region_name: str) -> None:
    group.kms_key_id = properties.get("KmsKeyId")


def _queue(queue: Queue, properties: Properties, account_id: str, region_name: str) -> None:
    """moto changes two properties of a queue only."""
    said = {name: value for name, value in properties.items() if name not in ("QueueName", "Tags")}
    policy = queue.policy
    queue._set_attributes(said)
    queue.policy = policy  # which another resource may have given it
    queue.tags = {tag["Key"]: tag["Value"] for tag in properties.get("Tags", [])}


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
    # On AWS every new bucket blocks all of it unless told otherwise.
    all_blocked = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
    block = properties.get("PublicAccessBlockConfiguration") or dict.fromkeys(all_blocked, True)
    buckets.put_public_access_block(
        bucket.name, {name: str(_true(block.get(name, False))).lower() for name in all_blocked}
    )
    rules = properties.get("OwnershipControls", {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]})["Rules"]
    buckets.put_bucket_ownership_controls(bucket.name, rules[0]["ObjectOwnership"])
    buckets.put_bucket_lifecycle(
        bucket.name,
        [_lifecycle_rule(rule) for rule in properties.get("LifecycleConfiguration", {"Rules": []})["Rules"]],
    )
    logging = properties.get("LoggingConfiguration")
    bucket.logging = (
        {"TargetBucket": logging.get("DestinationBucketName"), "TargetPrefix": logging.get("LogFilePrefix", "")}
        if logging
        else {}
    )


# What a template calls a canned ACL, and what the API does.
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


def _lifecycle_rule(rule: Properties) -> Properties:
    """A rule of a template in the words of moto's API."""
    unknown = sorted(set(rule) - _LIFECYCLE)
    if unknown:
        raise ValidationError(
            message=f"LifecycleConfiguration: the local account does not honour {', '.join(unknown)} in a rule"
        )
    made: Properties = {"ID": rule.get("Id"), "Status": rule["Status"], "Filter": {"Prefix": rule.get("Prefix", "")}}
    expiration = {
        name: rule[said]
        for said, name in (
            ("ExpirationDate", "Date"),
            ("ExpirationInDays", "Days"),
            ("ExpiredObjectDeleteMarker", "ExpiredObjectDeleteMarker"),
        )
        if said in rule
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


def _true(value: Any) -> bool:
    return str(value).lower() == "true"


_WRAPPED = {
    of: _completed(of, complete)
    for of, complete in (
        (ElasticAddress, _tags),
        (FakeBucket, _bucket),
        (InternetGateway, _tags),
        (LogGroup, _log_group),
        (NatGateway, _tags),
        (Queue, _queue),
        (RouteTable, _tags),
        (Subnet, _subnet),
        (VPC, _vpc),
        (VPCEndPoint, _tags),
    )
}
