"""What requests to Lambda are authorized by."""

from __future__ import annotations

from typing import Any

from sagemaker_local_account.aws.awslambda.arns import unqualified
from sagemaker_local_account.core.location import Location
from sagemaker_local_account.iam.service_authorization import ServiceAuthorization


def _policy_of(arn: str, location: Location) -> Any:
    from moto.awslambda.models import lambda_backends

    arn = unqualified(arn)  # a version and an alias have the policy of their function here
    functions = lambda_backends[location.account][location.region].list_functions()
    found = next((function for function in functions if function.function_arn == arn), None)
    if found is None or not found.policy.statements:
        return None
    return {"Version": "2012-10-17", "Statement": found.policy.statements}


AUTHORIZATION = ServiceAuthorization(
    "lambda",
    resources={"InvokeFunction": "function:{FunctionName.after_function}"},
    passed_roles={"CreateFunction": ("Role", "lambda.amazonaws.com")},
    actions=dict.fromkeys(("Invoke", "InvokeWithResponseStream"), "InvokeFunction"),
    policy_of=_policy_of,
)
