"""Whether a template can be deployed with the parameters that are given: what CloudFormation refuses before it makes anything.

The sentences are AWS's, recorded by LocalStack (localstack/localstack at 8b9a79f, tests/aws/services/cloudformation: engine/
test_references.py, test_conditions.py and test_mappings.py, test_template_engine.py).
"""

from __future__ import annotations

import re
from typing import Any

from moto.cloudformation.exceptions import CloudFormationError, ValidationError
from moto.cloudformation.models import CloudFormationBackend
from moto.core.exceptions import ServiceException

from sagemaker_local_account.aws.cloudformation import intrinsics, parameter_values, templates
from sagemaker_local_account.aws.cloudformation.provisioner import Resources, references

_PSEUDO = ("AccountId", "NoValue", "NotificationARNs", "Partition", "Region", "StackId", "StackName", "URLSuffix")
_PSEUDO_NAMES = frozenset(f"AWS::{name}" for name in _PSEUDO)
_NAME = re.compile(r"[A-Za-z0-9]+")


class InsufficientCapabilities(CloudFormationError):
    """The template has resources of IAM, and the request does not acknowledge them."""

    code = "InsufficientCapabilitiesException"


def check(
    backend: CloudFormationBackend,
    name: str,
    template: str | None,
    parameters: dict[str, Any],
    capabilities: list[str] | None,
) -> Resources:
    """Raises an error for what CloudFormation, or the local account, refuses.

    Args:
        backend: that of the stack's account and region.
        name: the stack's name.
        template: the template.
        parameters: the values of its parameters, by name.
        capabilities: what the request acknowledges; None where it needs not.

    Returns:
        The resources, none of which is made.

    Raises:
        ValidationError, InsufficientCapabilities: in the service's words.
    """
    found = templates.parsed(template)
    templates.check(found)
    for part in ("Resource", "Parameter"):
        for one in found.get(f"{part}s", {}):
            if not _NAME.fullmatch(one):
                raise ValidationError(message=f"Template format error: {part} name {one} is non alphanumeric.")
    parameter_values.check(found, parameters, backend.account_id, backend.region_name)
    needed = [] if capabilities is None else templates.capabilities(found)
    if needed and not {"CAPABILITY_NAMED_IAM", *needed} & {*(capabilities or [])}:
        raise InsufficientCapabilities(f"Requires capabilities : [{needed[0]}]")
    try:
        resources = Resources(
            f"arn:aws:cloudformation:{backend.region_name}:{backend.account_id}:stack/{name}/0",
            name, parameters, {}, backend.region_name, backend.account_id, found, backend.exports,
        )  # fmt: skip
        resources.load()
    except KeyError as error:
        raise ValidationError(
            message=f"Template format error: Unresolved dependencies [{error.args[0]}]. Cannot reference resources in the "
            "Conditions block of the template"
        ) from error
    for block in ("Resources", "Outputs"):
        _check_block(block, found.get(block) or {}, resources)
    return resources


def _check_block(block: str, definitions: dict[str, Any], resources: Any) -> None:
    holds = resources.lazy_condition_map
    known = _PSEUDO_NAMES | {*resources._template.get("Parameters", {}), *resources.wanted()}
    lacking: set[str] = set()
    for one in definitions.values():
        if not holds.get(one.get("Condition"), True):
            continue
        # What is waited for may be left out by its condition, as nothing that is referred to may.
        lacking |= references({"DependsOn": one.get("DependsOn")}) - {*resources._resource_json_map}
        chosen = _chosen({name: part for name, part in one.items() if name != "DependsOn"}, resources)
        lacking |= references(chosen) - known
        for function, argument in intrinsics.functions(chosen):
            if function == "Fn::FindInMap":
                _check_mapping(argument, resources)
            elif function == "Fn::GetAtt" and not isinstance(
                argument if isinstance(argument, str) else argument[0], str
            ):
                raise ValidationError(
                    message="Template error: every Fn::GetAtt object requires two non-empty parameters, the resource name and "
                    "the resource attribute"
                )
    if lacking:
        before = "Template format error: " if block == "Resources" else ""
        names = ", ".join(sorted(lacking))
        raise ValidationError(
            message=f"{before}Unresolved resource dependencies [{names}] in the {block} block of the template"
        )


def _chosen(value: Any, resources: Any) -> Any:
    """A part of a template with the branch in place of each `Fn::If`."""
    if isinstance(value, list):
        return [_chosen(item, resources) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"Fn::If"}:
        condition, then, otherwise = value["Fn::If"]
        return _chosen(then if intrinsics.condition_of(condition, resources) else otherwise, resources)
    return {name: _chosen(item, resources) for name, item in value.items()}


def _check_mapping(argument: Any, resources: Any) -> None:
    try:
        intrinsics.evaluated({"Fn::FindInMap": argument}, resources)
    except KeyError:
        return  # a key is known once a resource is made
    except ServiceException as error:
        if "Unable to get mapping" in str(error):
            raise
