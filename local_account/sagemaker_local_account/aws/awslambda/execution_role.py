"""What Lambda checks of a function's execution role when a function or a mapping is made."""

from __future__ import annotations

from collections.abc import Iterable

from sagemaker_local_account.iam.authorizer import AccessDenied, Authorizer
from sagemaker_local_account.iam.policies import Call


def refusal(authorizer: Authorizer, role: str, action: str, resources: Iterable[str]) -> str:
    """Returns what Lambda says of a role that may not do what the function needs; "" where it may.

    Args:
        authorizer: evaluates the role's permissions.
        role: its ARN.
        action: such as "sqs:ReceiveMessage".
        resources: the ARNs, on each of which the action must be allowed.
    """
    service, _, operation = action.partition(":")
    try:
        caller = authorizer.role(role, "lambda")
        for resource in resources:
            authorizer.check(caller, Call(action, resource))
    except AccessDenied:
        return f"The provided execution role does not have permissions to call {operation} on {service.upper()}"
    return ""
