"""One build of a CodeBuild project, from its source to its end: its commands run in a host of their own, as a job's do."""

from __future__ import annotations

import io
import json
import logging
import shutil
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from moto.logs.models import logs_backends

from . import build_host
from .build_docker import DockerDaemon
from .buildspec import Buildspec, BuildspecError, is_inline, parse
from .hosts import HostError, RunningJob
from .plan import HostPlan, JobPlan
from .state import ACCOUNT_ID, REGION

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LONGEST_LINE = 256 * 1024 - 26
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Surroundings:
    """What a build needs of its account."""

    folder: Path
    endpoint_url: str
    credentials: Callable[[str], Mapping[str, str]]
    environment: Callable[[], Mapping[str, str]]

    def client(self, service: str, role_arn: str = "") -> Any:
        """A client of a service that acts as a role, of the account itself without one."""
        given = self.credentials(role_arn)
        session = boto3.Session(
            given["AWS_ACCESS_KEY_ID"], given["AWS_SECRET_ACCESS_KEY"], given.get("AWS_SESSION_TOKEN"), REGION
        )
        config = Config(signature_version="s3v4", s3={"addressing_style": "path"}) if service == "s3" else None
        return session.client(service, endpoint_url=self.endpoint_url, config=config)


class BuildFailed(Exception):
    """A build that could not be run: the phase's status code, and what it says."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Build:
    """A build that runs on a thread of its own. ``description()`` is what BatchGetBuilds answers."""

    def __init__(self, project: Mapping[str, Any], uuid: str, number: int, surroundings: Surroundings) -> None:
        self.project = project
        self.id = f"{project['name']}:{uuid}"
        self.arn = f"arn:aws:codebuild:{REGION}:{ACCOUNT_ID}:build/{self.id}"
        self.number = number
        self.status = "IN_PROGRESS"
        self.ended = threading.Event()
        self._uuid = uuid
        self._around = surroundings
        self._folder = surroundings.folder / uuid
        self._home = self._folder / "home"
        self._own = self._home / ".codebuild"
        self._source = self._home / "src"
        self._started = datetime.now(UTC)
        self._end: datetime | None = None
        self._phases = [_phase("SUBMITTED", self._started, self._started), _phase("QUEUED", self._started)]
        self._asked_to_stop = threading.Event()
        self._hosts: RunningJob | None = None
        self._lock = threading.RLock()
        config = project.get("logsConfig", {}).get("cloudWatchLogs", {})
        self._group = config.get("groupName", f"/aws/codebuild/{project['name']}")
        self._stream = "/".join([*([config["streamName"]] if "streamName" in config else []), uuid])
        self._logged = config.get("status", "ENABLED") == "ENABLED"
        self._thread = threading.Thread(target=self._run, name=self.id, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the build and all its processes; returns once they are gone."""
        self._asked_to_stop.set()
        hosts = self._hosts
        if hosts is not None:
            hosts.kill_host("build")
        self._thread.join()

    def description(self) -> dict[str, Any]:
        with self._lock:
            phases = [*self._phases, *self._phases_of_the_host()]
            described = {
                **{name: value for name, value in self.project.items() if name in _OF_THE_PROJECT},
                "id": self.id,
                "arn": self.arn,
                "buildNumber": self.number,
                "projectName": self.project["name"],
                "startTime": self._started,
                "currentPhase": phases[-1]["phaseType"],
                "buildStatus": self.status,
                "buildComplete": self.ended.is_set(),
                "phases": phases,
                "initiator": "local-account",
            }
            if self._end is not None:
                described["endTime"] = self._end
            if self._logged:
                stream = f"arn:aws:logs:{REGION}:{ACCOUNT_ID}:log-group:{self._group}:log-stream:{self._stream}"
                described["logs"] = {
                    "groupName": self._group,
                    "streamName": self._stream,
                    "cloudWatchLogsArn": stream,
                }
            return described

    def reason(self) -> str:
        """What the phase that failed says of it; "" where none did."""
        messages = [context["message"] for phase in self._phases for context in phase.get("contexts", [])]
        return next((message for message in messages if message), "")

    def _run(self) -> None:
        status = "FAILED"
        try:
            status = self._live()
        except BuildFailed as error:
            self._say(f"{error.code}: {error}")
            self._close_phase(error.code, str(error))
        except Exception as error:
            _log.exception("%s failed", self.id)
            status = "FAULT"
            self._close_phase("INTERNAL_ERROR", f"{type(error).__name__}: {error}")
        with self._lock:
            self._close_phase()
            self._phases += self._phases_of_the_host()
            now = datetime.now(UTC)
            self._phases += [_phase("FINALIZING", now, now), {"phaseType": "COMPLETED", "startTime": now}]
            shutil.rmtree(self._folder, ignore_errors=True)
            self.status, self._end = status, now
            self.ended.set()

    def _live(self) -> str:
        self._enter("PROVISIONING")
        role = self.project["serviceRole"]
        try:
            self._around.credentials(role)
        except LookupError as error:
            raise BuildFailed("CLIENT_ERROR", f"CodeBuild is not authorized to assume service role: {error}") from None
        self._own.mkdir(parents=True)
        self._source.mkdir()
        self._enter("DOWNLOAD_SOURCE")
        self._download()
        try:
            spec = parse(self._buildspec())
        except BuildspecError as error:
            raise BuildFailed("YAML_FILE_ERROR", str(error)) from None
        self._close_phase()
        daemon = None
        if self.project["environment"].get("privilegedMode"):
            daemon = DockerDaemon(self._own, self._home, self._environment_outside)
        try:
            return self._run_host(spec)
        finally:
            if daemon is not None:
                daemon.close()

    def _download(self) -> None:
        source = self.project["source"]
        if source["type"] == "NO_SOURCE":
            return
        bucket, _, key = source["location"].removeprefix("arn:aws:s3:::").partition("/")
        s3 = self._around.client("s3", self.project["serviceRole"])
        version = {"VersionId": self.project["sourceVersion"]} if self.project.get("sourceVersion") else {}
        try:
            archive = s3.get_object(Bucket=bucket, Key=key, **version)["Body"].read()
            with zipfile.ZipFile(io.BytesIO(archive)) as zipped:
                zipped.extractall(self._source)
        except (BotoCoreError, ClientError, zipfile.BadZipFile) as error:
            raise BuildFailed("CLIENT_ERROR", f"source s3://{bucket}/{key} cannot be had: {error}") from None

    def _buildspec(self) -> str:
        given = self.project["source"].get("buildspec") or "buildspec.yml"
        if is_inline(given):
            return str(given)
        file = self._source / given
        if not file.is_file() or not file.resolve().is_relative_to(self._source.resolve()):
            raise BuildspecError(f"the source has no buildspec file {given!r}")
        return file.read_text()

    def _run_host(self, spec: Buildspec) -> str:
        shutil.copy(build_host.__file__, self._own / "build_host.py")
        phases = [{"name": p.name, "commands": p.commands, "finally": p.finally_} for p in spec.phases]
        plan = {"shell": spec.shell, "source": str(self._source), "phases": phases}
        (self._own / build_host.PLAN).write_text(json.dumps(plan))
        driver = (f"{sys.prefix}/bin/python3", "-I", "-S", str(self._own / "build_host.py"), str(self._own))
        docker = self._own / "bin" / "docker"
        docker.parent.mkdir()
        docker.write_text(f'#!/bin/sh\nexec {" ".join(driver)} docker "$@"\n')
        docker.chmod(0o755)
        (self._folder / "image").mkdir()
        host = HostPlan(
            name="build",
            group=None,
            instance_type=self.project["environment"]["computeType"],
            instance_count_of_group=1,
            address="10.0.0.1",
            accelerators=0,
            folder=self._folder,
            root=self._folder / "image",
            python=Path(sys.prefix),
            environment=self._environment(spec),
            command=(*driver, "drive"),
            working_directory=str(self._source),
        )
        job = JobPlan(self.id, (host,), int(self._around.endpoint_url.rpartition(":")[2]), self._folder)
        self._hosts = RunningJob(job, on_line=lambda _, line: self._say(line))
        try:
            self._hosts.start()
            if self._asked_to_stop.is_set():
                self._hosts.kill_host("build")
            codes = self._hosts.wait(self.project.get("timeoutInMinutes", 60) * 60)
        except HostError as error:
            raise BuildFailed("INTERNAL_ERROR", str(error)) from None
        finally:
            self._hosts.close()
        if self._asked_to_stop.is_set():
            return "STOPPED"
        if codes is None:
            return "TIMED_OUT"
        return "SUCCEEDED" if codes["build"] == 0 else "FAILED"

    def _environment(self, spec: Buildspec) -> dict[str, str]:
        """What the build's commands find: Source: "Environment variables in build environments", CodeBuild's user guide."""
        given = self.project["environment"].get("environmentVariables", [])
        return {
            **spec.variables,
            **{variable["name"]: variable["value"] for variable in given},
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self._around.endpoint_url,
            "AWS_PAGER": "",
            **self._around.credentials(self.project["serviceRole"]),
            "CODEBUILD_BUILD_ARN": self.arn,
            "CODEBUILD_BUILD_ID": self.id,
            "CODEBUILD_BUILD_IMAGE": self.project["environment"]["image"],
            "CODEBUILD_BUILD_NUMBER": str(self.number),
            "CODEBUILD_INITIATOR": "local-account",
            "CODEBUILD_LOG_PATH": self._stream,
            "CODEBUILD_SRC_DIR": str(self._source),
            "CODEBUILD_START_TIME": str(round(self._started.timestamp() * 1000)),
            # The host sees this folder under the same path as the docker daemon outside, so that both mean the same by one.
            "HOME": str(self._home),
            "LANG": "C.UTF-8",
            "PATH": f"{self._own}/bin:{sys.prefix}/bin:{_PATH}",
        }

    def _environment_outside(self) -> dict[str, str]:
        return {**self._around.environment(), **self._around.credentials(self.project["serviceRole"])}

    def _enter(self, name: str) -> None:
        with self._lock:
            self._close_phase()
            self._phases.append(_phase(name, datetime.now(UTC)))

    def _close_phase(self, code: str = "", message: str = "") -> None:
        with self._lock:
            if "endTime" not in self._phases[-1]:
                last = self._phases.pop()
                self._phases.append(_phase(last["phaseType"], last["startTime"], datetime.now(UTC), message, code))

    def _phases_of_the_host(self) -> list[dict[str, Any]]:
        """What the commands' phases say so far, while their folder is there."""
        file = self._own / build_host.PHASES
        found: dict[str, dict[str, Any]] = {}
        for line in file.read_text().splitlines() if file.is_file() else ():
            noted = json.loads(line)
            times = {name: datetime.fromtimestamp(noted[name], UTC) for name in ("start", "end") if name in noted}
            name = noted["phase"]
            if "end" not in times:
                found[name] = _phase(name, times["start"])
            else:
                found[name] = _phase(name, found[name]["startTime"], times["end"], noted["message"])
        return [*found.values()]

    def _say(self, line: str) -> None:
        if not self._logged:
            return
        backend = logs_backends[ACCOUNT_ID][REGION]
        backend.ensure_log_group(self._group)
        backend.ensure_log_stream(self._group, self._stream)
        event = {"timestamp": round(time.time() * 1000), "message": line[:_LONGEST_LINE] or " "}
        backend.put_log_events(self._group, self._stream, [event])


_OF_THE_PROJECT = ("source", "artifacts", "cache", "environment", "serviceRole", "timeoutInMinutes", "vpcConfig")


def _phase(
    name: str,
    start: datetime,
    end: datetime | None = None,
    message: str = "",
    code: str = "COMMAND_EXECUTION_ERROR",
) -> dict[str, Any]:
    if end is None:
        return {"phaseType": name, "startTime": start}
    return {
        "phaseType": name,
        "phaseStatus": "FAILED" if message else "SUCCEEDED",
        "startTime": start,
        "endTime": end,
        "durationInSeconds": round((end - start).total_seconds()),
        "contexts": [{"statusCode": code if message else "", "message": message}],
    }
