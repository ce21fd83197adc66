"""CodeBuild's resources in CloudFormation: projects, and deploy-time-build's image, which is built during the deployment."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from moto.awslambda.models import lambda_backends
from moto.cloudformation.exceptions import ValidationError
from typing_extensions import override

from sagemaker_local_account.aws.cloudformation.custom_resource_responses import Responses
from sagemaker_local_account.aws.codebuild.projects import CodeBuild
from sagemaker_local_account.aws.resource_base import Properties, ResourceBase
from sagemaker_local_account.aws.resource_types import ResourceType, ServiceResources, real

_SPELLED_OTHERWISE = {"BuildSpec": "buildspec"}
_account: tuple[Mapping[str, CodeBuild], Responses]


def install(builds: Mapping[str, CodeBuild], responses: Responses) -> None:
    """Sets CodeBuild of each region, and the endpoint for responses of custom resources."""
    global _account
    _account = (builds, responses)


class Project(ResourceBase):
    """`AWS::CodeBuild::Project`."""

    @override
    def attributes(self) -> dict[str, str]:
        [project] = self._builds.describe_projects({"names": [self.physical_resource_id]})["projects"]
        return {"Arn": project["arn"], "Id": self.physical_resource_id}

    @staticmethod
    @override
    def cloudformation_name_type() -> str:
        return "Name"

    @override
    def create(self) -> None:
        self._builds.create_project(self._request(self.properties))

    @override
    def update(self, former: Properties) -> None:
        if self.properties.get("Name") != former.get("Name"):
            raise NotImplementedError
        builds = self._builds
        request = self._request(self.properties)
        # Removed properties get their defaults.
        builds.delete_project({"name": request["name"]})
        builds.create_project(request)

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        self._builds.delete_project({"name": self.physical_resource_id})

    @property
    def _builds(self) -> CodeBuild:
        return _account[0][self.region_name]

    def _request(self, properties: Properties) -> dict[str, Any]:
        return {**_as_in_the_api(properties), "name": self.physical_resource_id}


class ContainerImageBuild(ResourceBase):
    """deploy-time-build's `ContainerImageBuild`: on AWS its Lambda function starts the build of the image.

    Source: deploy-time-build 0.4.10, `lambda/trigger-codebuild`: the build's variables, and that the build sends the response to
    CloudFormation.
    """

    @override
    def attributes(self) -> dict[str, str]:
        return {"ImageTag": self.physical_resource_id}

    @override
    def create(self) -> None:
        builds, responses = _account[0][self.region_name], _account[1]
        given = self.properties
        uri = given["repositoryUri"]
        tag = given.get("imageTag") or f"{given.get('tagPrefix') or ''}{secrets.token_hex(16)}"
        name, url = responses.url(self.region_name)
        variables = {
            "responseURL": url,
            "stackId": "",
            "requestId": name,
            "logicalResourceId": self.physical_resource_id,
            "repositoryUri": uri,
            "repositoryAuthUri": uri.split("/")[0],
            "repositoryRegion": uri.split(".")[3],
            "buildCommand": given["buildCommand"],
            "imageTag": tag,
            "projectName": given["codeBuildProjectName"],
            "sourceS3Url": given["sourceS3Url"],
        }
        function = lambda_backends[self.account_id][self.region_name].get_function(given["ServiceToken"])
        started = builds.starter(function).start_build(
            projectName=given["codeBuildProjectName"],
            environmentVariablesOverride=[{"name": key, "value": value} for key, value in variables.items()],
        )
        build = builds.build(started["build"]["id"])
        build.ended.wait()
        response = responses.take(name)
        if build.status != "SUCCEEDED" or response.get("Status") != "SUCCESS":
            reason = build.reason() or response.get("Reason") or f"it is {build.status}, and put no response"
            raise ValidationError(message=f"build {build.id} failed: {reason}")
        self.physical_resource_id = response["PhysicalResourceId"]


def _as_in_the_api(value: Any) -> Any:
    """CloudFormation's PascalCase in the API's camelCase."""
    if isinstance(value, dict):
        return {
            _SPELLED_OTHERWISE.get(name, name[:1].lower() + name[1:]): _as_in_the_api(item)
            for name, item in value.items()
        }
    return [_as_in_the_api(item) for item in value] if isinstance(value, list) else value


RESOURCES = ServiceResources(
    types={
        "AWS::CodeBuild::Project": real(
            "its builds run on this machine, with the stand-in docker; the source must be S3 or none, the image one of "
            "CodeBuild's",
            "Artifacts Cache Description EncryptionKey Environment LogsConfig Name ServiceRole Source SourceVersion Tags "
            "TimeoutInMinutes Visibility",
            made_by=Project,
        ),
        "Custom::CDKContainerImageBuild": ResourceType(
            "emulated", "runs the build of deploy-time-build's image", made_by=ContainerImageBuild
        ),
    },
)
