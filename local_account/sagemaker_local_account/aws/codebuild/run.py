"""A build of a CodeBuild project: its commands run in a separate host, like those of a training job."""

from __future__ import annotations

import io
import json
import logging
import shlex
import shutil
import sys
import threading
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from sagemaker_local_account.aws.codebuild import agent
from sagemaker_local_account.aws.codebuild.buildspec import Buildspec, BuildspecError, is_inline, parse
from sagemaker_local_account.aws.codebuild.docker_daemon import DockerDaemon
from sagemaker_local_account.aws.codebuild.phases import BuildLog, Phases
from sagemaker_local_account.aws.sts.sessions import RoleSessions
from sagemaker_local_account.core.clients import OF_BUILDS, Clients
from sagemaker_local_account.core.location import Location
from sagemaker_local_account.runtime.pod import HostError, Pod
from sagemaker_local_account.runtime.spec import ContainerSpec, PodSpec

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_HOST = "build"
_OF_THE_PROJECT = ("source", "artifacts", "cache", "environment", "serviceRole", "timeoutInMinutes", "vpcConfig")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BuildContext:
    """What a build uses of its account.

    Args:
        location: the account and region.
        folder: the folder for builds.
        endpoint_url: the account's endpoint.
        root_keys: the AWS_* variables of the root.
        clients: the account's clients.
        sessions: the credentials of roles.
        environment: returns the environment of the account's clients.
    """

    location: Location
    folder: Path
    endpoint_url: str
    root_keys: Mapping[str, str]
    clients: Clients
    sessions: RoleSessions
    environment: Callable[[], Mapping[str, str]]

    def keys(self, project: Mapping[str, Any]) -> Mapping[str, str]:
        """Returns the AWS_* variables of the project's role.

        Raises:
            LookupError: CodeBuild cannot assume the role.
        """
        return self.sessions.credentials(project["serviceRole"], "codebuild.amazonaws.com", project["arn"])

    def client(self, service: str, keys: Mapping[str, str]) -> Any:
        """Returns a client of a service with the given credentials."""
        return self.clients.client(service, self.location.region, keys, OF_BUILDS)


class BuildFailed(Exception):
    """A phase of the build failed: its status code and message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Build:
    """A build, which runs on a separate thread.

    Args:
        project: its project, with the overrides of StartBuild.
        uuid: the build's.
        number: buildNumber.
        context: the account's services.
    """

    def __init__(self, project: Mapping[str, Any], uuid: str, number: int, context: BuildContext) -> None:
        location = context.location
        self.project = project
        self.id = f"{project['name']}:{uuid}"
        self.arn = f"arn:aws:codebuild:{location.region}:{location.account}:build/{self.id}"
        self.number = number
        self.status = "IN_PROGRESS"
        self.ended = threading.Event()
        self._context = context
        self._folder = context.folder / uuid
        # Mounted at the same path in the host, so that paths are valid for the docker daemon outside.
        self._home = self._folder / "home"
        self._own = self._home / ".codebuild"
        self._source = self._home / "src"
        self._started = datetime.now(UTC)
        self._end: dict[str, datetime] = {}
        self._phases = Phases(self._own / agent.PHASES)
        self._build_log = BuildLog(project, uuid, location)
        self._stop_requested = threading.Event()
        self._hosts: Pod | None = None
        self._thread = threading.Thread(target=self._run, name=self.id, daemon=True)

    def start(self) -> None:
        """Starts the build's thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stops the build; returns when its processes have ended."""
        self._stop_requested.set()
        hosts = self._hosts
        if hosts is not None:
            hosts.kill_host(_HOST)
        self._thread.join()

    def reason(self) -> str:
        """Returns the message of the failed phase, or ""."""
        return self._phases.reason()

    def description(self) -> dict[str, Any]:
        """Returns the build in BatchGetBuilds' response."""
        # Read before the phases: a build that has ended has all of them.
        ended = self.ended.is_set()
        phases = self._phases.described()
        return {
            **{name: value for name, value in self.project.items() if name in _OF_THE_PROJECT},
            "id": self.id,
            "arn": self.arn,
            "buildNumber": self.number,
            "projectName": self.project["name"],
            "startTime": self._started,
            **self._end,
            "currentPhase": phases[-1]["phaseType"],
            "buildStatus": self.status,
            "buildComplete": ended,
            "phases": phases,
            "logs": self._build_log.described(),
            "initiator": "local-account",
        }

    def _run(self) -> None:
        status = "FAILED"
        try:
            status = self._run_to_end()
        except BuildFailed as error:
            self._build_log.line(f"{error.code}: {error}")
            self._phases.close(error.code, str(error))
        except Exception as error:
            _log.exception("%s failed", self.id)
            status = "FAULT"
            self._phases.close("INTERNAL_ERROR", f"{type(error).__name__}: {error}")
        self._phases.finish(status)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._end = {"endTime": datetime.now(UTC)}
        self.status = status
        self.ended.set()

    def _run_to_end(self) -> str:
        """Runs the build; returns its final status."""
        self._phases.enter("PROVISIONING")
        try:
            environment = self._environment()
        except LookupError as error:
            raise BuildFailed("CLIENT_ERROR", f"CodeBuild is not authorized to assume service role: {error}") from None
        self._own.mkdir(parents=True)
        self._source.mkdir()
        self._phases.enter("DOWNLOAD_SOURCE")
        self._download()
        try:
            spec = parse(self._buildspec())
        except BuildspecError as error:
            raise BuildFailed("YAML_FILE_ERROR", str(error)) from None
        self._phases.close()
        host = self._host(spec, {**spec.variables, **environment})
        if not self.project["environment"].get("privilegedMode"):
            return self._run_host(host)
        outside = {**self._context.environment(), **self._region(), **self._context.keys(self.project)}
        daemon = DockerDaemon(self._own, self._home, outside)
        try:
            return self._run_host(host)
        finally:
            daemon.close()

    def _download(self) -> None:
        source = self.project["source"]
        if source["type"] == "NO_SOURCE":
            return
        bucket, _, key = source["location"].removeprefix("arn:aws:s3:::").partition("/")
        version = {"VersionId": self.project["sourceVersion"]} if self.project.get("sourceVersion") else {}
        try:
            s3 = self._context.client("s3", self._context.keys(self.project))
            archive = s3.get_object(Bucket=bucket, Key=key, **version)["Body"].read()
            with zipfile.ZipFile(io.BytesIO(archive)) as zipped:
                zipped.extractall(self._source)
        except (BotoCoreError, ClientError, zipfile.BadZipFile) as error:
            raise BuildFailed("CLIENT_ERROR", f"cannot download source s3://{bucket}/{key}: {error}") from None

    def _buildspec(self) -> str:
        given = self.project["source"].get("buildspec") or "buildspec.yml"
        if is_inline(given):
            return str(given)
        file = self._source / given
        if not file.is_file() or not file.resolve().is_relative_to(self._source.resolve()):
            raise BuildspecError(f"the source has no buildspec file {given!r}")
        return file.read_text()

    def _host(self, spec: Buildspec, environment: Mapping[str, str]) -> ContainerSpec:
        """The specification of the build's host, after its agent, plan and `docker` command are written."""
        shutil.copy(agent.__file__, self._own / "agent.py")
        phases = [{"name": p.name, "commands": p.commands, "finally": p.finally_} for p in spec.phases]
        plan = {"shell": spec.shell, "source": str(self._source), "phases": phases}
        (self._own / agent.PLAN).write_text(json.dumps(plan))
        program = (f"{sys.prefix}/bin/python3", "-I", "-S", str(self._own / "agent.py"), str(self._own))
        docker = self._own / "bin" / "docker"
        docker.parent.mkdir()
        docker.write_text(f'#!/bin/sh\nexec {shlex.join(program)} docker "$@"\n')
        docker.chmod(0o755)
        (self._folder / "image").mkdir()
        return ContainerSpec.alone(
            name=_HOST,
            instance_type=self.project["environment"]["computeType"],
            folder=self._folder,
            root=self._folder / "image",
            environment=environment,
            command=(*program, "drive"),
            working_directory=str(self._source),
            home=str(self._home),
        )

    def _run_host(self, host: ContainerSpec) -> str:
        plan = PodSpec(self.id, (host,), int(self._context.endpoint_url.rpartition(":")[2]), self._folder)
        self._hosts = Pod(plan, on_line=lambda _, line: self._build_log.line(line))
        try:
            self._hosts.start()
            if self._stop_requested.is_set():
                self._hosts.kill_host(_HOST)
            codes = self._hosts.wait(self.project["timeoutInMinutes"] * 60)
        except HostError as error:
            raise BuildFailed("INTERNAL_ERROR", str(error)) from None
        finally:
            self._hosts.close()
        if self._stop_requested.is_set():
            return "STOPPED"
        if codes is None:
            return "TIMED_OUT"
        return "SUCCEEDED" if codes[_HOST] == 0 else "FAILED"

    def _region(self) -> dict[str, str]:
        region = self._context.location.region
        return {"AWS_DEFAULT_REGION": region, "AWS_REGION": region}

    def _environment(self) -> dict[str, str]:
        """The variables of the build's commands ("Environment variables in build environments", CodeBuild's user guide)."""
        environment = self.project["environment"]
        return {
            **{variable["name"]: variable["value"] for variable in environment.get("environmentVariables", [])},
            **self._region(),
            "AWS_ENDPOINT_URL": self._context.endpoint_url,
            "AWS_PAGER": "",
            **self._context.keys(self.project),
            "CODEBUILD_BUILD_ARN": self.arn,
            "CODEBUILD_BUILD_ID": self.id,
            "CODEBUILD_BUILD_IMAGE": environment["image"],
            "CODEBUILD_BUILD_NUMBER": str(self.number),
            "CODEBUILD_INITIATOR": "local-account",
            "CODEBUILD_LOG_PATH": self._build_log.stream,
            "CODEBUILD_SRC_DIR": str(self._source),
            "CODEBUILD_START_TIME": str(round(self._started.timestamp() * 1000)),
            "HOME": str(self._home),
            "LANG": "C.UTF-8",
            "PATH": f"{self._own}/bin:{sys.prefix}/bin:{_PATH}",
        }
