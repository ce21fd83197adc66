"""Whose a VPC is: a subnet that is shared by AWS RAM has the account of its owner in its ARN, not that of the job."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aws_cdk import Resource, Stack

from cdk_sagemaker_training.tokens import is_unresolved

if TYPE_CHECKING:
    from aws_cdk import aws_ec2 as ec2

ANY_ACCOUNT = "*"


def check_owner(owner_account: str | None, *, new: bool) -> None:
    """Refuse what is no account, and any beside a new VPC."""
    if owner_account is None:
        return
    if new:
        raise ValueError(
            f"owner_account must be left out of a new VPC, which is the stack's, like owner_account=None, got {owner_account!r}"
        )
    if not is_unresolved(owner_account) and not re.fullmatch(r"\d{12}", owner_account):
        raise ValueError(
            f"owner_account must be an AWS account of 12 digits, like '123456789012', got {owner_account!r}"
        )


def owner_of(vpc: ec2.IVpc, stack: Stack) -> str:
    """The account that owns a VPC; any account where that is not known.

    CDK gives a VPC that was imported by its attributes the account of the stack, whosever it is, and so one that was looked up
    by a CLI that did not record the owner.
    """
    account = vpc.env.account
    if account != stack.account or Resource.is_owned_resource(vpc):
        return account
    return ANY_ACCOUNT
