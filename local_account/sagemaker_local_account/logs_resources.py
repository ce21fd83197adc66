"""CloudWatch Logs' resources in CloudFormation: log groups that can be updated, and the policy by which rules write to them."""

from __future__ import annotations

import json
from typing import Any

from moto.logs.models import LogGroup, logs_backends

from .completion import Completion
from .emulated import Emulated, Properties
from .patches import UPDATE, patch

_moto_log_group_attribute = LogGroup.get_cfn_attribute


def install() -> None:
    """Replace moto's update and Arn of log groups."""
    patch(LogGroup, "update_from_cloudformation_json", _update_log_group, UPDATE)
    patch(LogGroup, "get_cfn_attribute", _log_group_attribute, "self, attribute_name")


class LogGroupPolicy(Emulated):
    """Lets rules write to a log group: on AWS a Lambda function of CDK's makes this policy."""

    def create(self) -> None:
        self.physical_resource_id = self._said("Create")["physicalResourceId"]["id"]
        self._put(self._said("Create"))

    def update(self, former: Properties) -> None:
        if self._said("Update")["physicalResourceId"]["id"] != self.physical_resource_id:
            raise NotImplementedError
        self._put(self._said("Update"))

    def delete(self, account_id: str, region_name: str) -> None:
        self._backend.delete_resource_policy(self._said("Delete")["parameters"]["policyName"])

    def _put(self, said: Properties) -> None:
        parameters = said["parameters"]
        self._backend.put_resource_policy(parameters["policyName"], parameters["policyDocument"])

    def _said(self, when: str) -> Properties:
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
    """moto cannot update a log group."""
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
    """moto's Arn is without the :* that AWS ends it with."""
    arn: str = _moto_log_group_attribute(self, attribute_name)
    return f"{arn}:*" if attribute_name == "Arn" else arn


NATIVE: dict[str, Any] = {"Custom::CloudwatchLogResourcePolicy": LogGroupPolicy}
COMPLETED: dict[Any, Completion] = {LogGroup: Completion(_log_group)}
