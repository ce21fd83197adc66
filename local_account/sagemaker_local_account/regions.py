"""The regions of an account: which it can have, and the refusal of requests for others, and for roles of other accounts."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from botocore.exceptions import UnknownRegionError
from botocore.loaders import Loader
from botocore.regions import EndpointResolver

from . import answers
from .api_calls import Place, calls_of
from .gate import REGION, SERVICE
from .state import AccountError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

PARTITION = "aws"
# Services by their signing names whose requests may name any region: they have one endpoint for a partition (botocore's
# endpoints.json: "isRegionalized" is false), endpoints in a few regions only (ECR's public gallery and AWS Support, General
# Reference), or, as STS, an endpoint that is used from every region ("Manage AWS STS in an AWS Region", IAM's guide).
WITHOUT_REGION = frozenset(
    {
        "account",
        "billingconductor",
        "budgets",
        "ce",
        "chime",
        "cloudfront",
        "ecr-public",
        "globalaccelerator",
        "health",
        "iam",
        "networkmanager",
        "organizations",
        "route53",
        "route53domains",
        "savingsplans",
        "shield",
        "sts",
        "support",
        "tax",
        "waf",
    }
)


def checked(regions: Iterable[str]) -> tuple[str, ...]:
    """The regions with which an account is started, each once. Raises AccountError for what is no region of the partition."""
    found = tuple(dict.fromkeys(regions))
    if not found:
        raise AccountError("region must be at least one, like us-east-1, got none")
    for region in found:
        partition = _partition_of(region)
        if partition not in (PARTITION, ""):
            raise AccountError(
                f"region must be of the partition {PARTITION}, like eu-west-1, got {region!r} of {partition}, which the "
                "local account does not have"
            )
        if region not in _endpoints().get_available_endpoints("api.sagemaker", PARTITION):
            raise AccountError(f"region must be one that SageMaker is in, like eu-west-1, got {region!r}")
    return found


def why_not(service: str, region: str, regions: Sequence[str]) -> str:
    """Why an account with ``regions`` does not answer a request of a service for a region; "" where it does."""
    if region in regions:
        return ""
    has = " or ".join(regions)
    partition = _partition_of(region)
    if partition != PARTITION:
        of = f" of the partition {partition}" if partition else ""
        return (
            f"the local account has no region {region!r}{of}, it has regions of the partition {PARTITION} only; "
            f"set the region of the client, or of the stack's env, to {has}"
        )
    if service in WITHOUT_REGION:
        return ""
    options = " ".join(f"--region {name}" for name in (*regions, region))
    return (
        f"the local account was started for {' and '.join(regions)}, and this request is for {region}; "
        f"start it with `local-account {options}`, or set the region of the client, or of the stack's env, to {has}"
    )


class Regional:
    """WSGI middleware that refuses requests for regions that the account does not have, under the code that STS has for them.

    It also refuses the roles of other accounts: moto gives out keys for whatever account a role's ARN names.
    """

    def __init__(self, app: WSGIApplication, account: str, regions: Sequence[str]) -> None:
        self._app = app
        self._place = Place(account, regions[0])
        self._regions = regions

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        reason = why_not(environ[SERVICE], environ[REGION], self._regions)
        if reason:
            return answers.error(environ, start_response, "403 Forbidden", "RegionDisabledException", reason)
        if environ[SERVICE] == "sts":
            foreign = _foreign_role(environ, self._place)
            if foreign:
                return answers.access_denied(environ, start_response, "sts", foreign)
        return self._app(environ, start_response)


def _foreign_role(environ: WSGIEnvironment, place: Place) -> str:
    """Why a role is not taken on, where it is of another account; "" where it is of this one."""
    for call in calls_of(environ, "sts", place):
        account = f"{call.resource}::::".split(":")[4]
        if call.action.startswith("sts:AssumeRole") and account not in ("", place.account):
            return (
                f"the role {call.resource} is of account {account}, and the local account is {place.account}; set the account "
                f"of the stack's env, or of the role's ARN, to {place.account} (CDK_DEFAULT_ACCOUNT has it)"
            )
    return ""


@functools.cache
def _endpoints() -> EndpointResolver:
    # Not by a session, which would look for the profile of the process's own environment.
    return EndpointResolver(Loader().load_data("endpoints"))


def _partition_of(region: str) -> str:
    """The partition of whatever is spelled as one of its regions; "" where it is as in none."""
    try:
        return str(_endpoints().get_partition_for_region(region))
    except UnknownRegionError:
        return ""
