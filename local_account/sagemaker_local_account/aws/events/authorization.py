"""What requests to EventBridge are authorized by."""

from __future__ import annotations

from sagemaker_local_account.iam.service_authorization import ServiceAuthorization

AUTHORIZATION = ServiceAuthorization(
    "events",
    resources={
        "DescribeRule": "rule/{Name}",
        "PutEvents": "event-bus/default",
        "PutRule": "rule/{Name}",
        "PutTargets": "rule/{Rule}",
    },
    passed_roles={"PutTargets": ("RoleArn", "events.amazonaws.com")},
)
