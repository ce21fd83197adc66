"""The most characters that the inline policies of one role, user or group have together, without white space.

"IAM and AWS STS quotas", IAM's guide; the message is that of aws/aws-cdk 12403 and serverless/serverless 7643.
"""

from __future__ import annotations

import json
import re
from typing import Any

from moto.iam.exceptions import LimitExceededException
from moto.iam.models import Group, Role, User

from sagemaker_local_account.core.patches import patch

MOST = {"role": 10_240, "user": 2_048, "group": 5_120}
_KINDS: dict[type, str] = {Role: "role", User: "user", Group: "group"}


def _size(policy: str) -> int:
    return len(re.sub(r"\s", "", policy))


def install() -> None:
    """Refuses an inline policy with which the limit would be exceeded; keeps one of a template's role as JSON too."""

    def put_policy(self: Any, policy_name: str, policy_json: str | dict[str, Any]) -> None:
        kind = _KINDS[type(self)]
        text = policy_json if isinstance(policy_json, str) else json.dumps(policy_json)
        policies = {**self.policies, policy_name: text}
        if sum(map(_size, policies.values())) > MOST[kind]:
            raise LimitExceededException(f"Maximum policy size of {MOST[kind]} bytes exceeded for {kind} {self.name}")
        self.policies[policy_name] = text

    for owner in _KINDS:
        patch(owner, "put_policy", put_policy, "self, policy_name, policy_json")
