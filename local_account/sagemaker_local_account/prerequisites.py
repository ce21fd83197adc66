"""What a CreateTrainingJob request names has to be there before a job is: its role and its buckets, as the service checks it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from botocore.exceptions import ClientError, ParamValidationError

from .storage import split
from .validation import refused

SERVICE = "sagemaker.amazonaws.com"


def check_role(arn: str, iam: Any) -> None:
    """Refuse a role that is not there, or whose trust policy does not let SageMaker assume it. Its Conditions count as met."""
    try:
        role = iam.get_role(RoleName=arn.rpartition("/")[2])["Role"]
        if role["Arn"] == arn and _trusts(role["AssumeRolePolicyDocument"]):
            return
        why = f"its trust policy does not allow {SERVICE}" if role["Arn"] == arn else f"the account has {role['Arn']}"
    except iam.exceptions.NoSuchEntityException:
        why = f"the account has no role {arn!r}"
    raise refused(
        f"Could not assume role {arn}. Please ensure that the role exists and allows principal '{SERVICE}' to assume the "
        f"role: {why}"
    )


def check_buckets(request: Mapping[str, Any], region: str, s3: Any) -> None:
    """Refuse a bucket that is not there, or in another region: S3 answers the job's requests for it by a redirect."""
    for member, uri in _places(request):
        if not uri.startswith("s3://"):
            raise refused(f"{member} must be an S3 URI, like s3://bucket/prefix, got {uri!r}")
        bucket, _ = split(uri)
        try:
            # us-east-1 has no name here (GetBucketLocation).
            found = s3.get_bucket_location(Bucket=bucket)["LocationConstraint"] or "us-east-1"
        except ParamValidationError:
            raise refused(f"{member} must name a bucket, like s3://bucket/prefix, got {uri!r}") from None
        except ClientError as error:
            raise refused(_not_there(request, member, uri, region, error)) from None
        if found != region:
            raise refused(
                f"{member}: the bucket {bucket} of {uri!r} is in {found}, and the training job in {region} "
                "(PermanentRedirect: it must be addressed by the endpoint of its own region). Please use a bucket in "
                f"{region}"
            )


def _places(request: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for channel in request.get("InputDataConfig", []):
        yield f"the channel {channel['ChannelName']}", channel["DataSource"]["S3DataSource"]["S3Uri"]
    yield "S3OutputPath of OutputDataConfig", request["OutputDataConfig"]["S3OutputPath"]
    if request.get("CheckpointConfig"):
        yield "S3Uri of CheckpointConfig", request["CheckpointConfig"]["S3Uri"]


def _not_there(request: Mapping[str, Any], member: str, uri: str, region: str, error: ClientError) -> str:
    bucket, _ = split(uri)
    if not member.startswith("the channel"):
        return f"{member}: {uri!r} cannot be used: {error.response['Error']['Message']} ({bucket}, in {region})"
    # The service's own words.
    return (
        f'No S3 objects found under S3 URL "{uri}" given in input data source of {member}. Please ensure that the bucket '
        f"exists in the selected region ({region}), that objects exist under that S3 prefix, and that the role "
        f'"{request["RoleArn"]}" has "s3:ListBucket" permissions on bucket "{bucket}". '
        f"Error message from S3: {error.response['Error']['Message']}"
    )


def _trusts(policy: Any) -> bool:
    """Whether a trust policy lets SageMaker assume its role: a statement allows it, and none denies it."""
    document = json.loads(policy) if isinstance(policy, str) else policy
    effects = {statement["Effect"] for statement in _listed(document["Statement"]) if _speaks_of_sagemaker(statement)}
    return effects == {"Allow"}


def _speaks_of_sagemaker(statement: Mapping[str, Any]) -> bool:
    principal = statement.get("Principal", {})
    named = _listed(principal if isinstance(principal, str) else principal.get("Service", []))
    actions = [action.lower() for action in _listed(statement.get("Action", []))]
    return any(name in (SERVICE, "*") for name in named) and any(
        fnmatchcase("sts:assumerole", action) for action in actions
    )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
