"""The owner account of a VPC: the ARN of a subnet shared by AWS RAM contains its owner's account, not that of the job."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aws_cdk import Resource, Stack

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved

if TYPE_CHECKING:
    from aws_cdk import aws_ec2 as ec2

ANY_ACCOUNT = "*"


def check_owner(owner_account: str | None, *, new: bool) -> None:
    """Check the prop ``owner_account``; None and tokens pass.

    Args:
        owner_account: The account.
        new: Whether the VPC is a new one, which belongs to the stack's account.
    """
    if owner_account is None:
        return
    if new:
        rule = "be left out with a new VPC, which is in the stack's account"
        raise must("owner_account", rule, "owner_account=None", repr(owner_account))
    if not is_unresolved(owner_account) and not re.fullmatch(r"\d{12}", owner_account):
        raise must("owner_account", "be an AWS account of 12 digits", "'123456789012'", repr(owner_account))


def owner_of(vpc: ec2.IVpc, stack: Stack) -> str:
    """Return the account that owns a VPC, or ``ANY_ACCOUNT`` if it is unknown.

    CDK reports the stack's account for a VPC that was imported by its attributes, whatever its owner is, and for one that was
    looked up by a CLI that did not record the owner.
    """
    account = vpc.env.account
    if account != stack.account or Resource.is_owned_resource(vpc):
        return account
    return ANY_ACCOUNT
