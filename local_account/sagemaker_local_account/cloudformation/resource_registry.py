"""The registry of CloudFormation's resource types: this package's classes, deletions and back-fills for moto's.

A type that is neither in `support_matrix.TYPES` nor here is rejected when its stack is deployed. The deletion of resources that
moto can create but not delete is in the module of their service.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moto.cloudformation import parsing
from moto.cloudformation.exceptions import ValidationError

from sagemaker_local_account.cloudformation.custom_resources import CustomResource, is_custom
from sagemaker_local_account.cloudformation.property_backfill import Backfill, with_backfill
from sagemaker_local_account.cloudformation.resource_base import ResourceBase
from sagemaker_local_account.cloudformation.resources import (
    batch,
    cloudwatch,
    codebuild,
    ec2,
    ec2_security_groups,
    ecr,
    efs,
    events,
    fsx,
    functions,
    iam,
    kms,
    logs,
    nested_stacks,
    s3,
    sagemaker,
    sns,
    sqs,
    stepfunctions,
)
from sagemaker_local_account.cloudformation.support_matrix import TYPES
from sagemaker_local_account.core.patches import CREATE, UPDATE, patch

# Types that are created before others: FSx rejects a file system unless its security groups have rules, which are resources of
# their own.
CREATED_FIRST = {"AWS::FSx::FileSystem"}

# Types that moto lacks or supports incompletely, and custom resources of CDK that the account implements itself.
NATIVE: dict[str, Any] = {
    **batch.NATIVE,
    **codebuild.NATIVE,
    **cloudwatch.NATIVE,
    **ec2.NATIVE,
    **efs.NATIVE,
    **events.NATIVE,
    **functions.NATIVE,
    **kms.NATIVE,
    **logs.NATIVE,
    **nested_stacks.NATIVE,
    **fsx.NATIVE,
    **s3.NATIVE,
    **ec2_security_groups.NATIVE,
    **sagemaker.NATIVE,
    **sns.NATIVE,
    **sqs.NATIVE,
    **stepfunctions.NATIVE,
}
# The deletion of resources that moto's CloudFormation does not delete, or deletes differently from AWS.
DELETE: dict[type, Callable[[Any, str, str], object]] = {
    **ec2.DELETE,
    **iam.DELETE,
    **ecr.DELETE,
    **s3.DELETE,
}
_BACKFILLS: dict[Any, Backfill] = {
    **ec2.BACKFILLS,
    **logs.BACKFILLS,
    **s3.BACKFILLS,
    **sqs.BACKFILLS,
}
# Made once from moto's original methods: a process may have several accounts in sequence.
_BACKFILLED = {of: with_backfill(of, backfill) for of, backfill in _BACKFILLS.items()}

# The maximum length of generated names (stack name, logical id and suffix), by resource type; each is that of the service's API.
_LONGEST_NAMES = {
    "AWS::CloudFormation::Stack": 128,
    "AWS::Events::Rule": 64,
    "AWS::IAM::Role": 64,
    "AWS::Lambda::Function": 64,
    "AWS::SQS::Queue": 80,
    "AWS::Scheduler::Schedule": 64,
    "AWS::Scheduler::ScheduleGroup": 64,
    **dict.fromkeys(batch.NATIVE, 128),
    "AWS::StepFunctions::StateMachine": 80,
}
_generated_name = parsing.generate_resource_name


def supported(resource_type: str) -> bool:
    """Whether a stack with such a resource can be deployed."""
    return resource_type in TYPES or resource_type in NATIVE or is_custom(resource_type)


def class_of(resource_type: str) -> Any:
    """Returns the class of a resource type; moto's is None for an unknown type, and starts a container for `Custom::`."""
    if resource_type in NATIVE:
        return NATIVE[resource_type]
    if is_custom(resource_type):
        return CustomResource
    if resource_type not in TYPES:
        raise ValidationError(message=f"the local account does not support the resource type {resource_type}")
    return parsing.get_model_map().get(resource_type, Inert)


class Inert(ResourceBase):
    """A resource without effect; `TYPES` has the reason."""


def _name_that_fits(resource_type: str, stack_name: str, logical_id: str) -> str:
    """The generated name of a resource: moto's, truncated to the maximum length of its type."""
    name: str = _generated_name(resource_type, stack_name, logical_id)
    rest, _, suffix = name.rpartition("-")
    most = _LONGEST_NAMES.get(resource_type, len(name)) - len(suffix) - 1
    return f"{rest[:most].rstrip('-')}-{suffix}"


def install() -> None:
    """Patches moto's resource types."""
    patch(parsing, "resource_class_from_type", class_of, "resource_type")
    patch(parsing, "generate_resource_name", _name_that_fits, "resource_type, stack_name, logical_id")
    # moto caches its tables of types.
    for table in (parsing.get_model_list, parsing.get_model_map, parsing.get_name_type_map):
        table.cache_clear()
    for service in (ec2, iam, logs, ecr, s3, ec2_security_groups):
        service.install()
    stepfunctions.install()
    for of, (create, update) in _BACKFILLED.items():
        patch(of, "create_from_cloudformation_json", create, CREATE)
        if update is not None:
            patch(of, "update_from_cloudformation_json", update, UPDATE)
