"""Checks that the buckets in a CreateTrainingJob request exist in the job's region, as the service does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from botocore.exceptions import ClientError, ParamValidationError

from sagemaker_local_account.core.service_errors import refused
from sagemaker_local_account.storage.transfer import PLACE, s3_source, split


def check_buckets(request: Mapping[str, Any], region: str, s3: Any) -> None:
    """Raises ServiceError for a bucket that does not exist or is in another region, to which S3 answers with a redirect.

    Args:
        request: CreateTrainingJob's.
        region: the job's region.
        s3: a client with the root's credentials.
    """
    for member, uri in _places(request):
        if not PLACE.match(uri):
            raise refused(f"{member} must be an S3 URI, like s3://bucket/prefix, got {uri!r}")
        if ":accesspoint/" in uri or "-s3alias/" in f"{uri}/":
            raise refused(
                f"the local account does not support S3 access points, got {uri!r} in {member}; name the bucket itself"
            )
        bucket, _ = split(uri)
        try:
            # None is us-east-1 (GetBucketLocation).
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
        if source := s3_source(channel):
            yield f"the channel {channel['ChannelName']}", source["S3Uri"]
    yield "S3OutputPath of OutputDataConfig", request["OutputDataConfig"]["S3OutputPath"]
    if request.get("CheckpointConfig"):
        yield "S3Uri of CheckpointConfig", request["CheckpointConfig"]["S3Uri"]


def _not_there(request: Mapping[str, Any], member: str, uri: str, region: str, error: ClientError) -> str:
    bucket, _ = split(uri)
    if not member.startswith("the channel"):
        return f"{member}: {uri!r} cannot be used: {error.response['Error']['Message']} ({bucket}, in {region})"
    # The service's message.
    return (
        f'No S3 objects found under S3 URL "{uri}" given in input data source of {member}. Please ensure that the bucket '
        f"exists in the selected region ({region}), that objects exist under that S3 prefix, and that the role "
        f'"{request["RoleArn"]}" has "s3:ListBucket" permissions on bucket "{bucket}". '
        f"Error message from S3: {error.response['Error']['Message']}"
    )
