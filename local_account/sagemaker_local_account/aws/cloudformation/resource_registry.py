"""The resource types of all services, behind moto's functions that look for them.

A type that no service has is rejected when its stack is deployed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from moto.cloudformation import parsing
from moto.cloudformation.exceptions import ValidationError

from sagemaker_local_account.aws.cloudformation.custom_resources import CustomResource, is_custom
from sagemaker_local_account.aws.property_backfill import with_backfill
from sagemaker_local_account.aws.resource_base import ResourceBase
from sagemaker_local_account.aws.resource_types import ResourceType, ServiceResources
from sagemaker_local_account.core.patches import CREATE, UPDATE, patch

_types: dict[str, ResourceType] = {}
_deletions: dict[type, Callable[[Any, str, str], object]] = {}
# Made once from moto's original methods: a process may have several accounts in sequence.
_backfilled: dict[Any, tuple[Any, Any]] = {}
_generated_name = parsing.generate_resource_name


def supported(resource_type: str) -> bool:
    """Whether a stack with such a resource can be deployed."""
    return resource_type in _types or is_custom(resource_type)


def is_known(resource_type: str) -> bool:
    """Whether a service has the type, a custom one by its name."""
    return resource_type in _types


def is_created_first(resource_type: str) -> bool:
    """Whether resources of the type are created before others."""
    return resource_type in _types and _types[resource_type].created_first


def unsupported(resource_type: str, properties: Mapping[str, object]) -> list[str]:
    """Returns the unsupported properties of a resource."""
    return _types[resource_type].unsupported(properties) if resource_type in _types else []


def deletion_of(resource: Any) -> Callable[[Any, str, str], object] | None:
    """Returns what deletes a resource in place of moto's CloudFormation; None for moto's own deletion."""
    return _deletions.get(type(resource))


def class_of(resource_type: str) -> Any:
    """Returns the class of a resource type; moto's is None for an unknown type, and starts a container for `Custom::`."""
    known = _types.get(resource_type)
    if known is not None and known.made_by is not None:
        return known.made_by
    if is_custom(resource_type):
        return CustomResource
    if known is None:
        raise ValidationError(message=f"the local account does not support the resource type {resource_type}")
    return parsing.get_model_map().get(resource_type, Inert)


class Inert(ResourceBase):
    """A resource without effect; the note of its type has the reason."""


def _name_that_fits(resource_type: str, stack_name: str, logical_id: str) -> str:
    """The generated name of a resource: stack name, logical id and suffix, truncated to the maximum of its type.

    moto's of a bucket with a long logical id is longer than 63 characters.
    """
    bucket = resource_type == "AWS::S3::Bucket"
    name: str = _generated_name("" if bucket else resource_type, stack_name, logical_id)
    name = name.lower() if bucket else name
    rest, _, suffix = name.rpartition("-")
    most = (_types[resource_type].longest_name if resource_type in _types else None) or len(name)
    return f"{rest[: most - len(suffix) - 1].rstrip('-')}-{suffix}"


def install(services: Iterable[ServiceResources]) -> None:
    """Patches moto's resource types by those of the services."""
    patch(parsing, "resource_class_from_type", class_of, "resource_type")
    patch(parsing, "generate_resource_name", _name_that_fits, "resource_type, stack_name, logical_id")
    # moto caches its tables of types.
    for table in (parsing.get_model_list, parsing.get_model_map, parsing.get_name_type_map):
        table.cache_clear()
    for service in services:
        _types.update(service.types)
        _deletions.update(service.delete)
        for of, backfill in service.backfills.items():
            if of not in _backfilled:
                _backfilled[of] = with_backfill(of, backfill)
        service.install()
    for of, (create, update) in _backfilled.items():
        patch(of, "create_from_cloudformation_json", create, CREATE)
        if update is not None:
            patch(of, "update_from_cloudformation_json", update, UPDATE)
