"""EventBridge's buses and rules in CloudFormation.

moto's rules are renamed by updates, and remain when a target is rejected.
"""

from __future__ import annotations

import json
from typing import Any

from moto.events.models import events_backends
from typing_extensions import override

from sagemaker_local_account.aws.events import targets as event_targets
from sagemaker_local_account.aws.resource_base import Properties, ResourceBase
from sagemaker_local_account.aws.resource_types import ServiceResources, real


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


RESOURCES = ServiceResources(
    types={
        "AWS::Events::EventBus": real("matches events to its rules", "Name", made_by=EventBus),
        "AWS::Events::Rule": real(
            "delivers to state machines, functions, topics, queues, log groups and buses, also on a schedule by the account's "
            "clock; other targets are rejected",
            "Description EventBusName EventPattern Name RoleArn ScheduleExpression State Tags Targets",
            made_by=Rule,
            longest_name=64,
        ),
    },
)
