"""What requests to EC2 are authorized by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sagemaker_local_account.core.location import Location
from sagemaker_local_account.iam.service_authorization import ServiceAuthorization


def subnet_arn(id: str, location: Location) -> str:
    """Returns a subnet's ARN; one that is shared by RAM has its owner's account (terraform-aws-iam 227, runs-on 463)."""
    from moto.ec2.exceptions import InvalidSubnetIdError
    from moto.ec2.models import ec2_backends

    try:
        return str(ec2_backends[location.account][location.region].get_subnet(id).arn)
    except InvalidSubnetIdError:
        return f"arn:aws:ec2:{location.region}:{location.account}:subnet/{id}"


def _resources_of(operation: str, members: Mapping[str, Any], location: Location) -> list[str] | None:
    if operation != "CreateNetworkInterface":
        return None
    groups = [value for name, value in members.items() if name.startswith("SecurityGroupId.")]
    ec2 = f"arn:aws:ec2:{location.region}:{location.account}:"
    named = [f"{ec2}{name}" for name in ("network-interface/*", *(f"security-group/{group}" for group in groups))]
    return [*named, subnet_arn(members.get("SubnetId", "*"), location)]


AUTHORIZATION = ServiceAuthorization(
    "ec2",
    resources={
        "CreateNetworkInterfacePermission": "network-interface/{NetworkInterfaceId}",
        "DeleteNetworkInterface": "network-interface/{NetworkInterfaceId}",
    },
    resources_of=_resources_of,
)
