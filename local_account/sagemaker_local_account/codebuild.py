"""CodeBuild's projects and their builds, as its API has them. What a build of this account cannot do is refused by name."""

from __future__ import annotations

import builtins
import copy
import threading
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from .build import Build, Surroundings
from .service_errors import ServiceError, check

_DEFAULTS: dict[str, Any] = {
    "cache": {"type": "NO_CACHE"},
    "queuedTimeoutInMinutes": 480,
    "timeoutInMinutes": 60,
}
# Which part of a project each member of StartBuild stands in for.
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
    """The CodeBuild of one region of an account."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._lock = threading.Lock()
        self._projects: dict[str, dict[str, Any]] = {}
        self._builds: dict[str, Build] = {}

    def starter(self, function: Any) -> Any:
        """A client of CodeBuild's that acts as a Lambda function's role."""
        keys = self._around.sessions.of(function.role, "lambda.amazonaws.com", function.function_arn)
        return self._around.client("codebuild", keys)

    def create_project(self, request: dict[str, Any]) -> dict[str, Any]:
        _check("CreateProject", request)
        name = request["name"]
        place = self._around.place
        key = f"arn:aws:kms:{place.region}:{place.account}:alias/aws/s3"
        own = {"arn": self._arn(name), "created": _now(), "lastModified": _now()}
        project = {**_DEFAULTS, "encryptionKey": key, **request, **own}
        with self._lock:
            if name in self._projects:
                raise ServiceError("ResourceAlreadyExistsException", f"Project already exists: {self._arn(name)}")
            self._projects[name] = project
        return {"project": project}

    def update_project(self, request: dict[str, Any]) -> dict[str, Any]:
        _check("UpdateProject", request)
        project = self._project(request["name"])
        with self._lock:
            project.update({**request, "lastModified": _now()})
        return {"project": project}

    def delete_project(self, request: dict[str, Any]) -> dict[str, Any]:
        _check("DeleteProject", request)
        with self._lock:
            self._projects.pop(request["name"], None)
        return {}

    def describe_projects(self, request: dict[str, Any]) -> dict[str, Any]:
        _check("BatchGetProjects", request)
        names = {name: name.rpartition("project/")[2] for name in request["names"]}
        with self._lock:
            found = [self._projects[name] for name in names.values() if name in self._projects]
            missing = [given for given, name in names.items() if name not in self._projects]
        return {"projects": found, "projectsNotFound": missing}

    def list_projects(self, request: dict[str, Any]) -> dict[str, Any]:
        _check("ListProjects", request)
        with self._lock:
            return {"projects": sorted(self._projects, reverse=request.get("sortOrder") == "DESCENDING")}

    def start_build(self, request: dict[str, Any]) -> dict[str, Any]:
        _check("StartBuild", request)
        project = _with_overrides(self._project(request["projectName"]), request)
        _refuse_what_is_not_done(project)
        with self._lock:
            number = 1 + sum(build.project["name"] == project["name"] for build in self._builds.values())
            build = Build(project, str(uuid.uuid4()), number, self._around)
            self._builds[build.id] = build
        build.start()
        return {"build": build.description()}

    def stop_build(self, request: dict[str, Any]) -> dict[str, Any]:
        _check("StopBuild", request)
        build = self.build(request["id"])
        build.stop()
        return {"build": build.description()}

    def describe_builds(self, request: dict[str, Any]) -> dict[str, Any]:
        _check("BatchGetBuilds", request)
        with self._lock:
            found = [self._builds[id] for id in request["ids"] if id in self._builds]
            missing = [id for id in request["ids"] if id not in self._builds]
        return {"builds": [build.description() for build in found], "buildsNotFound": missing}

    def list_builds(self, request: dict[str, Any]) -> dict[str, Any]:
        """The ids of all builds, or of those of a project, the last first."""
        name = request.get("projectName")
        if name is not None:
            self._project(name)
        with self._lock:
            ids = [build.id for build in self._builds.values() if name in (None, build.project["name"])]
        return {"ids": ids if request.get("sortOrder") == "ASCENDING" else ids[::-1]}

    def build(self, id: str) -> Build:
        with self._lock:
            build = self._builds.get(id)
        if build is None:
            raise ServiceError("ResourceNotFoundException", f"Build {id} does not exist")
        return build

    def close(self) -> None:
        """End every build; afterwards no process of them is left."""
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
        place = self._around.place
        return f"arn:aws:codebuild:{place.region}:{place.account}:project/{name}"


def _with_overrides(project: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """A project as one of its builds has it."""
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
            raise _invalid(f"the local account does not have {name} of StartBuild")
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
            f"for which this machine stands in, got {environment['image']!r}"
        )
    for name in ("secondarySources", "secondaryArtifacts", "fileSystemLocations", "buildBatchConfig"):
        if project.get(name):
            raise _invalid(f"the local account does not have {name} of a project")
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
