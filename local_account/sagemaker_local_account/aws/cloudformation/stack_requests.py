"""Requests about stacks that moto answers otherwise than AWS, or not at all.

The answers are those that AWS gave to LocalStack's tests (localstack/localstack at 8b9a79f,
tests/aws/services/cloudformation/api: test_stacks.py, test_update_stack.py, test_templates.py, test_resources.py).
"""

from __future__ import annotations

from typing import Any

from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import Stack
from moto.cloudformation.responses import CloudFormationResponse
from moto.core.responses import ActionResult, EmptyResult

from sagemaker_local_account.aws.cloudformation import change_sets, templates
from sagemaker_local_account.core.patches import add, patch

_ON_FAILURE = ("DO_NOTHING", "ROLLBACK", "DELETE")


def install() -> None:
    """Patches moto's requests, and adds those that it lacks."""
    patch(CloudFormationResponse, "update_stack", _update_stack, "self")
    patch(CloudFormationResponse, "validate_template", _validate_template, "self")
    for operation in (_rollback_stack, _continue_update_rollback, _update_termination_protection):
        add(CloudFormationResponse, operation.__name__.removeprefix("_"), operation)


def existing(request: CloudFormationResponse) -> Any:
    """Returns the stack of a request.

    Raises:
        ValidationError: there is none.
    """
    name = request._get_param("StackName")
    backend: Any = request.cloudformation_backend
    stack = backend.find_stack(name)
    if stack is None:
        raise ValidationError(message=f"Stack [{name}] does not exist")
    return stack


def _update_stack(self: CloudFormationResponse) -> ActionResult:
    stack = existing(self)
    change_sets.refuse_unless_updatable(stack)
    template = change_sets.given_template(self, stack)
    templates.check(Stack.parse_template(template))
    parameters = change_sets.given_parameters(self, stack)
    tags = change_sets.given_tags(self)
    if not change_sets.is_changed(stack, template, parameters, tags):
        raise ValidationError(message="No updates are to be performed.")
    stack.disable_rollback = self._get_bool_param("DisableRollback", False)
    stack.role_arn = self._get_param("RoleARN") or stack.role_arn
    stack.notification_arns = self._get_param("NotificationARNs", stack.notification_arns)
    backend: Any = self.cloudformation_backend
    backend.begin_update(stack, template, parameters, tags)
    change_sets.withdraw(backend, stack)
    return ActionResult({"StackId": stack.stack_id})


def _rollback_stack(self: CloudFormationResponse) -> ActionResult:
    """RollbackStack, of a stack whose operation failed with `DisableRollback`."""
    stack = existing(self)
    if stack.status not in ("CREATE_FAILED", "UPDATE_FAILED"):
        raise ValidationError(message=f"Stack [{stack.name}] is in {stack.status} state and can not be rolled back.")
    backend: Any = self.cloudformation_backend
    backend.begin_rollback(stack)
    return ActionResult({"StackId": stack.stack_id})


def _continue_update_rollback(self: CloudFormationResponse) -> EmptyResult:
    stack = existing(self)
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
    stack = existing(self)
    stack.enable_termination_protection = self._get_bool_param("EnableTerminationProtection", False)
    return ActionResult({"StackId": stack.stack_id})


def _validate_template(self: CloudFormationResponse) -> ActionResult:
    """ValidateTemplate, with what the account supports; moto's runs cfn-lint, which refuses more than the service's syntax."""
    url = self._get_param("TemplateURL")
    return ActionResult(templates.summary(self._get_stack_from_s3_url(url) if url else self._get_param("TemplateBody")))
