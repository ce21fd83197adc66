"""CloudFormation's resource types: what moto lacks or does by halves, and what does nothing here, with the reason.

A type that is neither in `resource_types.TYPES` nor here is refused when its stack is deployed. Where moto can create a
resource but not delete it, its deletion is in its service's module; a stack whose resource nobody can delete does not end as
DELETE_COMPLETE.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moto.cloudformation import parsing
from moto.cloudformation.exceptions import ValidationError

from . import (
    build_resources,
    cloudwatch_resources,
    ec2_resources,
    efs_resources,
    event_rules,
    iam_resources,
    keys,
    logs_resources,
    lustre_resources,
    repositories,
    s3_resources,
    security_groups,
    sns_resources,
    sqs_resources,
    stepfunctions_resources,
)
from .completion import Completion, completed
from .custom_resources import CustomResource, is_custom
from .emulated import Emulated
from .patches import CREATE, UPDATE, patch
from .resource_types import TYPES

# Types that a stack makes as soon as what they depend on is there, before anything else: FSx refuses a file system unless its
# security groups have rules, which are resources of their own.
CREATED_FIRST = {"AWS::FSx::FileSystem"}

# Types that moto lacks or does by halves, and custom resources whose Lambda functions CDK brings along and whose work the account
# does itself.
NATIVE: dict[str, Any] = {
    **build_resources.NATIVE,
    **cloudwatch_resources.NATIVE,
    **ec2_resources.NATIVE,
    **efs_resources.NATIVE,
    **event_rules.NATIVE,
    **keys.NATIVE,
    **logs_resources.NATIVE,
    **lustre_resources.NATIVE,
    **s3_resources.NATIVE,
    **security_groups.NATIVE,
    **sns_resources.NATIVE,
    **sqs_resources.NATIVE,
}
# How resources are deleted that moto's CloudFormation creates and then leaves behind, or deletes otherwise than AWS.
DELETE: dict[type, Callable[[Any, str, str], object]] = {
    **ec2_resources.DELETE,
    **iam_resources.DELETE,
    **repositories.DELETE,
    **s3_resources.DELETE,
}
_COMPLETIONS: dict[Any, Completion] = {
    **ec2_resources.COMPLETED,
    **logs_resources.COMPLETED,
    **s3_resources.COMPLETED,
    **sqs_resources.COMPLETED,
}
# Made once, of moto's own methods, since an account may be opened again in the same process.
_COMPLETED = {of: completed(of, completion) for of, completion in _COMPLETIONS.items()}

# The longest name of each type whose name CloudFormation makes of the stack's name, the logical id and a suffix, where that is
# shorter than all three may be; each is the maximum of the service's own API.
_LONGEST_NAMES = {
    "AWS::Events::Rule": 64,
    "AWS::IAM::Role": 64,
    "AWS::Lambda::Function": 64,
    "AWS::SQS::Queue": 80,
    "AWS::StepFunctions::StateMachine": 80,
}
_generated_name = parsing.generate_resource_name


def supported(resource_type: str) -> bool:
    """Whether a stack with such a resource can be deployed."""
    return resource_type in TYPES or resource_type in NATIVE or is_custom(resource_type)


def class_of(resource_type: str) -> Any:
    """The class that makes a resource of a type.

    moto gives None, and a line in the log, for a type it does not have, and starts a container for any `Custom::` type.
    """
    if resource_type in NATIVE:
        return NATIVE[resource_type]
    if is_custom(resource_type):
        return CustomResource
    if resource_type not in TYPES:
        raise ValidationError(message=f"the local account does not have the resource type {resource_type}")
    return parsing.get_model_map().get(resource_type, Inert)


class Inert(Emulated):
    """A resource that nothing here makes anything of; `TYPES` has the reason."""


def _name_that_fits(resource_type: str, stack_name: str, logical_id: str) -> str:
    """The name that CloudFormation makes for a resource that has none: moto's, but never too long for its type."""
    name: str = _generated_name(resource_type, stack_name, logical_id)
    rest, _, suffix = name.rpartition("-")
    most = _LONGEST_NAMES.get(resource_type, len(name)) - len(suffix) - 1
    return f"{rest[:most].rstrip('-')}-{suffix}"


def install() -> None:
    """Replace what moto's own types do by halves; the types of this package register by being defined."""
    patch(parsing, "resource_class_from_type", class_of, "resource_type")
    patch(parsing, "generate_resource_name", _name_that_fits, "resource_type, stack_name, logical_id")
    # Its table of types is made once, at the first use.
    for table in (parsing.get_model_list, parsing.get_model_map, parsing.get_name_type_map):
        table.cache_clear()
    for service in (ec2_resources, iam_resources, logs_resources, repositories, s3_resources, security_groups):
        service.install()
    stepfunctions_resources.install()
    for of, (create, update) in _COMPLETED.items():
        patch(of, "create_from_cloudformation_json", create, CREATE)
        if update is not None:
            patch(of, "update_from_cloudformation_json", update, UPDATE)
