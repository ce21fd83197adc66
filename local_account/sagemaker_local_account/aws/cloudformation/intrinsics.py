"""Intrinsic functions: `Fn::GetStackOutput`, which moto lacks, and the names of those that nothing here evaluates.

moto leaves a function that it does not know in the resource's properties, as if it were a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moto.cloudformation import parsing
from moto.cloudformation.models import cloudformation_backends

from sagemaker_local_account.aws.cloudformation.provisioner import ResourceFailed
from sagemaker_local_account.core.patches import patch

_SUPPORTED = frozenset(
    {
        *("Fn::And", "Fn::Base64", "Fn::Equals", "Fn::FindInMap", "Fn::GetAZs", "Fn::GetAtt", "Fn::GetStackOutput"),
        *("Fn::If", "Fn::ImportValue", "Fn::Join", "Fn::Not", "Fn::Or", "Fn::Select", "Fn::Split", "Fn::Sub"),
        *("Fn::ToJsonString", "Fn::Transform"),
    }
)
_moto_clean_json = parsing.clean_json


def install() -> None:
    """Patches moto's evaluation of intrinsic functions, which calls itself by this name."""
    patch(parsing, "clean_json", evaluated, "resource_json, resources_map")


def evaluated(resource_json: Any, resources_map: Any) -> Any:
    """Returns a template's value with its functions evaluated.

    Args:
        resource_json: the value.
        resources_map: the stack's resources.

    Raises:
        ResourceFailed: `Fn::GetStackOutput` names no output of a stack of the account.
    """
    if isinstance(resource_json, dict) and resource_json.keys() == {"Fn::GetStackOutput"}:
        given = _moto_clean_json(resource_json["Fn::GetStackOutput"], resources_map)
        return _output(given, resources_map._account_id, resources_map._region_name)
    return _moto_clean_json(resource_json, resources_map)


def _output(given: dict[str, Any], account_id: str, region: str) -> Any:
    """The value of another stack's output, when it is read (template reference, Fn::GetStackOutput: "a weak reference")."""
    if "RoleArn" in given:
        raise ResourceFailed(
            "Fn::GetStackOutput: RoleArn, for stacks of other accounts, is not supported by the local account"
        )
    name, output, region = given["StackName"], given["OutputName"], given.get("Region", region)
    for stack in cloudformation_backends[account_id][region].stacks.values():
        known = name in (stack.name, stack.stack_id) and output in stack.output_map.outputs
        if known and (found := stack.output_map[output]) is not None:
            return found.value
    raise ResourceFailed(f"Fn::GetStackOutput: there is no output {output} of a stack {name} in {region}")


def functions(value: Any) -> Iterator[tuple[str, Any]]:
    """Yields the name and the argument of each function in a template, or in a part of one."""
    if isinstance(value, list):
        for item in value:
            yield from functions(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if len(value) == 1 and str(name).startswith("Fn::"):
                yield name, item
            yield from functions(item)


def unknown(value: Any) -> list[str]:
    """Returns the names of the functions in a part of a template that nothing evaluates."""
    return sorted({name for name, _ in functions(value)} - _SUPPORTED)
