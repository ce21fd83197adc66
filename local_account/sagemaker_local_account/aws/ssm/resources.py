"""SSM's parameters in CloudFormation; moto requires their names, and gives them others in updates."""

from __future__ import annotations

from typing import Any

from moto.ssm.models import Parameter, ssm_backends

from sagemaker_local_account.aws.resource_types import ServiceResources, real
from sagemaker_local_account.core.patches import CREATE, UPDATE, patch

_moto_creates = Parameter.create_from_cloudformation_json.__func__


def install() -> None:
    """Patches moto's parameters."""
    patch(Parameter, "create_from_cloudformation_json", _create, CREATE)
    patch(Parameter, "update_from_cloudformation_json", _update, UPDATE)


def _create(
    cls: Any, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **_: Any
) -> Parameter:
    """Creates a parameter, with a generated name unless the template has one."""
    properties = {"Name": resource_name, **cloudformation_json["Properties"]}
    made: Parameter = _moto_creates(cls, resource_name, {"Properties": properties}, account_id, region_name)
    return made


def _update(
    cls: Any,
    original_resource: Any,
    new_resource_name: str,
    cloudformation_json: Any,
    account_id: str,
    region_name: str,
) -> Parameter:
    """Changes a parameter; another name or type replaces it."""
    properties, name = cloudformation_json["Properties"], original_resource.name
    if (properties.get("Name", name), properties["Type"]) != (name, original_resource.parameter_type):
        raise NotImplementedError
    ssm_backends[account_id][region_name].delete_parameter(name)
    return _create(cls, name, cloudformation_json, account_id, region_name)


RESOURCES = ServiceResources(
    types={
        "AWS::SSM::Parameter": real(
            "stores a value", "AllowedPattern DataType Description Name Policies Tags Tier Type Value"
        ),
    },
    install=install,
)
