"""What is said of stacks, their resources and their templates: the status of each resource is that of its last event.

moto gives each resource its stack's status, and a time in 2010. The answers are those that AWS gave to LocalStack's tests
(localstack/localstack at 8b9a79f, tests/aws/services/cloudformation/api: test_resources.py, test_stacks.py, test_templates.py).
"""

from __future__ import annotations

import json
from typing import Any

from moto.cloudformation import responses
from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import Stack
from moto.cloudformation.responses import CloudFormationResponse
from moto.core.responses import ActionResult

from sagemaker_local_account.aws.cloudformation import change_sets, parameter_values, templates
from sagemaker_local_account.aws.cloudformation.request_members import stack_of, template_of
from sagemaker_local_account.core.patches import add, patch

_NOT_CHECKED = "NOT_CHECKED"
_NO_STACK = "Stack with id {} does not exist"


def install() -> None:
    """Patches moto's requests, and adds to stacks what they are described with."""
    patch(CloudFormationResponse, "get_template", _get_template, "self")
    patch(CloudFormationResponse, "get_template_summary", _get_template_summary, "self")
    patch(CloudFormationResponse, "describe_stack_events", _describe_stack_events, "self")
    patch(CloudFormationResponse, "describe_stack_resource", _describe_stack_resource, "self")
    patch(CloudFormationResponse, "describe_stack_resources", _describe_stack_resources, "self")
    patch(CloudFormationResponse, "list_stack_resources", _list_stack_resources, "self")
    patch(Stack, "parameter_list", property(_parameters))
    for name, value in {
        "drift_information": {"StackDriftStatus": _NOT_CHECKED},
        "rollback_configuration": {},
        "change_set_id": None,
        "last_updated_time": None,
        "deletion_time": None,
        "capabilities": None,
    }.items():
        add(Stack, name, value)


def _parameters(stack: Stack) -> list[dict[str, Any]] | None:
    """The parameters of a stack as they were given, without those that are not to be shown."""
    resources: Any = stack.resource_map
    hidden = resources.no_echo_parameter_keys
    found = []
    for name, value in stack.stack_parameters.items():
        one = {"ParameterKey": name, "ParameterValue": "****" if name in hidden else parameter_values.text(value)}
        if parameter_values.is_stored(stack.template_dict["Parameters"][name]):
            one["ResolvedValue"] = parameter_values.text(resources.resolved_parameters[name])
        found.append(one)
    return found or None  # no member


def _resources(stack: Stack) -> list[dict[str, Any]]:
    last = {event.logical_resource_id: event for event in stack.events}
    found = []
    for resource in stack.stack_resources:
        one: Any = resource
        event = last.get(one.logical_resource_id)
        found.append(
            {
                "LogicalResourceId": one.logical_resource_id,
                "PhysicalResourceId": one.physical_resource_id,
                "ResourceType": one.cf_resource_type,
                "ResourceStatus": event.resource_status if event else stack.status,
                "ResourceStatusReason": event.resource_status_reason if event else None,
                "Time": event.timestamp if event else stack.creation_time,
                "DriftInformation": {"StackResourceDriftStatus": _NOT_CHECKED},
            }
        )
    return found


def _member(resource: dict[str, Any], stack: Stack | None, time: str) -> dict[str, Any]:
    """A resource as an answer has it, with the name of the member that has the time of its last event."""
    named = {} if stack is None else {"StackName": stack.name, "StackId": stack.stack_id}
    return {time: resource["Time"], **{name: one for name, one in resource.items() if name != "Time"}, **named}


def _describe_stack_resource(self: CloudFormationResponse) -> ActionResult:
    stack, name = stack_of(self, "Stack '{}' does not exist"), self._get_param("LogicalResourceId")
    for resource in _resources(stack):
        if resource["LogicalResourceId"] == name:
            metadata = stack.template_dict["Resources"].get(name, {}).get("Metadata", {})
            detail = _member(resource, stack, "LastUpdatedTimestamp") | {"Metadata": json.dumps(metadata)}
            return ActionResult({"StackResourceDetail": detail})
    raise ValidationError(message=f"Resource {name} does not exist for stack {self._get_param('StackName')}")


def _describe_stack_resources(self: CloudFormationResponse) -> ActionResult:
    physical, name = self._get_param("PhysicalResourceId"), self._get_param("LogicalResourceId")
    backend: Any = self.cloudformation_backend
    stacks = (
        [*backend.stacks.values()] if physical and not self._get_param("StackName") else [stack_of(self, _NO_STACK)]
    )
    found = [
        _member(one, stack, "Timestamp")
        for stack in stacks
        for one in _resources(stack)
        if name in (None, one["LogicalResourceId"]) and physical in (None, one["PhysicalResourceId"])
    ]
    if physical and not found:
        raise ValidationError(message=f"Stack for {physical} does not exist")
    return ActionResult({"StackResources": found})


def _list_stack_resources(self: CloudFormationResponse) -> ActionResult:
    found = [_member(one, None, "LastUpdatedTimestamp") for one in _resources(stack_of(self, _NO_STACK))]
    return ActionResult({"StackResourceSummaries": found})


def _describe_stack_events(self: CloudFormationResponse) -> ActionResult:
    return ActionResult({"StackEvents": stack_of(self).events[::-1]})


def _get_template(self: CloudFormationResponse) -> ActionResult:
    if self._get_param("ChangeSetName"):
        template = change_sets.named(self, "StackName is a required parameter.").template
    elif self._get_param("StackName"):
        template = stack_of(self, _NO_STACK).template
    else:
        raise ValidationError(message="StackName is required if ChangeSetName is not specified.")
    return ActionResult({"TemplateBody": template or None, "StagesAvailable": ["Original", "Processed"]})


def _get_template_summary(self: CloudFormationResponse) -> ActionResult:
    if self._get_param("StackName"):
        stack = stack_of(self, _NO_STACK)
        if stack.status == "REVIEW_IN_PROGRESS":
            raise ValidationError(message="GetTemplateSummary cannot be called on REVIEW_IN_PROGRESS stacks.")
        template: str | None = str(stack.template)
    else:
        template = template_of(self)
    needed = templates.summary(template)
    found = responses.get_template_summary_response_from_template(template)
    return ActionResult(found | {name: needed[name] for name in needed if name.startswith("Capabilities")})
