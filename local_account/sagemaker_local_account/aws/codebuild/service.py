"""CodeBuild of one account: each region's projects and builds, their API and their resources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sagemaker_local_account.aws.cloudformation.custom_resource_responses import Responses
from sagemaker_local_account.aws.codebuild import resources
from sagemaker_local_account.aws.codebuild.api import codebuild_api
from sagemaker_local_account.aws.codebuild.projects import CodeBuild
from sagemaker_local_account.aws.codebuild.run import BuildContext
from sagemaker_local_account.aws.sts.sessions import RoleSessions
from sagemaker_local_account.core.clients import Clients
from sagemaker_local_account.core.location import Location
from sagemaker_local_account.core.state import RunningAccount
from sagemaker_local_account.runtime import leftovers


class CodeBuildService:
    """CodeBuild of one account.

    ``apis`` has the WSGI application of each region.

    Args:
        account: the account.
        state: its state folder, in which the folders of builds of an account that was killed are removed.
        root_keys: the AWS_* variables of its root.
        clients: the account's own clients.
        sessions: the sessions of projects' roles.
        environment: returns the environment of the account's clients.
        responses: of custom resources, one of which is a build.
    """

    def __init__(
        self,
        account: RunningAccount,
        state: Path,
        root_keys: Mapping[str, str],
        clients: Clients,
        sessions: RoleSessions,
        environment: Callable[[], Mapping[str, str]],
        responses: Responses,
    ) -> None:
        folder = state / leftovers.BUILDS
        leftovers.clear(folder)
        self._builds = {
            region: CodeBuild(
                BuildContext(
                    Location(account.account_id, region),
                    folder,
                    account.endpoint_url,
                    root_keys,
                    clients,
                    sessions,
                    environment,
                )
            )
            for region in account.regions
        }
        resources.install(self._builds, responses)
        self.apis: dict[str, Any] = {region: codebuild_api(builds) for region, builds in self._builds.items()}

    def close(self) -> None:
        """Ends all builds."""
        for builds in self._builds.values():
            builds.close()
