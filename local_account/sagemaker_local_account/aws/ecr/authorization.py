"""What requests to ECR are authorized by."""

from __future__ import annotations

from typing import Any

from sagemaker_local_account.core.location import Location
from sagemaker_local_account.iam.service_authorization import ServiceAuthorization

_ON_REPOSITORIES = """
BatchCheckLayerAvailability BatchDeleteImage BatchGetImage BatchGetRepositoryScanningConfiguration BatchImportUpstreamImage
CompleteLayerUpload CreateRepository DeleteLifecyclePolicy DeleteRepository DeleteRepositoryPolicy
DescribeImageReplicationStatus DescribeImageScanFindings DescribeImageSigningStatus DescribeImages DescribeRepositories
GetDownloadUrlForLayer GetImageCopyStatus GetLifecyclePolicy GetLifecyclePolicyPreview GetRepositoryPolicy
InitiateLayerUpload ListImages ListTagsForResource PutImage PutImageScanningConfiguration PutImageTagMutability
PutLifecyclePolicy ReplicateImage SetRepositoryPolicy StartImageScan StartLifecyclePolicyPreview TagResource UntagResource
UpdateImageStorageClass UploadLayerPart
"""


def _policy_of(arn: str, location: Location) -> Any:
    from moto.ecr.models import ecr_backends

    repository = ecr_backends[location.account][location.region].repositories.get(arn.partition(":repository/")[2])
    return None if repository is None else repository.policy


AUTHORIZATION = ServiceAuthorization(
    "ecr",
    resources=dict.fromkeys(_ON_REPOSITORIES.split(), "repository/{repositoryName|repositoryNames|resourceArn}"),
    without_resource={"GetAuthorizationToken"},
    policy_of=_policy_of,
)
