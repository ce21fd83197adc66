"""CodeBuild's projects and builds; unsupported properties are rejected by name."""

from __future__ import annotations

import builtins
import copy
import threading
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sagemaker_local_account.aws.codebuild.run import Build, BuildContext
from sagemaker_local_account.core.service_errors import ServiceError, check

_DEFAULTS: dict[str, Any] = {
    "cache": {"type": "NO_CACHE"},
    "queuedTimeoutInMinutes": 480,
    "timeoutInMinutes": 60,
}
# The property of a project that each member of StartBuild overrides.
_OVERRIDES = {
    "artifactsOverride": ("artifacts",),
    "buildspecOverride": ("source", "buildspec"),
    "cacheOverride": ("cache",),
    "computeTypeOverride": ("environment", "computeType"),
    "environmentTypeOverride": ("environment", "type"),
    "imageOverride": ("environment", "image"),
    "logsConfigOverride": ("logsConfig",),
    "privilegedModeOverride": ("environment", "privilegedMode"),
    "serviceRoleOverride": ("serviceRole",),
    "sourceLocationOverride": ("source", "location"),
    "sourceTypeOverride": ("source", "type"),
    "sourceVersion": ("sourceVersion",),
    "timeoutInMinutesOverride": ("timeoutInMinutes",),
}


class CodeBuild:
    """CodeBuild's projects and builds in one region."""

    def __init__(self, context: BuildContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._projects: dict[str, dict[str, Any]] = {}
        self._builds: dict[str, Build] = {}

    def starter(self, function: Any) -> Any:
        """Returns a CodeBuild client with the role of a Lambda function.

        Raises:
            LookupError: the role cannot be assumed.
        """
        keys = self._context.sessions.credentials(function.role, "lambda.amazonaws.com", function.function_arn)
        return self._context.client("codebuild", keys)

    def create_project(self, request: dict[str, Any]) -> dict[str, Any]:
        """CreateProject."""
        _check("CreateProject", request)
        name = request["name"]
        location = self._context.location
        key = f"arn:aws:kms:{location.region}:{location.account}:alias/aws/s3"
        own = {"arn": self._arn(name), "created": _now(), "lastModified": _now()}
        project = {**_DEFAULTS, "encryptionKey": key, **request, **own}
        with self._lock:
            if name in self._projects:
                raise ServiceError("ResourceAlreadyExistsException", f"Project already exists: {self._arn(name)}")
            self._projects[name] = project
        return {"project": project}

    def update_project(self, request: dict[str, Any]) -> dict[str, Any]:
        """UpdateProject."""
        _check("UpdateProject", request)
        project = self._project(request["name"])
        with self._lock:
            project.update({**request, "lastModified": _now()})
        return {"project": project}

    def delete_project(self, request: dict[str, Any]) -> dict[str, Any]:
        """DeleteProject."""
        _check("DeleteProject", request)
        with self._lock:
            self._projects.pop(request["name"], None)
        return {}

    def describe_projects(self, request: dict[str, Any]) -> dict[str, Any]:
        """BatchGetProjects."""
        _check("BatchGetProjects", request)
        names = {name: name.rpartition("project/")[2] for name in request["names"]}
        with self._lock:
            found = [self._projects[name] for name in names.values() if name in self._projects]
            missing = [given for given, name in names.items() if name not in self._projects]
        return {"projects": found, "projectsNotFound": missing}

    def list_projects(self, request: dict[str, Any]) -> dict[str, Any]:
        """ListProjects."""
        _check("ListProjects", request)
        with self._lock:
            return {"projects": sorted(self._projects, reverse=request.get("sortOrder") == "DESCENDING")}

    def start_build(self, request: dict[str, Any]) -> dict[str, Any]:
        """StartBuild."""
        _check("StartBuild", request)
        project = _with_overrides(self._project(request["projectName"]), request)
        _refuse_what_is_not_done(project)
        with self._lock:
            number = 1 + sum(build.project["name"] == project["name"] for build in self._builds.values())
            build = Build(project, str(uuid.uuid4()), number, self._context)
            self._builds[build.id] = build
        build.start()
        return {"build": build.description()}

    def stop_build(self, request: dict[str, Any]) -> dict[str, Any]:
        """StopBuild."""
        _check("StopBuild", request)
        build = self.build(request["id"])
        build.stop()
        return {"build": build.description()}

    def describe_builds(self, request: dict[str, Any]) -> dict[str, Any]:
        """BatchGetBuilds."""
        _check("BatchGetBuilds", request)
        with self._lock:
            found = [self._builds[id] for id in request["ids"] if id in self._builds]
            missing = [id for id in request["ids"] if id not in self._builds]
        return {"builds": [build.description() for build in found], "buildsNotFound": missing}

    def list_builds(self, request: dict[str, Any]) -> dict[str, Any]:
        """ListBuilds, and ListBuildsForProject with a project's name."""
        name = request.get("projectName")
        if name is not None:
            self._project(name)
        with self._lock:
            ids = [build.id for build in self._builds.values() if name in (None, build.project["name"])]
        return {"ids": ids if request.get("sortOrder") == "ASCENDING" else ids[::-1]}

    def build(self, id: str) -> Build:
        """Returns a build; raises ServiceError where there is none with the id."""
        with self._lock:
            build = self._builds.get(id)
        if build is None:
            raise ServiceError("ResourceNotFoundException", f"Build {id} does not exist")
        return build

    def close(self) -> None:
        """Stops all builds; returns when their processes have ended."""
        with self._lock:
            running: builtins.list[Build] = [*self._builds.values()]
        for build in running:
            build.stop()

    def _project(self, name: str) -> dict[str, Any]:
        with self._lock:
            project = self._projects.get(name.rpartition("project/")[2])
        if project is None:
            raise ServiceError("ResourceNotFoundException", f"Project cannot be found: {self._arn(name)}")
        return project

    def _arn(self, name: str) -> str:
        location = self._context.location
        return f"arn:aws:codebuild:{location.region}:{location.account}:project/{name}"


def _with_overrides(project: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """A project with the overrides of StartBuild."""
    its: dict[str, Any] = copy.deepcopy(dict(project))
    for name, value in request.items():
        if name == "environmentVariablesOverride":
            given = its["environment"].get("environmentVariables", [])
            named = {variable["name"]: variable for variable in [*given, *value]}
            its["environment"]["environmentVariables"] = [*named.values()]
        elif name in _OVERRIDES:
            *above, last = _OVERRIDES[name]
            (its[above[0]] if above else its)[last] = value
        elif name not in ("projectName", "idempotencyToken"):
            raise _invalid(f"the local account does not support {name} of StartBuild")
    return its


def _refuse_what_is_not_done(project: Mapping[str, Any]) -> None:
    environment = project["environment"]
    for what, value, known in (
        ("source.type", project["source"]["type"], ("S3", "NO_SOURCE")),
        ("artifacts.type", project["artifacts"]["type"], ("NO_ARTIFACTS",)),
        ("environment.type", environment["type"], ("LINUX_CONTAINER",)),
    ):
        if value not in known:
            raise _invalid(f"{what} must be {' or '.join(known)} in the local account, got {value!r}")
    if not environment["image"].startswith("aws/codebuild/"):
        raise _invalid(
            "environment.image must be one of CodeBuild's own in the local account, like 'aws/codebuild/standard:7.0', "
            f"which run on this machine, got {environment['image']!r}"
        )
    for name in ("secondarySources", "secondaryArtifacts", "fileSystemLocations", "buildBatchConfig"):
        if project.get(name):
            raise _invalid(f"the local account does not support {name} of a project")
    for variable in environment.get("environmentVariables", []):
        if variable.get("type", "PLAINTEXT") != "PLAINTEXT":
            raise _invalid(
                f"environment variable {variable['name']!r} must be PLAINTEXT in the local account, got {variable['type']!r}"
            )


def _check(operation: str, request: Mapping[str, Any]) -> None:
    try:
        check(operation, request, "codebuild")
    except ServiceError as error:
        raise _invalid(error.message) from None


def _invalid(message: str) -> ServiceError:
    return ServiceError("InvalidInputException", message)


def _now() -> datetime:
    return datetime.now(UTC)
