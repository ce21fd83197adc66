"""What requests to SNS are authorized by, and the KMS calls of a publication."""

from __future__ import annotations

from typing import Any

from sagemaker_local_account.aws.kms.authorization import calls_for_caller
from sagemaker_local_account.core.location import Location, region_of
from sagemaker_local_account.iam.policies import Call
from sagemaker_local_account.iam.service_authorization import ServiceAuthorization


def _with_key(call: Call, location: Location) -> list[Call]:
    """What SNS calls for who publishes to a topic with a customer managed key, as CDK's `topic.grant_publish` grants it."""
    if call.action != "sns:Publish":
        return []
    location = Location(location.account, region_of(call.resource) or location.region)
    topic = _topic(call.resource, location)
    key = None if topic is None else topic.kms_master_key_id
    return calls_for_caller("sns", key, ("Decrypt", "GenerateDataKey"), call.context, location)


def _policy_of(arn: str, location: Location) -> Any:
    topic = _topic(arn, location)
    return None if topic is None else topic._policy_json


def _topic(arn: str, location: Location) -> Any:
    from moto.sns.models import sns_backends

    return sns_backends[location.account][location.region].topics.get(arn)


AUTHORIZATION = ServiceAuthorization(
    "sns", resources={"Publish": "{TopicArn|TargetArn}"}, implied=_with_key, policy_of=_policy_of
)
