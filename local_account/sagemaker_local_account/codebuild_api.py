"""The APIs that builds bring along: CodeBuild's, and of ECR's public gallery what `docker login` asks for."""

from __future__ import annotations

import base64
import secrets
from datetime import UTC, datetime, timedelta
from typing import Any

from .codebuild import CodeBuild
from .json_api import JsonApi

CODEBUILD_TARGET = "CodeBuild_20161006."
ECR_PUBLIC_TARGET = "SpencerFrontendService."


def codebuild_api(builds: CodeBuild) -> JsonApi:
    """CodeBuild's operations; moto's run nothing, and call each build a success as soon as it is described."""
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
    """What `aws ecr-public get-login-password` asks; moto has nothing of that service."""

    def token(request: dict[str, Any]) -> dict[str, Any]:
        password = base64.b64encode(f"AWS:{secrets.token_urlsafe(16)}".encode()).decode()
        expires = datetime.now(UTC) + timedelta(hours=12)
        return {"authorizationData": {"authorizationToken": password, "expiresAt": expires}}

    return JsonApi("ECR Public", {"GetAuthorizationToken": token})
