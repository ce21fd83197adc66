"""What requests to SQS are authorized by."""

from __future__ import annotations

from typing import Any

from sagemaker_local_account.core.location import Location
from sagemaker_local_account.iam.service_authorization import ServiceAuthorization


def _policy_of(arn: str, location: Location) -> Any:
    from moto.sqs.models import sqs_backends

    queue = sqs_backends[location.account][location.region].queues.get(arn.rpartition(":")[2])
    return None if queue is None else queue.policy


_ON_QUEUES = """
AddPermission ChangeMessageVisibility DeleteMessage DeleteQueue GetQueueAttributes ListDeadLetterSourceQueues ListQueueTags
PurgeQueue ReceiveMessage RemovePermission SendMessage SetQueueAttributes TagQueue UntagQueue
"""
_BATCHES = ("ChangeMessageVisibility", "DeleteMessage", "SendMessage")

AUTHORIZATION = ServiceAuthorization(
    "sqs",
    resources={
        **dict.fromkeys(_ON_QUEUES.split(), "{QueueUrl.after_slash}"),
        **dict.fromkeys(("CreateQueue", "GetQueueUrl"), "{QueueName}"),
    },
    without_resource={"ListQueues"},
    actions={f"{action}Batch": action for action in _BATCHES},
    policy_of=_policy_of,
)
