"""What requests to FSx are authorized by."""

from __future__ import annotations

from sagemaker_local_account.iam.service_authorization import ServiceAuthorization

AUTHORIZATION = ServiceAuthorization(
    "fsx", without_resource={"DescribeDataRepositoryAssociations", "DescribeFileSystems"}
)
