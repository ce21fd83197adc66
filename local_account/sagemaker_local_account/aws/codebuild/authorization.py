"""What requests to CodeBuild are authorized by."""

from __future__ import annotations

from sagemaker_local_account.iam.service_authorization import ServiceAuthorization

AUTHORIZATION = ServiceAuthorization(
    "codebuild",
    resources={
        "BatchGetBuilds": "project/{ids.before_colon}",
        "BatchGetProjects": "project/{names}",
        "StartBuild": "project/{projectName}",
    },
    passed_roles={"CreateProject": ("serviceRole", "codebuild.amazonaws.com")},
)
