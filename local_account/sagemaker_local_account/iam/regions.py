"""Validation of the account's regions, and rejection of requests for other regions and for roles of other accounts."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from botocore.exceptions import UnknownRegionError
from botocore.regions import EndpointResolver

from sagemaker_local_account.core import error_responses
from sagemaker_local_account.core.location import Location
from sagemaker_local_account.core.service_models import loader
from sagemaker_local_account.core.state import AccountError
from sagemaker_local_account.iam.api_calls import calls_of
from sagemaker_local_account.iam.authentication import REGION, SERVICE
from sagemaker_local_account.iam.service_authorization import ServiceAuthorization

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

PARTITION = "aws"
# Signing names of services whose requests may name any region: global services (botocore's endpoints.json: "isRegionalized" is
# false), services with endpoints in a few regions only (ECR's public gallery and AWS Support, General Reference), and STS, whose
# global endpoint is used from every region ("Manage AWS STS in an AWS Region", IAM's guide).
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


def validated(regions: Iterable[str]) -> tuple[str, ...]:
    """Returns the regions without duplicates.

    Raises:
        AccountError: there is none, or one is not a region of the partition in which SageMaker is available.
    """
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


def disabled_reason(service: str, region: str, regions: Sequence[str]) -> str:
    """Returns the reason why a request for a region is rejected, or "" where it is not.

    Args:
        service: the signing name.
        region: the region of the request's credential scope.
        regions: the account's regions.
    """
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


class RegionCheck:
    """WSGI middleware that answers RegionDisabledException, STS's error code, to requests for other regions.

    It also denies AssumeRole for roles of other accounts, for which moto issues credentials.
    """

    def __init__(
        self,
        app: WSGIApplication,
        account: str,
        regions: Sequence[str],
        services: Mapping[str, ServiceAuthorization],
    ) -> None:
        self._app = app
        self._services = services
        self._location = Location(account, regions[0])
        self._regions = regions

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Calls the application behind it, or answers an error."""
        reason = disabled_reason(environ[SERVICE], environ[REGION], self._regions)
        if reason:
            return error_responses.error(environ, start_response, "403 Forbidden", "RegionDisabledException", reason)
        if environ[SERVICE] == "sts":
            foreign = _foreign_role(environ, self._location, self._services)
            if foreign:
                return error_responses.access_denied(environ, start_response, "sts", foreign)
        return self._app(environ, start_response)


def _foreign_role(environ: WSGIEnvironment, location: Location, services: Mapping[str, ServiceAuthorization]) -> str:
    """The error message for a role of another account; "" for one of this account."""
    for call in calls_of(environ, "sts", location, services):
        account = f"{call.resource}::::".split(":")[4]
        if call.action.startswith("sts:AssumeRole") and account not in ("", location.account):
            return (
                f"the role {call.resource} is of account {account}, and the local account is {location.account}; set the account "
                f"of the stack's env, or of the role's ARN, to {location.account} (CDK_DEFAULT_ACCOUNT has it)"
            )
    return ""


@functools.cache
def _endpoints() -> EndpointResolver:
    # Not by a session, which would read the profile of the process's own environment.
    return EndpointResolver(loader().load_data("endpoints"))


def _partition_of(region: str) -> str:
    """The partition whose region pattern the name matches; "" where it matches none."""
    try:
        return str(_endpoints().get_partition_for_region(region))
    except UnknownRegionError:
        return ""
