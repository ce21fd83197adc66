"""Custom resources whose Lambda function the account runs: it is sent requests, and puts its response to a URL.

As "Custom resource request and response objects" in CloudFormation's guide have it. A function that ends without a response fails
the resource at once; on AWS CloudFormation waits for one until the resource's ServiceTimeout, an hour unless said.
"""

from __future__ import annotations

import uuid
from typing import Any

from moto.awslambda.models import lambda_backends
from moto.cloudformation.exceptions import ValidationError

from . import functions
from .emulated import Emulated, Properties
from .responses import Responses

_responses: Responses


def install(responses: Responses) -> None:
    global _responses
    _responses = responses


def is_custom(resource_type: str) -> bool:
    return resource_type.startswith("Custom::") or resource_type == "AWS::CloudFormation::CustomResource"


class CustomResource(Emulated):
    """`AWS::CloudFormation::CustomResource`, and `Custom::` of whatever name."""

    data: dict[str, str]
    about: dict[str, str]

    def attributes(self) -> dict[str, str]:
        return self.data

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **details: Any
    ) -> CustomResource:
        resource = cls(resource_name, cloudformation_json["Properties"], account_id, region_name)
        resource.about = {
            "StackId": details["StackId"],
            "LogicalResourceId": details["LogicalId"],
            "ResourceType": details["ResourceType"],
        }
        resource.take(resource.send("Create", resource.properties))
        return resource

    def update(self, former: Properties) -> None:
        if self.properties["ServiceToken"] != former["ServiceToken"]:
            raise ValidationError(message="Modifying service token is not allowed.")
        replaced = self.physical_resource_id
        self.take(
            self.send("Update", self.properties, PhysicalResourceId=replaced, OldResourceProperties=_as_text(former))
        )
        if self.physical_resource_id != replaced:
            self.send("Delete", former, PhysicalResourceId=replaced)

    def delete(self, account_id: str, region_name: str) -> None:
        self.send("Delete", self.properties, PhysicalResourceId=self.physical_resource_id)

    def take(self, response: dict[str, Any]) -> None:
        self.physical_resource_id = str(response["PhysicalResourceId"])
        self.data = {name: str(value) for name, value in (response.get("Data") or {}).items()}

    def send(self, request_type: str, properties: Properties, **more: Any) -> dict[str, Any]:
        """Send the function a request; its response. Raises ValidationError with the reason why it failed."""
        name, url = _responses.url(self.region_name)
        function = lambda_backends[self.account_id][self.region_name].get_function(properties["ServiceToken"])
        request = {
            "RequestType": request_type,
            "ResponseURL": url,
            "RequestId": str(uuid.uuid4()),
            **self.about,
            "ResourceProperties": _as_text(properties),
            **more,
        }
        try:
            called = functions.of_the_account().call(function, request)
        except LookupError as error:
            raise ValidationError(message=str(error)) from None
        response = _responses.take(name)
        if not response:
            why = called.reason if called.failed else "it returned"
            raise ValidationError(message=f"{function.function_name} put no response: {why}")
        if response.get("Status") != "SUCCESS":
            raise ValidationError(message=str(response.get("Reason") or "it gave no reason"))
        return response


def _as_text(value: Any) -> Any:
    """Properties as a request has them: each value is text."""
    if isinstance(value, dict):
        return {name: _as_text(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_as_text(item) for item in value]
    return str(value).lower() if isinstance(value, bool) else str(value)
