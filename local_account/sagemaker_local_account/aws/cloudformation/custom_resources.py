"""Custom resources: their Lambda function gets requests, and puts its response to a URL.

Source: "Custom resource request and response objects" in CloudFormation's guide. A function that ends without a response fails
the resource at once, unless it is of CDK's `Provider` with a state machine that waits; AWS waits for the resource's
ServiceTimeout, by default an hour.
"""

from __future__ import annotations

import uuid
from typing import Any

from moto.awslambda.models import lambda_backends
from moto.cloudformation.exceptions import ValidationError
from typing_extensions import override

from sagemaker_local_account.aws.awslambda import functions
from sagemaker_local_account.aws.cloudformation.custom_resource_responses import Responses
from sagemaker_local_account.aws.resource_base import Properties, ResourceBase

_LONGEST = 3600  # seconds, where a resource has no ServiceTimeout
_responses: Responses


def install(responses: Responses) -> None:
    """Sets the endpoint for responses."""
    global _responses
    _responses = responses


def is_custom(resource_type: str) -> bool:
    """Whether a resource type is a custom resource."""
    return resource_type.startswith("Custom::") or resource_type == "AWS::CloudFormation::CustomResource"


class CustomResource(ResourceBase):
    """`AWS::CloudFormation::CustomResource`, and any `Custom::` type."""

    data: dict[str, str]
    about: dict[str, str]

    @override
    def attributes(self) -> dict[str, str]:
        return self.data

    @classmethod
    @override
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

    @override
    def update(self, former: Properties) -> None:
        if self.properties["ServiceToken"] != former["ServiceToken"]:
            raise ValidationError(message="Modifying service token is not allowed.")
        replaced = self.physical_resource_id
        self.take(
            self.send("Update", self.properties, PhysicalResourceId=replaced, OldResourceProperties=_as_text(former))
        )
        if self.physical_resource_id != replaced:
            self.send("Delete", former, PhysicalResourceId=replaced)

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        self.send("Delete", self.properties, PhysicalResourceId=self.physical_resource_id)

    def take(self, response: dict[str, Any]) -> None:
        """Sets the physical id and the attributes from a response."""
        self.physical_resource_id = str(response["PhysicalResourceId"])
        self.data = {name: str(_as_text(value)) for name, value in (response.get("Data") or {}).items()}

    def send(self, request_type: str, properties: Properties, **more: Any) -> dict[str, Any]:
        """Invokes the function with a request, and returns its response.

        Args:
            request_type: "Create", "Update" or "Delete".
            properties: ResourceProperties.
            more: further members of the request.

        Raises:
            ValidationError: the function failed or put no response.
        """
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
            called = functions.account_functions().call(function, request)
        except LookupError as error:
            raise ValidationError(message=str(error)) from None
        waits = not called.failed and "WAITER_STATE_MACHINE_ARN" in function.environment_vars
        response = _responses.take(name, float(properties.get("ServiceTimeout", _LONGEST)) if waits else 0.0)
        if not response:
            why = called.reason if called.failed else "it returned"
            raise ValidationError(message=f"{function.function_name} put no response: {why}")
        if response.get("Status") != "SUCCESS":
            raise ValidationError(message=str(response.get("Reason") or "the response has no Reason"))
        return response


def _as_text(value: Any) -> Any:
    """Converts all values of properties to text, as in requests."""
    if isinstance(value, dict):
        return {name: _as_text(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_as_text(item) for item in value]
    return str(value).lower() if isinstance(value, bool) else str(value)
