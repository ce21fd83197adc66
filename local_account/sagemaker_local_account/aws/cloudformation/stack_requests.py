"""Requests about stacks that moto answers otherwise than AWS, or not at all.

The answers are those that AWS gave to LocalStack's tests (localstack/localstack at 8b9a79f,
tests/aws/services/cloudformation/api: test_stacks.py, test_update_stack.py, test_templates.py, test_resources.py).
"""

from __future__ import annotations

import re
from typing import Any

from moto.cloudformation.exceptions import CloudFormationError, ValidationError
from moto.cloudformation.models import Stack
from moto.cloudformation.responses import CloudFormationResponse
from moto.cloudformation.utils import generate_stack_id
from moto.core.responses import ActionResult, EmptyResult
from moto.core.utils import utcnow

from sagemaker_local_account.aws.cloudformation import change_sets, deployable, templates
from sagemaker_local_account.aws.cloudformation.request_members import (
    constraint,
    parameters_of,
    stack_of,
    tags_of,
    template_of,
)
from sagemaker_local_account.core.patches import add, patch

_NAME = "[a-zA-Z][-a-zA-Z0-9]*|arn:[-a-zA-Z0-9:/._+]*"
_ON_FAILURE = ("DO_NOTHING", "ROLLBACK", "DELETE")


class StackAlreadyExists(CloudFormationError):
    """There is a stack of that name."""

    code = "AlreadyExistsException"


def install() -> None:
    """Patches moto's requests, and adds those that it lacks."""
    patch(CloudFormationResponse, "create_stack", _create_stack, "self")
    patch(CloudFormationResponse, "update_stack", _update_stack, "self")
    patch(CloudFormationResponse, "delete_stack", _delete_stack, "self")
    patch(CloudFormationResponse, "validate_template", _validate_template, "self")
    for operation in (_rollback_stack, _continue_update_rollback, _update_termination_protection):
        add(CloudFormationResponse, operation.__name__.removeprefix("_"), operation)


def _create_stack(self: CloudFormationResponse) -> ActionResult:
    name, on_failure = self._get_param("StackName"), self._get_param("OnFailure")
    if not re.fullmatch(_NAME, str(name)):
        raise constraint(name, "stackName", f"satisfy regular expression pattern: {_NAME}")
    if on_failure and on_failure not in _ON_FAILURE:
        raise constraint(on_failure, "onFailure", f"satisfy enum value set: [{', '.join(_ON_FAILURE)}]")
    if on_failure == "DELETE":
        raise ValidationError(
            message="the local account does not support DELETE of OnFailure, but ROLLBACK and DO_NOTHING"
        )
    backend: Any = self.cloudformation_backend
    if backend.find_stack(name) is not None:
        raise StackAlreadyExists(f"Stack [{name}] already exists")
    template, parameters = template_of(self), parameters_of(self)
    capabilities = self._get_param("Capabilities", [])
    deployable.check(backend, name, template, parameters, capabilities)
    stack: Any = Stack(
        generate_stack_id(name, backend.region_name, backend.account_id),
        name,
        template,
        parameters,
        backend.account_id,
        backend.region_name,
        notification_arns=self._get_param("NotificationARNs", []),
        tags=tags_of(self),
        role_arn=self._get_param("RoleARN"),
        cross_stack_resources=backend.exports,
        enable_termination_protection=self._get_bool_param("EnableTerminationProtection", False),
        timeout_in_mins=self._get_param("TimeoutInMinutes"),
        stack_policy_body=self._get_param("StackPolicyBody"),
    )
    stack.capabilities = capabilities or None
    stack.disable_rollback = self._get_bool_param("DisableRollback", False) or on_failure == "DO_NOTHING"
    backend.begin_creation(stack)
    return ActionResult({"StackId": stack.stack_id})


def _update_stack(self: CloudFormationResponse) -> ActionResult:
    stack = stack_of(self)
    change_sets.refuse_unless_updatable(stack)
    template = template_of(self, stack)
    parameters = parameters_of(self, stack)
    backend: Any = self.cloudformation_backend
    deployable.check(backend, stack.name, template, parameters, self._get_param("Capabilities", []))
    tags = tags_of(self)
    if not change_sets.is_changed(stack, template, parameters, tags):
        raise ValidationError(message="No updates are to be performed.")
    stack.disable_rollback = self._get_bool_param("DisableRollback", False)
    stack.role_arn = self._get_param("RoleARN") or stack.role_arn
    stack.notification_arns = self._get_param("NotificationARNs", stack.notification_arns)
    stack.last_updated_time = utcnow()
    backend.begin_update(stack, template, parameters, tags)
    change_sets.withdraw(backend, stack)
    return ActionResult({"StackId": stack.stack_id})


def _delete_stack(self: CloudFormationResponse) -> EmptyResult:
    """DeleteStack, of a stack that is in `DELETE_FAILED` without the resources that are to stay."""
    name, retain = self._get_param("StackName"), self._get_param("RetainResources", [])
    backend: Any = self.cloudformation_backend
    stack = backend.find_stack(name)
    if retain and stack is not None and stack.status != "DELETE_FAILED":
        raise ValidationError(
            message="Invalid operation on stack. RetainResources can only be specified for a stack in DELETE_FAILED state."
        )
    backend.delete_stack(name, retain)
    return EmptyResult()


def _rollback_stack(self: CloudFormationResponse) -> ActionResult:
    """RollbackStack, of a stack whose operation failed with `DisableRollback`."""
    stack = stack_of(self)
    if stack.status not in ("CREATE_FAILED", "UPDATE_FAILED"):
        raise ValidationError(message=f"Stack [{stack.name}] is in {stack.status} state and can not be rolled back.")
    backend: Any = self.cloudformation_backend
    backend.begin_rollback(stack)
    return ActionResult({"StackId": stack.stack_id})


def _continue_update_rollback(self: CloudFormationResponse) -> EmptyResult:
    stack = stack_of(self)
    if stack.status != "UPDATE_ROLLBACK_FAILED":
        raise ValidationError(
            message=f"Stack [{stack.stack_id}] is in {stack.status} state and can not continue rollback."
        )
    if self._get_param("ResourcesToSkip"):
        raise ValidationError(message="the local account does not support ResourcesToSkip of ContinueUpdateRollback")
    backend: Any = self.cloudformation_backend
    backend.begin_rollback(stack)
    return EmptyResult()


def _update_termination_protection(self: CloudFormationResponse) -> ActionResult:
    stack = stack_of(self)
    stack.enable_termination_protection = self._get_bool_param("EnableTerminationProtection", False)
    return ActionResult({"StackId": stack.stack_id})


def _validate_template(self: CloudFormationResponse) -> ActionResult:
    """ValidateTemplate, with what the account supports; moto's runs cfn-lint, which refuses more than the service's syntax."""
    return ActionResult(templates.summary(template_of(self)))
