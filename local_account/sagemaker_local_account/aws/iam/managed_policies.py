"""AWS's managed policies, in the partition that the account is in alone."""

from __future__ import annotations

from typing import Any

from moto.iam.models import IAMBackend

from sagemaker_local_account.core.patches import patch

_moto_init_aws_policies = IAMBackend._init_aws_policies


def install() -> None:
    """Loads the managed policies of the partition `aws`.

    moto looks an access key up in the users of every partition, and so makes a backend for each of the six, which would each
    read all 1,582 policies: half of what an account's start takes.
    """

    def init_aws_policies(self: IAMBackend) -> list[Any]:
        return _moto_init_aws_policies(self) if self.region_name == "aws" else []

    patch(IAMBackend, "_init_aws_policies", init_aws_policies, "self")
