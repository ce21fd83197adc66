"""The base class of the account's own CloudFormation resource types, which moto lacks or supports incompletely."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from moto.cloudformation.exceptions import UnformattedGetAttTemplateException

Properties = dict[str, Any]


class ResourceBase:
    """A resource: its physical id, properties, and attributes for Fn::GetAtt.

    Args:
        physical_resource_id: the generated name, which `create` may replace.
        properties: of the template, resolved.
        account_id: the account.
        region_name: the region.
    """

    def __init__(self, physical_resource_id: str, properties: Properties, account_id: str, region_name: str) -> None:
        self.physical_resource_id = physical_resource_id
        self.properties = properties
        self.account_id = account_id
        self.region_name = region_name

    def attributes(self) -> dict[str, str]:
        """Returns the attributes for Fn::GetAtt, by name."""
        return {}

    @staticmethod
    def cloudformation_name_type() -> str:
        """Returns the property with the resource's name; "" for none (moto's interface)."""
        return ""

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        """Whether the type has attributes (moto's interface); a wrong name is rejected by `get_cfn_attribute`."""
        return cls.attributes is not ResourceBase.attributes

    def get_cfn_attribute(self, attribute_name: str) -> str:
        """Returns an attribute (moto's interface)."""
        try:
            return self.attributes()[attribute_name]
        except KeyError:
            raise UnformattedGetAttTemplateException from None

    def is_created(self) -> bool:
        """Whether it is created (moto's interface)."""
        return True

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **_: Any
    ) -> Any:
        """Creates a resource (moto's interface)."""
        resource = cls(resource_name, cloudformation_json["Properties"], account_id, region_name)
        resource.create()
        return resource

    @classmethod
    def update_from_cloudformation_json(cls, original_resource: Any, cloudformation_json: Any, **_: Any) -> Any:
        """Updates a resource (moto's interface)."""
        former = original_resource.properties
        original_resource.properties = cloudformation_json["Properties"]
        try:
            original_resource.update(former)
        except BaseException:
            original_resource.properties = former
            raise
        return original_resource

    def create(self) -> None:
        """Creates the resource."""

    def update(self, former: Properties) -> None:
        """Updates the resource from its former properties to ``properties``.

        Raises:
            NotImplementedError: the resource has to be replaced.
        """
        raise NotImplementedError

    def delete(self, account_id: str, region_name: str) -> None:
        """Deletes the resource."""


def replace_unless(properties: Properties, former: Properties, changeable: Set[str]) -> None:
    """Raises NotImplementedError, so that the resource is replaced, where a property changes that is not ``changeable``."""
    names = (set(properties) | set(former)) - changeable
    if any(properties.get(name) != former.get(name) for name in names):
        raise NotImplementedError


def is_true(value: Any) -> bool:
    """Whether a property is true, which may be text in a template."""
    return str(value).lower() == "true"
