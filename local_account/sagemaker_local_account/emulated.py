"""A resource type of CloudFormation that is this account's own: the base of what moto lacks or does by halves."""

from __future__ import annotations

from typing import Any

from moto.cloudformation.exceptions import UnformattedGetAttTemplateException

Properties = dict[str, Any]


class Emulated:
    """What resource types of this account share: an id, their properties, and attributes for Fn::GetAtt."""

    def __init__(self, physical_resource_id: str, properties: Properties, account_id: str, region_name: str) -> None:
        self.physical_resource_id = physical_resource_id
        self.properties = properties
        self.account_id = account_id
        self.region_name = region_name

    def attributes(self) -> dict[str, str]:
        """What Fn::GetAtt gives, by its names."""
        return {}

    @staticmethod
    def cloudformation_name_type() -> str:
        return ""

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        # Asked before the resource is there; a wrong name is refused when its value is asked for.
        return cls.attributes is not Emulated.attributes

    def get_cfn_attribute(self, attribute_name: str) -> str:
        try:
            return self.attributes()[attribute_name]
        except KeyError:
            raise UnformattedGetAttTemplateException from None

    def is_created(self) -> bool:
        return True

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **_: Any
    ) -> Any:
        resource = cls(resource_name, cloudformation_json["Properties"], account_id, region_name)
        resource.create()
        return resource

    @classmethod
    def update_from_cloudformation_json(cls, original_resource: Any, cloudformation_json: Any, **_: Any) -> Any:
        former = original_resource.properties
        original_resource.properties = cloudformation_json["Properties"]
        try:
            original_resource.update(former)
        except BaseException:
            original_resource.properties = former
            raise
        return original_resource

    def create(self) -> None:
        """Bring about what the resource stands for."""

    def update(self, former: Properties) -> None:
        """Make of what was brought about by the former properties what the new ones say.

        Raises:
            NotImplementedError: another has to take its place.
        """
        raise NotImplementedError

    def delete(self, account_id: str, region_name: str) -> None:
        """Undo it."""


def replace_unless(properties: Properties, former: Properties, changeable: set[str]) -> None:
    """Raise NotImplementedError, by which another takes its place, where other properties change than these."""
    names = (set(properties) | set(former)) - changeable
    if any(properties.get(name) != former.get(name) for name in names):
        raise NotImplementedError


def is_true(value: Any) -> bool:
    """Whether a property is true, which a template may also have as text."""
    return str(value).lower() == "true"
