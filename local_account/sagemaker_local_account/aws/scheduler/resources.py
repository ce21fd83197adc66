"""EventBridge Scheduler's schedules and groups in CloudFormation, which moto lacks."""

from __future__ import annotations

from typing import Any

from moto.scheduler.models import scheduler_backends
from typing_extensions import override

from sagemaker_local_account.aws.resource_base import Properties, ResourceBase, replace_unless
from sagemaker_local_account.aws.resource_types import ServiceResources, real


class Schedule(ResourceBase):
    """AWS::Scheduler::Schedule."""

    @override
    def create(self) -> None:
        self.physical_resource_id = self.properties.get("Name", self.physical_resource_id)
        self._backend.create_schedule(**self._members(), action_after_completion=None)

    @override
    def update(self, former: Properties) -> None:
        replace_unless(self.properties, former, {*self.properties, *former} - {"Name", "GroupName"})
        self._backend.update_schedule(**self._members())

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        group = self._backend.schedule_groups.get(self.properties.get("GroupName", "default"))
        if group is not None:
            group.schedules.pop(self.physical_resource_id, None)

    @override
    def attributes(self) -> dict[str, str]:
        return {"Arn": self._backend.get_schedule(self.properties.get("GroupName"), self.physical_resource_id).arn}

    def _members(self) -> dict[str, Any]:
        prop = self.properties.get
        window = dict(prop("FlexibleTimeWindow", {}))
        if "MaximumWindowInMinutes" in window:
            window["MaximumWindowInMinutes"] = int(window["MaximumWindowInMinutes"])
        return {
            "description": prop("Description"),
            "end_date": prop("EndDate"),
            "flexible_time_window": window,
            "group_name": prop("GroupName"),
            "kms_key_arn": prop("KmsKeyArn"),
            "name": self.physical_resource_id,
            "schedule_expression": prop("ScheduleExpression"),
            "schedule_expression_timezone": prop("ScheduleExpressionTimezone"),
            "start_date": prop("StartDate"),
            "state": prop("State"),
            "target": dict(prop("Target", {})),
        }

    @property
    def _backend(self) -> Any:
        return scheduler_backends[self.account_id][self.region_name]


class ScheduleGroup(ResourceBase):
    """AWS::Scheduler::ScheduleGroup."""

    @override
    def create(self) -> None:
        self.physical_resource_id = self.properties.get("Name", self.physical_resource_id)
        self._backend.create_schedule_group(name=self.physical_resource_id, tags=self.properties.get("Tags", []))

    @override
    def update(self, former: Properties) -> None:
        replace_unless(self.properties, former, {"Tags"})
        arn = self.attributes()["Arn"]
        self._backend.tagger.delete_all_tags_for_resource(arn)
        self._backend.tagger.tag_resource(arn, self.properties.get("Tags", []))

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        if self.physical_resource_id in self._backend.schedule_groups:
            self._backend.delete_schedule_group(self.physical_resource_id)

    @override
    def attributes(self) -> dict[str, str]:
        return {"Arn": self._backend.get_schedule_group(self.physical_resource_id).arn, "State": "ACTIVE"}

    @property
    def _backend(self) -> Any:
        return scheduler_backends[self.account_id][self.region_name]


RESOURCES = ServiceResources(
    types={
        "AWS::Scheduler::Schedule": real(
            "invokes state machines, functions, topics and queues by the account's clock, at the start of a flexible time "
            "window and without a second attempt; other targets are rejected",
            "Description EndDate FlexibleTimeWindow GroupName KmsKeyArn Name ScheduleExpression ScheduleExpressionTimezone "
            "StartDate State Target",
            made_by=Schedule,
            longest_name=64,
        ),
        "AWS::Scheduler::ScheduleGroup": real(
            "holds schedules, which are deleted with it", "Name Tags", made_by=ScheduleGroup, longest_name=64
        ),
    },
)
