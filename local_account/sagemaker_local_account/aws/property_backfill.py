"""Sets the properties of moto's resources that moto's CloudFormation drops, after their creation or update."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sagemaker_local_account.aws.resource_base import Properties, replace_unless


@dataclass(frozen=True)
class Backfill:
    """Sets the dropped properties of a resource type.

    Args:
        apply: called with the resource, its properties, the account id and the region after its creation or update.
        name: the property by which moto finds a resource to update, which is optional in a template.
        changeable: the properties that ``apply`` changes, of a type that moto cannot update ("Update requires: No interruption"
            in the template reference); a change of any other replaces the resource. None where moto updates it.
        named: called with the name of a new resource and its properties, and returns its name.
    """

    apply: Callable[[Any, Properties, str, str], None]
    name: str | None = None
    changeable: frozenset[str] | None = None
    named: Callable[[str, Properties], str] = lambda name, _: name


def with_backfill(of: Any, backfill: Backfill) -> tuple[Any, Any]:
    """Returns a type's creation and update with the back-fill; None for the update where moto has none."""
    moto_create, moto_update = of.create_from_cloudformation_json, of.update_from_cloudformation_json

    def create(
        cls: Any, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **more: Any
    ) -> Any:
        properties = cloudformation_json["Properties"]
        name = backfill.named(resource_name, properties)
        resource = moto_create(name, cloudformation_json, account_id, region_name, **more)
        backfill.apply(resource, properties, account_id, region_name)
        if backfill.changeable is not None:
            resource.account_properties = copy.deepcopy(properties)
        return resource

    def update(cls: Any, original_resource: Any, cloudformation_json: Any, **details: Any) -> Any:
        properties = cloudformation_json["Properties"]
        if backfill.name is not None:
            properties.setdefault(backfill.name, original_resource.name)
        if backfill.changeable is not None:
            resource = original_resource
            replace_unless(properties, resource.account_properties, backfill.changeable)
            resource.account_properties = copy.deepcopy(properties)
        else:
            resource = moto_update(
                original_resource=original_resource, cloudformation_json=cloudformation_json, **details
            )
        backfill.apply(resource, properties, details["account_id"], details["region_name"])
        return resource

    cannot = backfill.changeable is None and hasattr(moto_update, "__isabstractmethod__")
    return create, None if cannot else update
