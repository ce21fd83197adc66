"""The tags of EC2's resources in CloudFormation."""

from __future__ import annotations

from typing import Any

from sagemaker_local_account.aws.resource_base import Properties


def set_tags(ec2: Any, resource_id: str, properties: Properties) -> None:
    """Gives a resource the tags of its properties, and leaves those of CloudFormation's own.

    Args:
        ec2: moto's backend.
        resource_id: the resource.
        properties: of the template, resolved.
    """
    tags = {tag["Key"]: tag["Value"] for tag in properties.get("Tags", [])}
    others = [key for key in ec2.tags[resource_id] if key not in tags and not key.startswith("aws:")]
    ec2.delete_tag_keys([resource_id], others)
    if tags:
        ec2.create_tags([resource_id], tags)
