"""Cloud Control API, as far as `cdk deploy --hotswap` and `cdk watch` use it: they change state machines by it.

A change is made at once and not in the background, so that an error is the call's. What it changes drifts from the stack's
template, as on AWS, until the next deployment that changes the resource.
"""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import Any

import jsonpatch
from moto.core.exceptions import JsonRESTError
from moto.stepfunctions import models as stepfunctions_models
from moto.stepfunctions.models import StateMachine

from sagemaker_local_account.aws.resource_base import Properties
from sagemaker_local_account.aws.stepfunctions.resources import recased
from sagemaker_local_account.core.location import Location
from sagemaker_local_account.core.service_errors import ServiceError, check
from sagemaker_local_account.http.json_api import JsonApi

CLOUD_CONTROL_TARGET = "CloudApiService."
_MACHINE = "AWS::StepFunctions::StateMachine"


def cloud_control_api(location: Location) -> JsonApi:
    """Returns the API of a region, with the operations that change and describe a state machine."""

    def get_resource(request: dict[str, Any]) -> dict[str, Any]:
        machine = _machine(request, "GetResource", location)
        description = {"Identifier": machine.arn, "Properties": json.dumps(_properties(machine))}
        return {"TypeName": _MACHINE, "ResourceDescription": description}

    def update_resource(request: dict[str, Any]) -> dict[str, Any]:
        machine = _machine(request, "UpdateResource", location)
        former = _properties(machine)
        # The CDK CLI takes AWS::URLSuffix from the host of its endpoint, here localhost.
        document = request["PatchDocument"].replace(
            f".{location.region}.localhost", f".{location.region}.amazonaws.com"
        )
        try:
            patch = jsonpatch.JsonPatch.from_string(document)
            _check_operations(patch)
            new: Properties = patch.apply(former)
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, ValueError) as error:
            raise ServiceError("InvalidRequestException", f"PatchDocument cannot be applied: {error}") from error
        try:
            _change(machine, new, location)
        except JsonRESTError as error:
            raise ServiceError("InvalidRequestException", str(error.message)) from error
        event = {
            "TypeName": _MACHINE,
            "Identifier": machine.arn,
            "RequestToken": str(uuid.uuid4()),
            "Operation": "UPDATE",
            "OperationStatus": "SUCCESS",
            "EventTime": datetime.now(UTC),
        }
        return {"ProgressEvent": event}

    return JsonApi("Cloud Control API", {"GetResource": get_resource, "UpdateResource": update_resource})


def _check_operations(patch: jsonpatch.JsonPatch) -> None:
    """Refuses what moves values or replaces the whole, by which a role would be given that IAM was not asked for."""
    for operation in patch.patch:
        if operation["op"] not in ("add", "replace", "remove") or operation["path"] in ("", "/"):
            message = f"PatchDocument must add, replace or remove properties, like /DefinitionString, got {operation}"
            raise ServiceError("InvalidRequestException", message)


def _machine(request: dict[str, Any], operation: str, location: Location) -> StateMachine:
    check(operation, request, "cloudcontrol")
    if request["TypeName"] != _MACHINE:
        raise ServiceError(
            "UnsupportedActionException",
            f"the local account changes {_MACHINE} by Cloud Control API, and not {request['TypeName']}",
        )
    try:
        backend = stepfunctions_models.stepfunctions_backends[location.account][location.region]
        found = backend.describe_state_machine(request["Identifier"])
    except JsonRESTError as error:
        message = f"there is no state machine {request['Identifier']}"
        raise ServiceError("ResourceNotFoundException", message, 404) from error
    assert isinstance(found, StateMachine)
    return found


def _properties(machine: StateMachine) -> Properties:
    """A state machine in CloudFormation's names."""
    return {
        "Arn": machine.arn,
        "StateMachineName": machine.name,
        "DefinitionString": machine.definition,
        "RoleArn": machine.roleArn,
        "LoggingConfiguration": recased(machine.loggingConfiguration or {}, str.upper),
        "TracingConfiguration": recased(machine.tracingConfiguration or {}, str.upper),
        "Tags": [{"Key": tag["key"], "Value": tag["value"]} for tag in _tags(machine)],
    }


def _tags(machine: StateMachine) -> list[dict[str, str]]:
    tags: list[dict[str, str]] = machine.backend.get_tags_list_for_state_machine(machine.arn)
    return tags


def _change(machine: StateMachine, properties: Properties, location: Location) -> None:
    StateMachine.update_from_cloudformation_json(
        original_resource=machine,
        new_resource_name=machine.name,
        cloudformation_json={"Type": _MACHINE, "Properties": properties},
        account_id=location.account,
        region_name=location.region,
    )
    tags = {tag["Key"]: tag["Value"] for tag in properties.get("Tags", [])}
    machine.backend.untag_resource(machine.arn, [tag["key"] for tag in _tags(machine) if tag["key"] not in tags])
    machine.backend.tag_resource(machine.arn, tags)
