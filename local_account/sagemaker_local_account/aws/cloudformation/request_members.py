"""What requests about stacks and change sets give in common: a stack, a template, parameters and tags."""

from __future__ import annotations

from typing import Any

from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import Stack
from moto.cloudformation.responses import CloudFormationResponse


def stack_of(request: CloudFormationResponse, missing: str = "Stack [{}] does not exist") -> Any:
    """Returns the stack that a request names, by its id also one that was deleted.

    Args:
        request: the request.
        missing: the sentence for a stack that there is not.

    Raises:
        ValidationError: there is none.
    """
    name = request._get_param("StackName")
    backend: Any = request.cloudformation_backend
    stack = backend.find_stack(name)
    if stack is None:
        raise ValidationError(message=missing.format(name))
    return stack


def template_of(request: CloudFormationResponse, stack: Stack | None = None) -> str | None:
    """Returns the template of a request, which may be that which a stack has; None for a request without one."""
    if stack is not None and request._get_bool_param("UsePreviousTemplate", False):
        return str(stack.template)
    url = request._get_param("TemplateURL")
    found: str | None = request._get_stack_from_s3_url(url) if url else request._get_param("TemplateBody")
    return found


def parameters_of(request: CloudFormationResponse, stack: Stack | None = None) -> dict[str, Any]:
    """Returns the parameters of a request, by their names.

    Raises:
        ValidationError: one has no name, or both a value and ``UsePreviousValue``.
    """
    former = {} if stack is None else stack.stack_parameters
    values: dict[str, Any] = {}
    for one in request._get_param("Parameters", []):
        if "ParameterKey" not in one:
            raise ValidationError(message="Parameters: each must have a ParameterKey")
        name, previous = one["ParameterKey"], str(one.get("UsePreviousValue", "")).lower() == "true"
        if previous and one.get("ParameterValue"):
            raise ValidationError(
                message=f"Invalid input for parameter key {name}. Cannot specify usePreviousValue as true and non empty value "
                "for a parameter"
            )
        values[name] = former.get(name) if previous else one.get("ParameterValue")
    return values


def tags_of(request: CloudFormationResponse) -> dict[str, str] | None:
    """Returns the tags of a request; None for one that says nothing of them."""
    listed = request._get_param("Tags")
    return None if listed is None else {one["Key"]: one["Value"] for one in listed}


def constraint(value: Any, member: str, rule: str) -> ValidationError:
    """Returns the error for a member that breaks a rule of the service's model."""
    return ValidationError(
        message=f"1 validation error detected: Value '{value}' at '{member}' failed to satisfy constraint: Member must {rule}"
    )
