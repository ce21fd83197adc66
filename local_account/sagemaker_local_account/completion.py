"""What moto's CloudFormation drops of a resource's properties, done after it has made or changed the resource."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .emulated import Properties


@dataclass(frozen=True)
class Completion:
    """What is still to be done for a type of moto's after its creation or update, with the resource, its properties, account and
    region; ``name`` is the property by which moto finds a resource to update, though a template need not have it."""

    complete: Callable[[Any, Properties, str, str], None]
    name: str | None = None


def completed(of: Any, completion: Completion) -> tuple[Any, Any]:
    """moto's creation and update of a type, with the completion after it; no update where moto has none."""
    moto_create, moto_update = of.create_from_cloudformation_json, of.update_from_cloudformation_json

    def create(
        cls: Any, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **more: Any
    ) -> Any:
        resource = moto_create(resource_name, cloudformation_json, account_id, region_name, **more)
        completion.complete(resource, cloudformation_json["Properties"], account_id, region_name)
        return resource

    def update(cls: Any, original_resource: Any, cloudformation_json: Any, **details: Any) -> Any:
        properties = cloudformation_json["Properties"]
        if completion.name is not None:
            properties.setdefault(completion.name, original_resource.name)
        resource = moto_update(original_resource=original_resource, cloudformation_json=cloudformation_json, **details)
        completion.complete(resource, properties, details["account_id"], details["region_name"])
        return resource

    return create, None if hasattr(moto_update, "__isabstractmethod__") else update
