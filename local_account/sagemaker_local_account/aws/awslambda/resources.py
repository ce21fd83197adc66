"""The permissions of Lambda functions in CloudFormation, which moto does not delete."""

from __future__ import annotations

import json
from typing import Any

from moto.awslambda.models import lambda_backends
from typing_extensions import override

from sagemaker_local_account.aws.resource_base import ResourceBase
from sagemaker_local_account.aws.resource_types import ResourceType, ServiceResources, real


class Permission(ResourceBase):
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
        return lambda_backends[self.account_id][self.region_name].get_function(self.properties["FunctionName"])


RESOURCES = ServiceResources(
    types={
        "AWS::Lambda::Function": ResourceType(
            "emulated",
            "runs in the account's own Python, with boto3, with the function's role; other languages, and properties other than "
            "Architectures, Code (inline or in S3), Description, Environment, FunctionName, Handler, LoggingConfig, MemorySize, "
            "Role, Runtime, Tags and Timeout are rejected, except for functions of the custom resources in this table",
            longest_name=64,
        ),
        "AWS::Lambda::Permission": real(
            "a statement of the function's policy; evaluated",
            "Action FunctionName Principal SourceAccount SourceArn",
            made_by=Permission,
        ),
    },
)
