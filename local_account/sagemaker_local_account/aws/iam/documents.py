"""Trust policies and ARNs of managed policies that IAM refuses when a role is made or a policy attached.

moto checks a trust policy only when it is changed. Recorded on AWS: LocalStack's tests
test_create_role_with_malformed_assume_role_policy_document, test_role_attach_policy and test_user_attach_policy.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from moto.iam.exceptions import MalformedPolicyDocument, ValidationError
from moto.iam.models import IAMBackend
from moto.iam.policy_validation import IAMTrustPolicyDocumentValidator

from sagemaker_local_account.core.patches import patch

_moto_create_role = IAMBackend.create_role


def install() -> None:
    """Patches moto's IAM."""
    patch(
        IAMBackend,
        "create_role",
        _create_role,
        "self, role_name, assume_role_policy_document, path, permissions_boundary, description, tags, "
        "max_session_duration, linked_service",
    )
    for holder in ("role", "user", "group"):
        name = f"attach_{holder}_policy"
        patch(IAMBackend, name, _attaching(getattr(IAMBackend, name)), f"self, policy_arn, {holder}_name")


def _create_role(self: IAMBackend, role_name: str, assume_role_policy_document: Any, *args: Any, **details: Any) -> Any:
    document = assume_role_policy_document
    text = document if isinstance(document, str) else json.dumps(document)
    try:
        given = json.loads(text)
    except ValueError:
        raise MalformedPolicyDocument("This policy contains invalid Json") from None
    # Of a trust policy IAM takes the older version too, which is that of one without: recorded in LocalStack's
    # test_put_events_to_default_eventbus_for_custom_eventbus.
    newest = {**given, "Version": "2012-10-17"} if isinstance(given, dict) else given
    IAMTrustPolicyDocumentValidator(json.dumps(newest)).validate()
    return _moto_create_role(self, role_name, document, *args, **details)


def _attaching(moto_attach: Callable[..., None]) -> Callable[..., None]:
    def attach(self: IAMBackend, policy_arn: str | None, *holder: str, **named: str) -> None:
        if policy_arn is None:
            failed = "Value null at 'policyArn' failed to satisfy constraint: Member must not be null"
            raise ValidationError(f"1 validation error detected: {failed}")
        if not policy_arn.startswith("arn:"):
            raise ValidationError("Invalid ARN:  Could not be parsed!")
        moto_attach(self, policy_arn, *holder, **named)

    return attach
