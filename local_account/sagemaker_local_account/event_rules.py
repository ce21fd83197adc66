"""CloudFormation's buses and rules of EventBridge: moto's rules change their names, and stay when a target is refused."""

from __future__ import annotations

import json
from typing import Any

from moto.events.models import events_backends

from . import event_targets
from .emulated import Emulated, Properties


class Rule(Emulated):
    """AWS::Events::Rule."""

    def create(self) -> None:
        self.physical_resource_id = self.properties.get("Name", self.physical_resource_id)
        self._put()

    def update(self, former: Properties) -> None:
        if any(self.properties.get(name) != former.get(name) for name in ("Name", "EventBusName")):
            raise NotImplementedError
        self._put()

    def delete(self, account_id: str, region_name: str) -> None:
        rule = self._rule
        if rule is not None:
            rule.remove_targets([target["Id"] for target in rule.targets])
            self._backend.delete_rule(name=rule.name, event_bus_arn=self._bus)

    def attributes(self) -> dict[str, str]:
        return {"Arn": self._rule.arn}

    def _put(self) -> None:
        said = self.properties.get
        targets = said("Targets", [])
        event_targets.refuse(self.physical_resource_id, targets)
        pattern = said("EventPattern")
        rule = self._backend.put_rule(
            name=self.physical_resource_id,
            description=said("Description"),
            event_bus_arn=self._bus,
            event_pattern=json.dumps(pattern) if isinstance(pattern, dict) else pattern,
            role_arn=said("RoleArn"),
            scheduled_expression=said("ScheduleExpression"),
            state=said("State"),
        )
        # A list of its own: moto's new rule has the former's.
        rule.targets = []
        self._backend.put_targets(name=rule.name, event_bus_arn=self._bus, targets=targets)
        self._backend.tagger.delete_all_tags_for_resource(rule.arn)
        self._backend.tagger.tag_resource(rule.arn, said("Tags", []))

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


class EventBus(Emulated):
    """AWS::Events::EventBus; moto's has no physical id."""

    def create(self) -> None:
        self.physical_resource_id = self.properties["Name"]
        self._backend.create_event_bus(name=self.physical_resource_id)

    def delete(self, account_id: str, region_name: str) -> None:
        self._backend.delete_event_bus(self.physical_resource_id)

    def attributes(self) -> dict[str, str]:
        return {
            "Arn": self._backend.describe_event_bus(self.physical_resource_id).arn,
            "Name": self.physical_resource_id,
        }

    @property
    def _backend(self) -> Any:
        return events_backends[self.account_id][self.region_name]


NATIVE: dict[str, Any] = {
    "AWS::Events::EventBus": EventBus,
    "AWS::Events::Rule": Rule,
}
