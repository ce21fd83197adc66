"""The account and region that a request is addressed to, or that a resource is in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Location:
    """An account and a region of it."""

    account: str
    region: str


def region_of(arn: str) -> str:
    """Returns the region of an ARN; "" for ARNs without one, such as S3's and IAM's, and for "*"."""
    return f"{arn}::::".split(":")[3]
