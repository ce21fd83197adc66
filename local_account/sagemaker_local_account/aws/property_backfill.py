"""Sets the properties of moto's resources that moto's CloudFormation drops, after their creation or update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sagemaker_local_account.aws.resource_base import Properties


@dataclass(frozen=True)
class Backfill:
    """Sets the dropped properties of a resource type.

    Args:
        apply: called with the resource, its properties, the account id and the region after its creation or update.
        name: the property by which moto finds a resource to update, which is optional in a template.
    """

    apply: Callable[[Any, Properties, str, str], None]
    name: str | None = None


def with_backfill(of: Any, backfill: Backfill) -> tuple[Any, Any]:
    """Returns a type's creation and update with the back-fill; None for the update where moto has none."""
    moto_create, moto_update = of.create_from_cloudformation_json, of.update_from_cloudformation_json

    def create(
        cls: Any, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **more: Any
    ) -> Any:
        resource = moto_create(resource_name, cloudformation_json, account_id, region_name, **more)
        backfill.apply(resource, cloudformation_json["Properties"], account_id, region_name)
        return resource

    def update(cls: Any, original_resource: Any, cloudformation_json: Any, **details: Any) -> Any:
        properties = cloudformation_json["Properties"]
        if backfill.name is not None:
            properties.setdefault(backfill.name, original_resource.name)
        resource = moto_update(original_resource=original_resource, cloudformation_json=cloudformation_json, **details)
        backfill.apply(resource, properties, details["account_id"], details["region_name"])
        return resource

    return create, None if hasattr(moto_update, "__isabstractmethod__") else update
