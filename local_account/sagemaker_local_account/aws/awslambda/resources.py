"""Lambda functions in CloudFormation, with their layers, and their permissions, neither of which moto deletes."""

from __future__ import annotations

import json
from typing import Any

from moto.awslambda.models import lambda_backends
from typing_extensions import override

from sagemaker_local_account.aws.awslambda import configuration, event_sources
from sagemaker_local_account.aws.resource_base import Properties, ResourceBase, replace_unless
from sagemaker_local_account.aws.resource_types import ResourceType, ServiceResources, real


class _OfFunctions(ResourceBase):
    @property
    def _functions(self) -> Any:
        """The backend of moto."""
        return lambda_backends[self.account_id][self.region_name]


class Permission(_OfFunctions):
    """AWS::Lambda::Permission: a statement of the policy of a function."""

    @override
    def create(self) -> None:
        members = {name: value for name, value in self.properties.items() if name != "FunctionName"}
        statement = {**members, "StatementId": self.physical_resource_id}
        self._function.policy.add_statement(json.dumps(statement))

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        policy = self._function.policy
        policy.statements = [found for found in policy.statements if found.get("Sid") != self.physical_resource_id]

    @property
    def _function(self) -> Any:
        return self._functions.get_function(self.properties["FunctionName"])


class LayerVersion(_OfFunctions):
    """AWS::Lambda::LayerVersion; its physical id is its ARN."""

    @override
    def attributes(self) -> dict[str, str]:
        return {"LayerVersionArn": self.physical_resource_id}

    @override
    def create(self) -> None:
        spec = {"LayerName": self.physical_resource_id, **self.properties}
        self.physical_resource_id = self._functions.publish_layer_version(spec).arn

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        name, version = self.physical_resource_id.split(":")[-2:]
        self._functions.delete_layer_version(name, version)


class Version(_OfFunctions):
    """AWS::Lambda::Version: the code and configuration that a function has now; its physical id is its ARN."""

    @override
    def attributes(self) -> dict[str, str]:
        return {"FunctionArn": self.physical_resource_id, "Version": self.physical_resource_id.rpartition(":")[2]}

    @override
    def create(self) -> None:
        name, description = self.properties["FunctionName"], self.properties.get("Description", "")
        self.physical_resource_id = self._functions.publish_version(name, description).function_arn

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        name, version = self.physical_resource_id.split(":")[-2:]
        self._functions.delete_function(f"{name}:{version}")


class Alias(_OfFunctions):
    """AWS::Lambda::Alias: a name of a version; its physical id is its ARN."""

    @override
    def attributes(self) -> dict[str, str]:
        return {"AliasArn": self.physical_resource_id}

    @override
    def create(self) -> None:
        given = self.properties
        made = self._functions.create_alias(
            given["Name"], given["FunctionName"], given["FunctionVersion"], given.get("Description", ""), ""
        )
        self.physical_resource_id = made.arn

    @override
    def update(self, former: Properties) -> None:
        replace_unless(self.properties, former, {"Description", "FunctionVersion"})
        given = self.properties
        self._functions.update_alias(
            given["Name"], given["FunctionName"], given["FunctionVersion"], given.get("Description", ""), None
        )

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        self._functions.delete_alias(self.properties["Name"], self.properties["FunctionName"])


class InvokeConfig(_OfFunctions):
    """AWS::Lambda::EventInvokeConfig: what becomes of the function's asynchronous invocations."""

    @override
    def create(self) -> None:
        given = {name: it for name, it in self.properties.items() if name not in ("FunctionName", "Qualifier")}
        self._functions.put_function_event_invoke_config(self._name, given)

    @override
    def update(self, former: Properties) -> None:
        replace_unless(
            self.properties, former, {"DestinationConfig", "MaximumEventAgeInSeconds", "MaximumRetryAttempts"}
        )
        self.create()

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        self._functions.get_function(self._name).event_invoke_config = []

    @property
    def _name(self) -> str:
        """The function with its qualifier; "$LATEST" is the function itself."""
        given = self.properties
        return (
            f"{given['FunctionName']}:{given['Qualifier']}"
            if given["Qualifier"] != "$LATEST"
            else given["FunctionName"]
        )


class QueueMapping(_OfFunctions):
    """AWS::Lambda::EventSourceMapping of an SQS queue; its physical id is its UUID."""

    @override
    def attributes(self) -> dict[str, str]:
        return {"EventSourceMappingArn": self._mapping.arn, "Id": self.physical_resource_id}

    @override
    def create(self) -> None:
        self.physical_resource_id = self._functions.create_event_source_mapping(dict(self.properties)).uuid

    @override
    def update(self, former: Properties) -> None:
        replace_unless(self.properties, former, event_sources.CHANGEABLE)
        defaults = {"BatchSize": 10, "Enabled": True, "FilterCriteria": None, "MaximumBatchingWindowInSeconds": 0}
        given = {**defaults, "FunctionResponseTypes": [], "ScalingConfig": None, **self.properties}
        self._functions.update_event_source_mapping(self.physical_resource_id, given)

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        self._functions.delete_event_source_mapping(self.physical_resource_id)

    @property
    def _mapping(self) -> Any:
        return self._functions.get_event_source_mapping(self.physical_resource_id)


RESOURCES = ServiceResources(
    types={
        "AWS::Lambda::Function": ResourceType(
            "emulated",
            "runs in the account's own Python, with boto3, with the function's role; not traced, and its network is the "
            "account's; other languages, code in an image, and properties other than "
            f"{', '.join(sorted(configuration.HONOURED))} are rejected, except for functions of the emulated custom resources",
            longest_name=64,
        ),
        "AWS::Lambda::EventInvokeConfig": real(
            "how often and for how long an asynchronous invocation is made again, and where its result goes",
            "DestinationConfig FunctionName MaximumEventAgeInSeconds MaximumRetryAttempts Qualifier",
            made_by=InvokeConfig,
        ),
        "AWS::Lambda::EventSourceMapping": real(
            "invokes a function with the messages of an SQS queue; other sources are rejected",
            f"EventSourceArn {' '.join(sorted(event_sources.CHANGEABLE))}",
            made_by=QueueMapping,
        ),
        "AWS::Lambda::LayerVersion": real(
            "unpacked at /opt of the functions that have it",
            "CompatibleArchitectures CompatibleRuntimes Content Description LayerName LicenseInfo",
            made_by=LayerVersion,
            longest_name=64,
        ),
        "AWS::Lambda::Alias": real(
            "a name of a version", "Description FunctionName FunctionVersion Name", made_by=Alias
        ),
        "AWS::Lambda::Version": real(
            "keeps a function's code and configuration", "CodeSha256 Description FunctionName", made_by=Version
        ),
        "AWS::Lambda::Permission": real(
            "a statement of the function's policy; evaluated",
            "Action FunctionName Principal SourceAccount SourceArn",
            made_by=Permission,
        ),
    },
)
