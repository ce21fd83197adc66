"""SQS's resources in CloudFormation: updates of queues, and queue policies, which moto lacks."""

from __future__ import annotations

import json
from typing import Any

from moto.sqs.models import Queue, sqs_backends
from typing_extensions import override

from sagemaker_local_account.aws.property_backfill import Backfill
from sagemaker_local_account.aws.resource_base import Properties, ResourceBase, is_true
from sagemaker_local_account.aws.resource_types import ServiceResources, real

# Of properties that a template leaves out (template reference, AWS::SQS::Queue).
_DEFAULTS = {
    "DelaySeconds": 0,
    "MaximumMessageSize": 1_048_576,
    "MessageRetentionPeriod": 345_600,
    "ReceiveMessageWaitTimeSeconds": 0,
    "VisibilityTimeout": 30,
}


def _queue(queue: Queue, properties: Properties, account_id: str, region_name: str) -> None:
    """Sets a queue's properties, of which moto updates two."""
    values = {name: value for name, value in properties.items() if name not in ("QueueName", "Tags")}
    policy = queue.policy
    queue._set_attributes(_DEFAULTS | values)
    if "RedrivePolicy" not in properties:
        queue.redrive_policy, queue.dead_letter_queue = {}, None
    queue.policy = policy  # set by an AWS::SQS::QueuePolicy
    queue.tags = {tag["Key"]: tag["Value"] for tag in properties.get("Tags", [])}


def _named(name: str, properties: Properties) -> str:
    """The name of a queue: a FIFO queue's has a suffix."""
    generated = is_true(properties.get("FifoQueue", False)) and "QueueName" not in properties
    return f"{name[:75]}.fifo" if generated else name


class QueuePolicy(ResourceBase):
    """AWS::SQS::QueuePolicy."""

    @override
    def create(self) -> None:
        for queue in self._queues(self.properties):
            queue.policy = json.dumps(self.properties["PolicyDocument"])

    @override
    def update(self, former: Properties) -> None:
        gone = [url for url in former["Queues"] if url not in self.properties["Queues"]]
        self._forget({"Queues": gone})
        self.create()

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        self._forget(self.properties)

    def _forget(self, properties: Properties) -> None:
        for queue in self._queues(properties):
            queue.policy = None

    def _queues(self, properties: Properties) -> list[Any]:
        queues = sqs_backends[self.account_id][self.region_name]
        return [queues.get_queue(url.rpartition("/")[2]) for url in properties["Queues"]]


RESOURCES = ServiceResources(
    types={
        "AWS::SQS::Queue": real(
            "stores messages, without encryption; ApproximateNumberOfMessagesVisible is the only metric of SQS",
            "ContentBasedDeduplication DeduplicationScope DelaySeconds FifoQueue FifoThroughputLimit "
            "KmsDataKeyReusePeriodSeconds KmsMasterKeyId MaximumMessageSize MessageRetentionPeriod QueueName "
            "ReceiveMessageWaitTimeSeconds RedrivePolicy SqsManagedSseEnabled Tags VisibilityTimeout",
            longest_name=80,
        ),
        "AWS::SQS::QueuePolicy": real("evaluated", "PolicyDocument Queues", made_by=QueuePolicy),
    },
    backfills={Queue: Backfill(_queue, named=_named)},
)
