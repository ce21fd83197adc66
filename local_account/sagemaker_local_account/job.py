"""One training job, from its request to its end."""

from __future__ import annotations

import json
import logging
import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .devices import accelerators, write_stand_ins
from .hosts import HostError, RunningJob
from .images import ImageError, ImageStore
from .logs import JobLogs, Metrics
from .plan import CHECKPOINTS, HostPlan, JobPlan, config_files, plan_job
from .storage import (
    Checkpoints,
    StorageError,
    channel_objects,
    download,
    holds_files,
    share_of,
    space_for,
    upload_archive,
)

STOP_SECONDS = 120  # between SIGTERM and SIGKILL, as SageMaker gives
PEERS_SECONDS = 10  # what the other hosts get once one has failed
_LOOK_SECONDS = 0.2
_CHECKPOINT_SECONDS = 1.0
_LONGEST_REASON = 1024
_LONGEST_RUNTIME = 86_400  # StoppingCondition.MaxRuntimeInSeconds, unless the request says another

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Surroundings:
    """What a job needs of its account."""

    folder: Path
    endpoint_url: str
    region: str
    client: Callable[[str], Any]
    images: ImageStore
    credentials: Callable[[str], Mapping[str, str]]
    devices: Mapping[str, int]
    on_change: Callable[[dict[str, Any]], None]


class JobFailed(Exception):
    """The job came to nothing; the text is its FailureReason."""


class Job:
    """A job that runs on a thread of its own. ``description()`` is what DescribeTrainingJob answers."""

    def __init__(self, request: Mapping[str, Any], arn: str, surroundings: Surroundings) -> None:
        self.request = request
        self.name: str = request["TrainingJobName"]
        self.arn = arn
        self.tags: dict[str, str] = {tag["Key"]: tag["Value"] for tag in request.get("Tags", [])}
        self._around = surroundings
        self._folder = surroundings.folder / self.name
        self._metrics = Metrics(request["AlgorithmSpecification"].get("MetricDefinitions", []))
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._abort = threading.Event()
        self._times: dict[str, datetime] = {"CreationTime": _now()}
        self._ended: dict[str, Any] = {}
        self._transitions: list[dict[str, Any]] = []
        self.status = "InProgress"
        self._hosts: RunningJob | None = None
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def start(self) -> None:
        self._change("Starting", "Preparing the instances for training")
        self._thread.start()

    def stop(self) -> bool:
        """Ask the job to stop; False when it is over already, or about to be."""
        with self._lock:
            if self.status != "InProgress":
                return False
            self._change("Stopping", "Stopping the training job", status="Stopping")
        self._stop.set()
        return True

    def lose_host(self, host: str) -> None:
        """End a host with all that runs on it, as when its machine is lost. Nothing happens to a job that is not training."""
        hosts = self._hosts
        if hosts is not None:
            hosts.kill_host(host)

    def abort(self) -> None:
        """End the job at once, as its account ends."""
        self._abort.set()
        self._stop.set()
        self._thread.join()

    def description(self) -> dict[str, Any]:
        with self._lock:
            given = {key: value for key, value in self.request.items() if key != "Tags"}
            return {
                **given,
                "TrainingJobArn": self.arn,
                "TrainingJobStatus": self.status,
                "SecondaryStatus": self._transitions[-1]["Status"],
                "SecondaryStatusTransitions": [dict(transition) for transition in self._transitions],
                "FinalMetricDataList": self._metrics.last(),
                **self._times,
                **self._ended,
            }

    def summary(self) -> dict[str, Any]:
        """What ListTrainingJobs says of it."""
        described = self.description()
        names = ("TrainingJobName", "TrainingJobArn", "CreationTime", "TrainingEndTime", "LastModifiedTime")
        return {name: described[name] for name in (*names, "TrainingJobStatus", "SecondaryStatus") if name in described}

    def _run(self) -> None:
        try:
            end = self._live()
        except (JobFailed, HostError, ImageError, StorageError) as error:
            end = ("Failed", "Failed", "Training job failed", str(error))
        except Exception as error:
            _log.exception("%s failed", self.name)
            end = ("Failed", "Failed", "Training job failed", f"InternalServerError: {type(error).__name__}: {error}")
        shutil.rmtree(self._folder, ignore_errors=True)
        status, secondary, message, reason = end
        with self._lock:
            now = _now()
            if "TrainingStartTime" in self._times:
                seconds = round((now - self._times["TrainingStartTime"]).total_seconds())
                self._ended |= {"TrainingTimeInSeconds": seconds, "BillableTimeInSeconds": seconds}
            if reason:
                self._ended["FailureReason"] = reason[:_LONGEST_REASON]
            self._times["TrainingEndTime"] = now
        self._change(secondary, message, status=status)

    def _live(self) -> tuple[str, str, str, str]:
        """Run the job; returns its last status, secondary status, message and failure reason."""
        plan = self._plan()
        self._change("Downloading", "Downloading input data")
        with space_for("Data download"):
            self._download(plan)
        if self._stop.is_set():
            return ("Stopped", "Stopped", "Training job stopped", "")
        with space_for("Checkpoint download"):
            checkpoints = self._checkpoints(plan)
        self._times["TrainingStartTime"] = _now()
        self._change("Training", "Training image download completed. Training in progress.")
        reason, timed_out = self._train(plan, checkpoints)
        if self._abort.is_set():
            return ("Stopped", "Stopped", "The account ended", "")
        if reason is None:
            self._change("Uploading", "Uploading generated training model")
        with space_for("Artifact upload"):
            self._upload(plan, checkpoints)
        if timed_out:
            return ("Stopped", "MaxRuntimeExceeded", "Training job runtime exceeded MaxRuntimeInSeconds provided", "")
        if self._stop.is_set():
            return ("Stopped", "Stopped", "Training job stopped", "")
        if reason is not None:
            return ("Failed", "Failed", "Training job failed", reason)
        return ("Completed", "Completed", "Training job completed", "")

    def _plan(self) -> JobPlan:
        uri = self.request["AlgorithmSpecification"].get("TrainingImage")
        if uri is None:
            raise JobFailed(
                "ClientError: the local account runs jobs by their TrainingImage, and the request names none"
            )
        around = self._around
        return plan_job(
            self.request,
            image=around.images.resolve(uri),
            folder=self._folder,
            endpoint_port=int(around.endpoint_url.rpartition(":")[2]),
            environment={
                "AWS_DEFAULT_REGION": around.region,
                "AWS_ENDPOINT_URL": around.endpoint_url,
                "AWS_REGION": around.region,
                "TRAINING_JOB_ARN": self.arn,
                "TRAINING_JOB_NAME": self.name,
                **around.credentials(self.request["RoleArn"]),
            },
            devices=around.devices,
        )

    def _download(self, plan: JobPlan) -> None:
        for host in plan.hosts:
            ml = _ml(host)
            for folder in ("input/config", "input/data", "model", "output/data"):
                (ml / folder).mkdir(parents=True, exist_ok=True)
            for name, content in config_files(plan, host, self.request).items():
                (ml / "input" / "config" / name).write_text(json.dumps(content))
            write_stand_ins(host.folder / "devices", host.instance_type, host.accelerators)
        s3 = self._around.client("s3")
        for channel in self.request.get("InputDataConfig", []):
            source = channel["DataSource"]["S3DataSource"]
            objects = channel_objects(s3, channel)
            hosts = plan.hosts_of(source.get("InstanceGroupNames"))
            for number, host in enumerate(hosts):
                folder = _ml(host) / "input" / "data" / channel["ChannelName"]
                folder.mkdir()
                distribution = source.get("S3DataDistributionType", "FullyReplicated")
                download(s3, share_of(objects, number, len(hosts), distribution), folder)

    def _checkpoints(self, plan: JobPlan) -> list[Checkpoints]:
        config = self.request.get("CheckpointConfig")
        if not config:
            return []
        path = config.get("LocalPath", CHECKPOINTS)
        if not path.startswith("/opt/ml/"):
            raise JobFailed(
                f"ClientError: the local account keeps checkpoints under /opt/ml only, got LocalPath {path}"
            )
        s3 = self._around.client("s3")
        kept = [Checkpoints(s3, config["S3Uri"], host.folder / path.lstrip("/")) for host in plan.hosts]
        for checkpoints in kept:
            checkpoints.restore()
        return kept

    def _train(self, plan: JobPlan, checkpoints: list[Checkpoints]) -> tuple[str | None, bool]:
        """Run the hosts to their end; returns why the job failed, None if it did not, and whether its time ran out."""
        client = self._around.client
        logs = JobLogs(self.name, logs=client("logs"), cloudwatch=client("cloudwatch"), metrics=self._metrics)
        hosts = RunningJob(plan, on_line=logs.line)
        try:
            hosts.start()
            self._hosts = hosts
            return self._watch(plan, hosts, checkpoints)
        finally:
            self._hosts = None
            hosts.close()
            logs.close()

    def _watch(self, plan: JobPlan, hosts: RunningJob, checkpoints: list[Checkpoints]) -> tuple[str | None, bool]:
        runtime = self.request["StoppingCondition"].get("MaxRuntimeInSeconds", _LONGEST_RUNTIME)
        deadline = time.monotonic() + runtime
        kill_at: float | None = None
        reason: str | None = None
        timed_out = False
        next_look = time.monotonic() + _CHECKPOINT_SECONDS
        while hosts.wait(0) is None:
            ended = hosts.first_exit(_LOOK_SECONDS)
            now = time.monotonic()
            if ended and ended[1] and reason is None and kill_at is None:
                reason = _reason(plan, *ended)
                hosts.signal(signal.SIGTERM)
                kill_at = now + PEERS_SECONDS
            if kill_at is None and (self._stop.is_set() or now > deadline):
                timed_out = not self._stop.is_set()
                hosts.signal(signal.SIGTERM)
                kill_at = now + STOP_SECONDS
            if self._abort.is_set() or (kill_at is not None and now > kill_at):
                for host in plan.hosts:
                    hosts.kill_host(host.name)
            if now > next_look:
                for kept in checkpoints:
                    kept.keep()
                next_look = now + _CHECKPOINT_SECONDS
        while kill_at is None and reason is None and (ended := hosts.first_exit(0)):
            reason = _reason(plan, *ended) if ended[1] else None
        return reason, timed_out

    def _upload(self, plan: JobPlan, checkpoints: list[Checkpoints]) -> None:
        for kept in checkpoints:
            kept.keep()
        s3 = self._around.client("s3")
        output = f"{self.request['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{self.name}/output"
        model = f"{output}/model.tar.gz"
        upload_archive(s3, [_ml(host) / "model" for host in plan.hosts], model)
        self._ended["ModelArtifacts"] = {"S3ModelArtifacts": model}
        data = [_ml(host) / "output" / "data" for host in plan.hosts]
        if any(holds_files(folder) for folder in data):
            upload_archive(s3, data, f"{output}/output.tar.gz")

    def _change(self, secondary: str, message: str, *, status: str | None = None) -> None:
        with self._lock:
            now = _now()
            # What goes on while a job is being stopped does not show.
            if self.status == "Stopping" and status is None:
                return
            if self._transitions:
                self._transitions[-1]["EndTime"] = now
            transition = {"Status": secondary, "StartTime": now, "StatusMessage": message}
            if status in ("Completed", "Failed", "Stopped"):
                transition["EndTime"] = now
            self._transitions.append(transition)
            self.status = status or self.status
            self._times["LastModifiedTime"] = now
            described = self.description()
        try:
            self._around.on_change(described)
        except Exception:
            _log.exception("the change of %s to %s was not announced", self.name, secondary)


def _now() -> datetime:
    """The time in whole milliseconds, as far as the API tells it."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


def _ml(host: HostPlan) -> Path:
    return host.folder / "opt" / "ml"


def _reason(plan: JobPlan, name: str, code: int) -> str:
    """A FailureReason in the service's words, that says which host it was."""
    host = next(host for host in plan.hosts if host.name == name)
    where = f"{name} of {host.group}" if host.group else name
    if code < 0:
        return (
            f"InternalServerError: the host {where} was lost: its processes were ended by {signal.Signals(-code).name}; "
            "a job does not go on without one of its hosts"
        )
    failure = _ml(host) / "output" / "failure"
    said = failure.read_text(errors="replace").strip() if failure.is_file() else ""
    return f"AlgorithmError: {said or f'the command on {where} ended'}, exit code: {code}"[:_LONGEST_REASON]


def check_devices(devices: Mapping[str, int]) -> None:
    """Raise ``ValueError`` for a type that is not known, or more devices than it has."""
    for instance_type in devices:
        accelerators(instance_type, devices)
