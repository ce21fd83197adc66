"""SQS's resources in CloudFormation: queues with all their properties, and the policies of queues, which moto lacks."""

from __future__ import annotations

import json
from typing import Any

from moto.sqs.models import Queue, sqs_backends

from .completion import Completion
from .emulated import Emulated, Properties


def _queue(queue: Queue, properties: Properties, account_id: str, region_name: str) -> None:
    """moto changes two properties of a queue only."""
    said = {name: value for name, value in properties.items() if name not in ("QueueName", "Tags")}
    policy = queue.policy
    queue._set_attributes(said)
    queue.policy = policy  # which another resource may have given it
    queue.tags = {tag["Key"]: tag["Value"] for tag in properties.get("Tags", [])}


class QueuePolicy(Emulated):
    """AWS::SQS::QueuePolicy."""

    def create(self) -> None:
        for queue in self._queues(self.properties):
            queue.policy = json.dumps(self.properties["PolicyDocument"])

    def update(self, former: Properties) -> None:
        gone = [url for url in former["Queues"] if url not in self.properties["Queues"]]
        self._forget({"Queues": gone})
        self.create()

    def delete(self, account_id: str, region_name: str) -> None:
        self._forget(self.properties)

    def _forget(self, properties: Properties) -> None:
        for queue in self._queues(properties):
            queue.policy = None

    def _queues(self, properties: Properties) -> list[Any]:
        queues = sqs_backends[self.account_id][self.region_name]
        return [queues.get_queue(url.rpartition("/")[2]) for url in properties["Queues"]]


NATIVE: dict[str, Any] = {"AWS::SQS::QueuePolicy": QueuePolicy}
COMPLETED: dict[Any, Completion] = {Queue: Completion(_queue)}
