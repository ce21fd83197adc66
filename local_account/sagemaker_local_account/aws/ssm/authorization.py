"""What requests to SSM are authorized by."""

from __future__ import annotations

from sagemaker_local_account.iam.service_authorization import ServiceAuthorization

AUTHORIZATION = ServiceAuthorization(
    "ssm",
    resources={
        "GetParameter": "parameter/{Name.parameter}",
        "GetParameters": "parameter/{Names.parameter}",
        "PutParameter": "parameter/{Name.parameter}",
    },
)
