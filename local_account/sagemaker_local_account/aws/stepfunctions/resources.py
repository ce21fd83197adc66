"""Step Functions' state machines in CloudFormation, with properties that moto drops, and activities, which moto lacks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from moto.stepfunctions import models as stepfunctions_models
from moto.stepfunctions.exceptions import ActivityAlreadyExists
from moto.stepfunctions.models import StateMachine
from typing_extensions import override

from sagemaker_local_account.aws.resource_base import Properties, ResourceBase, replace_unless
from sagemaker_local_account.aws.resource_types import ServiceResources, real
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
        logging_configuration=_camel(properties.get("LoggingConfiguration", {"Level": "OFF"})),
        tracing_configuration=_camel(properties.get("TracingConfiguration", {"Enabled": False})),
    )
    tags = machines.tagger.get_tag_dict_for_resource(updated.arn)
    machines.tagger.untag_resource_using_names(updated.arn, [name for name in tags if not name.startswith("aws:")])
    machines.tagger.tag_resource(updated.arn, stepfunctions_models.cfn_to_api_tags(properties.get("Tags", [])))
    return updated


def _definition(properties: Properties) -> str:
    definition = properties.get("DefinitionString") or json.dumps(properties.get("Definition", {}))
    for name, value in properties.get("DefinitionSubstitutions", {}).items():
        definition = definition.replace(f"${{{name}}}", str(value))
    return str(definition)


def _camel(value: Any) -> Any:
    """CloudFormation's PascalCase in the API's camelCase."""
    return recased(value, str.lower)


def recased(value: Any, case: Callable[[str], str]) -> Any:
    """Returns a value with the first letter of each member's name in another case.

    Args:
        value: members, in each other and in lists.
        case: `str.lower` for the API's names, `str.upper` for CloudFormation's.
    """
    if isinstance(value, dict):
        return {case(name[:1]) + name[1:]: recased(item, case) for name, item in value.items()}
    if isinstance(value, list):
        return [recased(item, case) for item in value]
    return value


def _state_machine_attribute(self: StateMachine, attribute_name: str) -> Any:
    """Adds the attribute Arn, which moto lacks."""
    if attribute_name == "Arn":
        return self.arn
    return _moto_state_machine_attribute(self, attribute_name)


class Activity(ResourceBase):
    """AWS::StepFunctions::Activity; only its tags can be updated (CloudFormation's template reference)."""

    @override
    def create(self) -> None:
        name = self.properties["Name"]
        if any(activity.name == name for activity in self._backend.activities.values()):
            raise ActivityAlreadyExists(f"Activity Already Exists: '{name}'")
        activity = self._backend.create_activity(
            name, self._tags, _camel(self.properties.get("EncryptionConfiguration"))
        )
        self.physical_resource_id = activity.arn

    @override
    def update(self, former: Properties) -> None:
        replace_unless(self.properties, former, {"Tags"})
        self._backend.tagger.delete_all_tags_for_resource(self.physical_resource_id)
        self._backend.tagger.tag_resource(self.physical_resource_id, self._tags)

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        self._backend.delete_activity(self.physical_resource_id)

    @override
    def attributes(self) -> dict[str, str]:
        return {"Arn": self.physical_resource_id, "Name": self.properties["Name"]}

    @property
    def _tags(self) -> list[dict[str, str]]:
        return stepfunctions_models.cfn_to_api_tags(self.properties.get("Tags", []))

    @property
    def _backend(self) -> Any:
        return stepfunctions_models.stepfunctions_backends[self.account_id][self.region_name]


RESOURCES = ServiceResources(
    types={
        "AWS::StepFunctions::Activity": real(
            "holds tasks for workers outside", "EncryptionConfiguration Name Tags", made_by=Activity
        ),
        "AWS::StepFunctions::StateMachine": real(
            "runs; executions are logged in the account's log only",
            "Definition DefinitionString DefinitionSubstitutions LoggingConfiguration RoleArn StateMachineName "
            "StateMachineType Tags TracingConfiguration",
            longest_name=80,
        ),
    },
    install=install,
)
