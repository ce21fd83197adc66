"""The buckets that a CreateTrainingJob request names have to be there before a job is, as the service checks it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from botocore.exceptions import ClientError, ParamValidationError

from .plan import s3_source
from .service_errors import refused
from .storage import split


def check_buckets(request: Mapping[str, Any], region: str, s3: Any) -> None:
    """Refuse a bucket that is not there, or in another region: S3 answers the job's requests for it by a redirect."""
    for member, uri in _places(request):
        if not uri.startswith("s3://"):
            raise refused(f"{member} must be an S3 URI, like s3://bucket/prefix, got {uri!r}")
        if ":accesspoint/" in uri or "-s3alias/" in f"{uri}/":
            raise refused(
                f"the local account has no access points of S3, got {uri!r} in {member}; name the bucket itself"
            )
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
        if source := s3_source(channel):
            yield f"the channel {channel['ChannelName']}", source["S3Uri"]
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
