"""Step Functions' state machines in CloudFormation, with properties that moto drops."""

from __future__ import annotations

import json
from typing import Any

from moto.stepfunctions import models as stepfunctions_models
from moto.stepfunctions.models import StateMachine

from sagemaker_local_account.cloudformation.resource_base import Properties
from sagemaker_local_account.core.patches import CREATE, UPDATE, patch

_moto_state_machine_attribute = StateMachine.get_cfn_attribute


def install() -> None:
    """Patches moto's creation and update of state machines."""
    patch(StateMachine, "create_from_cloudformation_json", _create_state_machine, CREATE)
    patch(StateMachine, "update_from_cloudformation_json", _update_state_machine, UPDATE)
    patch(StateMachine, "get_cfn_attribute", _state_machine_attribute, "self, attribute_name")
    patch(StateMachine, "has_cfn_attr", lambda cls, attr: attr in ("Arn", "Name"), "cls, attr")


def _create_state_machine(
    cls: Any, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **_: Any
) -> StateMachine:
    """Creates a state machine; moto drops all properties except name, DefinitionString, role and tags."""
    properties = cloudformation_json["Properties"]
    machines = stepfunctions_models.stepfunctions_backends[account_id][region_name]
    machine: StateMachine = machines.create_state_machine(
        properties.get("StateMachineName", resource_name),
        _definition(properties),
        properties["RoleArn"],
        tags=stepfunctions_models.cfn_to_api_tags(properties.get("Tags", [])),
        loggingConfiguration=_camel(properties.get("LoggingConfiguration")),
        tracingConfiguration=_camel(properties.get("TracingConfiguration")),
        sm_type=properties.get("StateMachineType"),
    )
    return machine


def _update_state_machine(
    cls: Any,
    original_resource: StateMachine,
    new_resource_name: str,
    cloudformation_json: Any,
    account_id: str,
    region_name: str,
) -> StateMachine:
    properties = cloudformation_json["Properties"]
    machines = stepfunctions_models.stepfunctions_backends[account_id][region_name]
    if properties.get("StateMachineName", original_resource.name) != original_resource.name:
        machine = _create_state_machine(cls, new_resource_name, cloudformation_json, account_id, region_name)
        machines.delete_state_machine(original_resource.arn)
        return machine
    updated: StateMachine = machines.update_state_machine(
        original_resource.arn,
        definition=_definition(properties),
        role_arn=properties["RoleArn"],
        logging_configuration=_camel(properties.get("LoggingConfiguration")),
        tracing_configuration=_camel(properties.get("TracingConfiguration")),
    )
    return updated


def _definition(properties: Properties) -> str:
    definition = properties.get("DefinitionString") or json.dumps(properties.get("Definition", {}))
    for name, value in properties.get("DefinitionSubstitutions", {}).items():
        definition = definition.replace(f"${{{name}}}", str(value))
    return str(definition)


def _camel(value: Any) -> Any:
    """CloudFormation's PascalCase in the API's camelCase."""
    if isinstance(value, dict):
        return {name[:1].lower() + name[1:]: _camel(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_camel(item) for item in value]
    return value


def _state_machine_attribute(self: StateMachine, attribute_name: str) -> Any:
    """Adds the attribute Arn, which moto lacks."""
    if attribute_name == "Arn":
        return self.arn
    return _moto_state_machine_attribute(self, attribute_name)
