"""EventBridge's buses, rules and schedules in CloudFormation.

moto's rules are renamed by updates, and remain when a target is rejected; it has no schedules.
"""

from __future__ import annotations

import json
from typing import Any

from moto.events.models import events_backends
from moto.scheduler.models import scheduler_backends
from typing_extensions import override

from sagemaker_local_account.cloudformation.resource_base import Properties, ResourceBase, replace_unless
from sagemaker_local_account.events import targets as event_targets


class Rule(ResourceBase):
    """AWS::Events::Rule."""

    @override
    def create(self) -> None:
        self.physical_resource_id = self.properties.get("Name", self.physical_resource_id)
        self._put()

    @override
    def update(self, former: Properties) -> None:
        if any(self.properties.get(name) != former.get(name) for name in ("Name", "EventBusName")):
            raise NotImplementedError
        self._put()

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        rule = self._rule
        if rule is not None:
            rule.remove_targets([target["Id"] for target in rule.targets])
            self._backend.delete_rule(name=rule.name, event_bus_arn=self._bus)

    @override
    def attributes(self) -> dict[str, str]:
        return {"Arn": self._rule.arn}

    def _put(self) -> None:
        prop = self.properties.get
        targets = prop("Targets", [])
        event_targets.check_targets(self.physical_resource_id, targets)
        pattern = prop("EventPattern")
        rule = self._backend.put_rule(
            name=self.physical_resource_id,
            description=prop("Description"),
            event_bus_arn=self._bus,
            event_pattern=json.dumps(pattern) if isinstance(pattern, dict) else pattern,
            role_arn=prop("RoleArn"),
            scheduled_expression=prop("ScheduleExpression"),
            state=prop("State"),
        )
        # A new list: moto's new rule shares the former's.
        rule.targets = []
        self._backend.put_targets(name=rule.name, event_bus_arn=self._bus, targets=targets)
        self._backend.tagger.delete_all_tags_for_resource(rule.arn)
        self._backend.tagger.tag_resource(rule.arn, prop("Tags", []))

    @property
    def _bus(self) -> str:
        return str(self.properties.get("EventBusName", "default"))

    @property
    def _backend(self) -> Any:
        return events_backends[self.account_id][self.region_name]

    @property
    def _rule(self) -> Any:
        bus = self._backend.describe_event_bus(self._bus.rpartition("/")[2])
        return bus.rules.get(self.physical_resource_id)


class EventBus(ResourceBase):
    """AWS::Events::EventBus; moto's has no physical id."""

    @override
    def create(self) -> None:
        self.physical_resource_id = self.properties["Name"]
        self._backend.create_event_bus(name=self.physical_resource_id)

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        self._backend.delete_event_bus(self.physical_resource_id)

    @override
    def attributes(self) -> dict[str, str]:
        return {
            "Arn": self._backend.describe_event_bus(self.physical_resource_id).arn,
            "Name": self.physical_resource_id,
        }

    @property
    def _backend(self) -> Any:
        return events_backends[self.account_id][self.region_name]


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


NATIVE: dict[str, Any] = {
    "AWS::Events::EventBus": EventBus,
    "AWS::Events::Rule": Rule,
    "AWS::Scheduler::Schedule": Schedule,
    "AWS::Scheduler::ScheduleGroup": ScheduleGroup,
}
