"""The APIs of CodeBuild, and of ECR Public as far as `docker login` uses it."""

from __future__ import annotations

import base64
import secrets
from datetime import UTC, datetime, timedelta
from typing import Any

from sagemaker_local_account.aws.codebuild.projects import CodeBuild
from sagemaker_local_account.http.json_api import JsonApi

CODEBUILD_TARGET = "CodeBuild_20161006."
ECR_PUBLIC_TARGET = "SpencerFrontendService."


def codebuild_api(builds: CodeBuild) -> JsonApi:
    """Returns CodeBuild's API; moto's runs nothing, and completes each build when it is described."""
    return JsonApi(
        "CodeBuild",
        {
            "BatchGetBuilds": builds.describe_builds,
            "BatchGetProjects": builds.describe_projects,
            "CreateProject": builds.create_project,
            "DeleteProject": builds.delete_project,
            "ListBuilds": builds.list_builds,
            "ListBuildsForProject": builds.list_builds,
            "ListProjects": builds.list_projects,
            "StartBuild": builds.start_build,
            "StopBuild": builds.stop_build,
            "UpdateProject": builds.update_project,
        },
    )


def ecr_public_api() -> JsonApi:
    """Returns ECR Public's API with GetAuthorizationToken, for `aws ecr-public get-login-password`; moto lacks the service."""

    def token(request: dict[str, Any]) -> dict[str, Any]:
        password = base64.b64encode(f"AWS:{secrets.token_urlsafe(16)}".encode()).decode()
        expires = datetime.now(UTC) + timedelta(hours=12)
        return {"authorizationData": {"authorizationToken": password, "expiresAt": expires}}

    return JsonApi("ECR Public", {"GetAuthorizationToken": token})
