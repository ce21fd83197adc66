"""AWS's managed policies, in the partition that the account is in alone."""

from __future__ import annotations

import copy
from typing import Any

from moto.iam.models import IAMBackend

from sagemaker_local_account.core.patches import patch

_moto_init_aws_policies = IAMBackend._init_aws_policies
_read: dict[str, list[Any]] = {}  # by account


def install() -> None:
    """Loads the managed policies of the partition `aws`.

    moto looks an access key up in the users of every partition, and so makes a backend for each of the six, which would each
    read all 1,582 policies: half of what an account's start takes. A process with one account after the other reads them once.
    """

    def init_aws_policies(self: IAMBackend) -> list[Any]:
        if self.region_name != "aws":
            return []
        if self.account_id not in _read:
            _read[self.account_id] = _moto_init_aws_policies(self)
        return [_copied(policy) for policy in _read[self.account_id]]

    patch(IAMBackend, "_init_aws_policies", init_aws_policies, "self")


def _copied(policy: Any) -> Any:
    """A policy without what another account has changed of it."""
    copied = copy.copy(policy)
    copied.tags, copied.versions = dict(policy.tags), [copy.copy(version) for version in policy.versions]
    return copied
