"""What a service has in CloudFormation: its resource types, with what the account supports of each.

Other types and properties are rejected when a stack is deployed; moto accepts and ignores them. docs/resource-types.md is
generated from these tables (`make docs`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sagemaker_local_account.aws.property_backfill import Backfill

Kind = Literal["real", "emulated", "inert"]


@dataclass(frozen=True)
class ResourceType:
    """The support of a resource type.

    Args:
        kind: ``real``: its API returns it, and it has its effect. ``emulated``: the account does the work of one of CDK's Lambda
            functions. ``inert``: it has no effect.
        note: its effect, or why it has none.
        properties: the supported properties; empty for any.
        made_by: its class, where moto lacks the type or supports it incompletely; None for moto's.
        longest_name: the maximum length of a generated name, which is that of the service's API; None for moto's name.
        created_first: whether it is created as soon as it can be, before others that are not ready: FSx rejects a file system
            unless its security groups have rules, which are resources of their own.
    """

    kind: Kind
    note: str
    properties: frozenset[str] = frozenset()
    made_by: Any = None
    longest_name: int | None = None
    created_first: bool = False

    def unsupported(self, properties: Mapping[str, object]) -> list[str]:
        """Returns the properties that are not supported."""
        return sorted(properties.keys() - self.properties) if self.properties else []


def real(
    note: str,
    properties: str,
    *,
    made_by: Any = None,
    longest_name: int | None = None,
    created_first: bool = False,
) -> ResourceType:
    """Returns a type that has its effect, with the supported properties in one text."""
    return ResourceType("real", note, frozenset(properties.split()), made_by, longest_name, created_first)


@dataclass(frozen=True)
class ServiceResources:
    """The resource types of a service.

    Args:
        types: by name.
        delete: the deletion of resources that moto's CloudFormation does not delete, or deletes differently from AWS, by class;
            called with the resource, the account id and the region.
        backfills: the properties that moto drops, by class.
        install: patches moto's classes.
    """

    types: Mapping[str, ResourceType]
    delete: Mapping[type, Callable[[Any, str, str], object]] = field(default_factory=dict)
    backfills: Mapping[Any, Backfill] = field(default_factory=dict)
    install: Callable[[], None] = lambda: None
