"""What requests to SQS are authorized by."""

from __future__ import annotations

from typing import Any

from sagemaker_local_account.core.location import Location
from sagemaker_local_account.iam.service_authorization import ServiceAuthorization


def _policy_of(arn: str, location: Location) -> Any:
    from moto.sqs.models import sqs_backends

    queue = sqs_backends[location.account][location.region].queues.get(arn.rpartition(":")[2])
    return None if queue is None else queue.policy


AUTHORIZATION = ServiceAuthorization("sqs", resources={"SendMessage": "{QueueUrl.after_slash}"}, policy_of=_policy_of)
