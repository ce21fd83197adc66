"""CloudWatch Logs' resources in CloudFormation: updates of log groups, and CDK's resource policy for rules."""

from __future__ import annotations

import json
from typing import Any

from moto.logs.models import LogGroup, logs_backends
from typing_extensions import override

from sagemaker_local_account.aws.property_backfill import Backfill
from sagemaker_local_account.aws.resource_base import Properties, ResourceBase
from sagemaker_local_account.aws.resource_types import ResourceType, ServiceResources, real
from sagemaker_local_account.core.patches import UPDATE, patch

_moto_log_group_attribute = LogGroup.get_cfn_attribute


def install() -> None:
    """Patches the update and the Arn of moto's log groups."""
    patch(LogGroup, "update_from_cloudformation_json", _update_log_group, UPDATE)
    patch(LogGroup, "get_cfn_attribute", _log_group_attribute, "self, attribute_name")


class LogGroupPolicy(ResourceBase):
    """The resource policy that allows rules to write to a log group: on AWS CDK's Lambda function puts it."""

    @override
    def create(self) -> None:
        self.physical_resource_id = self._call("Create")["physicalResourceId"]["id"]
        self._put(self._call("Create"))

    @override
    def update(self, former: Properties) -> None:
        if self._call("Update")["physicalResourceId"]["id"] != self.physical_resource_id:
            raise NotImplementedError
        self._put(self._call("Update"))

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        self._backend.delete_resource_policy(self._call("Delete")["parameters"]["policyName"])

    def _put(self, properties: Properties) -> None:
        parameters = properties["parameters"]
        self._backend.put_resource_policy(parameters["policyName"], parameters["policyDocument"])

    def _call(self, when: str) -> Properties:
        call: Properties = json.loads(self.properties[when])
        return call

    @property
    def _backend(self) -> Any:
        return logs_backends[self.account_id][self.region_name]


def _log_group(group: LogGroup, properties: Properties, account_id: str, region_name: str) -> None:
    group.kms_key_id = properties.get("KmsKeyId")


def _update_log_group(
    cls: Any,
    original_resource: LogGroup,
    new_resource_name: str,
    cloudformation_json: Any,
    account_id: str,
    region_name: str,
) -> LogGroup:
    """Updates a log group, which moto cannot."""
    properties = cloudformation_json["Properties"]
    if properties.get("LogGroupName", original_resource.name) != original_resource.name:
        raise NotImplementedError
    retention = properties.get("RetentionInDays")
    original_resource.set_retention_policy(None if retention is None else int(retention))
    original_resource.kms_key_id = properties.get("KmsKeyId")
    logs = logs_backends[account_id][region_name]
    logs.untag_resource(original_resource.arn, [*logs.list_tags_for_resource(original_resource.arn)])
    logs.tag_resource(original_resource.arn, {tag["Key"]: tag["Value"] for tag in properties.get("Tags", [])})
    return original_resource


def _log_group_attribute(self: LogGroup, attribute_name: str) -> str:
    """Appends `:*` to Arn, as on AWS; moto's lacks it."""
    arn: str = _moto_log_group_attribute(self, attribute_name)
    return f"{arn}:*" if attribute_name == "Arn" else arn


RESOURCES = ServiceResources(
    types={
        "AWS::Logs::LogGroup": real(
            "stores log events, without encryption and retention", "KmsKeyId LogGroupName RetentionInDays Tags"
        ),
        "AWS::Logs::ResourcePolicy": real("stored; not evaluated", "PolicyDocument PolicyName"),
        "Custom::CloudwatchLogResourcePolicy": ResourceType(
            "emulated", "allows rules to write to a log group", made_by=LogGroupPolicy
        ),
    },
    backfills={LogGroup: Backfill(_log_group)},
    install=install,
)
