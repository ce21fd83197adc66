"""The request of a job in AWS or in the local account."""

from __future__ import annotations

from typing import Any

from training_jobs.adopt.props import Subnets
from training_jobs.client.account import Account


def request_of_job(account: Account, name: str) -> dict[str, Any]:
    """Return the CreateTrainingJob request of a job: what DescribeTrainingJob has of its members, and its tags.

    Args:
        account: The account.
        name: The job's name.

    Raises:
        NotFoundError: There is no such job.
    """
    described = account.job(name).describe()
    sagemaker = account.client("sagemaker")
    shape = sagemaker.meta.service_model.operation_model("CreateTrainingJob").input_shape
    pages = sagemaker.get_paginator("list_tags").paginate(ResourceArn=described["TrainingJobArn"])
    tags = [tag for page in pages for tag in page["Tags"]]
    return {**_common(described, shape), "Tags": tags}


def subnets_of(account: Account, request: dict[str, Any]) -> Subnets | None:
    """Return the VPC of a request's subnets; None without subnets, and where EC2 does not answer.

    Args:
        account: The account.
        request: The request.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    ids = request.get("VpcConfig", {}).get("Subnets")
    if not ids:
        return None
    try:
        found = {it["SubnetId"]: it for it in account.client("ec2").describe_subnets(SubnetIds=ids)["Subnets"]}
    except (BotoCoreError, ClientError):  # a permission that only this needs; the source has a placeholder
        return None
    return Subnets(found[ids[0]]["VpcId"], tuple(found[id]["AvailabilityZone"] for id in ids))


def _common(value: Any, shape: Any) -> Any:
    """A value without the members that a shape of the request lacks, such as the secondary status."""
    if shape.type_name == "structure":
        return {name: _common(item, shape.members[name]) for name, item in value.items() if name in shape.members}
    if shape.type_name == "list":
        return [_common(item, shape.member) for item in value]
    return value
