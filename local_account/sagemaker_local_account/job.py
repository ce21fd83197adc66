"""One training job, from its request to its end."""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import atomic_files
from .devices import accelerators, write_stand_ins
from .faults import Faults, FullDisk, Interruption, LateHost
from .file_systems import FileSystems, sources
from .hosts import HostError
from .images import ImageError, ImageStore
from .limit_watch import disk_usage
from .limits import Limits, readable
from .logs import JobLogs, Metrics
from .plan import CHECKPOINTS, config_files, plan_job, s3_source
from .safe_paths import JobFolder, UnsafePath
from .spec import Fidelity, HostPlan, JobPlan
from .storage import (
    Checkpoints,
    StorageError,
    channel_objects,
    download,
    holds_files,
    share_of,
    space_for,
    upload,
)
from .training import EndedBy, Outcome, Training, ml
from .waiting import NoCapacity, Pending

_LOOK_SECONDS = 0.2
_LONGEST_REASON = 1024
_LONGEST_RUNTIME = 86_400  # StoppingCondition.MaxRuntimeInSeconds, unless the request says another

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Surroundings:
    """What a job needs of its account: ``credentials`` of a role for a job's ARN, ``client`` of a service with credentials."""

    folder: Path
    endpoint_url: str
    region: str
    client: Callable[[str, Mapping[str, str]], Any]
    images: ImageStore
    file_systems: FileSystems
    credentials: Callable[[str, str], Mapping[str, str]]
    devices: Mapping[str, int]
    fidelity: Fidelity
    limits: Limits
    faults: Faults
    on_change: Callable[[dict[str, Any]], None]


class JobFailed(Exception):
    """The job came to nothing; the text is its FailureReason."""


@dataclass(frozen=True)
class End:
    """A job's last status."""

    status: str
    secondary: str
    message: str
    reason: str = ""


STOPPED = End("Stopped", "Stopped", "Training job stopped")
# The service model says that such a job "is stopped", and has no status of its own for it.
PENDING_TOO_LONG = End("Stopped", "Stopped", "Training job pending time exceeded MaxPendingTimeInSeconds provided")
ENDS: Mapping[EndedBy, End] = {
    "stop": STOPPED,
    "runtime": End("Stopped", "MaxRuntimeExceeded", "Training job runtime exceeded MaxRuntimeInSeconds provided"),
    "wait": End("Stopped", "MaxWaitTimeExceeded", "Training job wait time exceeded MaxWaitTimeInSeconds provided"),
}


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
        self._began = time.monotonic()
        self._billed = 0.0
        self._retries: int = request.get("RetryStrategy", {}).get("MaximumRetryAttempts", 0)
        self._ended: dict[str, Any] = {}
        self._transitions: list[dict[str, Any]] = []
        self.status = "InProgress"
        self._training: Training | None = None
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def start(self) -> None:
        self._change("Starting", "Starting the training job")
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
        """Lose one of its machines. Nothing happens to a job that is not training."""
        training = self._training
        if training is not None:
            training.lose_host(host)

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
        except Exception as error:
            end = End("Failed", "Failed", "Training job failed", self._reason_of(error))
        shutil.rmtree(self._folder, ignore_errors=True)
        with self._lock:
            now = _now()
            if "TrainingStartTime" in self._times:
                seconds = round((now - self._times["TrainingStartTime"]).total_seconds())
                # Of wall-clock time, machines are billed while they are had: not while a spot job waits for new ones.
                billed = min(seconds, round(self._billed))
                self._ended |= {"TrainingTimeInSeconds": seconds, "BillableTimeInSeconds": billed}
            if end.reason:
                self._ended["FailureReason"] = end.reason[:_LONGEST_REASON]
            self._times["TrainingEndTime"] = now
        self._change(end.secondary, end.message, status=end.status)

    def _reason_of(self, error: Exception) -> str:
        """Why an error failed the job: a FailureReason."""
        if isinstance(error, (JobFailed, ImageError, StorageError)):
            return str(error)
        if isinstance(error, UnsafePath):
            return f"ClientError: {error.strerror}"
        if atomic_files.is_disk_full(error):
            return f"ClientError: Insufficient disk space: the disk of {self._around.folder} is full: {error}"
        if isinstance(error, HostError):
            return str(error)
        _log.error("%s failed", self.name, exc_info=error)
        return f"InternalServerError: {type(error).__name__}: {error}"

    def _live(self) -> End:
        plan = None
        while True:
            unstarted = self._find_machines()
            if unstarted is not None:
                return unstarted
            plan = plan or self._plan()
            since = time.monotonic()
            try:
                end = self._attempt(plan)
            finally:
                self._billed += time.monotonic() - since
            if isinstance(end, End):
                return end
            if not self._wait_for_machines(end):
                return STOPPED if self._stop.is_set() else ENDS["wait"]

    def _attempt(self, plan: JobPlan) -> End | Interruption | None:
        """On one set of machines: the job's end, the interruption that took them away, or None where they failed and the
        job tries others."""
        self._times.setdefault("TrainingStartTime", _now())
        self._change("Downloading", "Downloading input data")
        with space_for("Data download", self._around.folder):
            plan = self._download(plan)
        if self._stop.is_set():
            return STOPPED
        with space_for("Checkpoint download", self._around.folder):
            checkpoints = self._checkpoints(plan)
        self._change("Training", "Training image download completed. Training in progress.")
        outcome = self._train(plan, checkpoints)
        self._around.file_systems.export(self.request)
        if self._abort.is_set():
            return dataclasses.replace(STOPPED, message="The account ended")
        if checkpoints is not None:
            checkpoints.keep()
        if outcome.interruption is not None:
            return outcome.interruption
        if outcome.failure is not None and outcome.failure.startswith("InternalServerError") and self._retries > 0:
            self._retries -= 1
            return None
        if outcome.failure is None:
            self._change("Uploading", "Uploading generated training model")
        has_model = False
        try:
            with space_for("Artifact upload", self._around.folder):
                has_model = self._upload(plan)
        except StorageError as error:
            if outcome.failure is None:
                raise
            _log.warning("%s: %s", self.name, error)  # what failed first is the reason
        if outcome.failure is not None:
            return End("Failed", "Failed", "Training job failed", outcome.failure)
        if not has_model:
            _log.warning("%s ended without a model: nothing is in /opt/ml/model, so nothing was uploaded", self.name)
        return ENDS.get(outcome.ended_by) or End("Completed", "Completed", "Training job completed")

    def _deadlines(self) -> dict[EndedBy, float]:
        """When a run that starts now has to be over: of the run time, what earlier machines ran is spent."""
        limits = self.request["StoppingCondition"]
        left = limits.get("MaxRuntimeInSeconds", _LONGEST_RUNTIME) - self._billed
        deadlines: dict[EndedBy, float] = {"runtime": time.monotonic() + left}
        if "MaxWaitTimeInSeconds" in limits:
            deadlines["wait"] = self._began + limits["MaxWaitTimeInSeconds"]
        return deadlines

    def _find_machines(self) -> End | None:
        """Until there are machines; the job's end where that comes first."""
        self._change("Starting", "Preparing the instances for training")
        pending = Pending(self.request, self._around.faults)
        try:
            while (reason := pending.reason()) is not None:
                if pending.over:
                    return PENDING_TOO_LONG
                self._change("Pending", reason)
                if self._stop.wait(_LOOK_SECONDS):
                    return STOPPED
        except NoCapacity:
            self._change("Starting", "Insufficient capacity error from EC2 while launching instances, retrying!")
            raise JobFailed(
                "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different "
                "ML instance type."
            ) from None
        if pending.selected is not None:
            self._select(*pending.selected)
        self._change("Starting", "Preparing the instances for training")
        return None

    def _select(self, instance_type: str, count: int) -> None:
        """Take the machines that were found, of those that the job prefers: the rest of its life is on them."""
        selected = {"SelectedInstanceType": instance_type, "SelectedInstanceCount": count}
        with self._lock:
            self.request = {**self.request, "ResourceConfig": {**self.request["ResourceConfig"], **selected}}

    def _wait_for_machines(self, interruption: Interruption | None) -> bool:
        """Until there are machines again; False when the job ends first. The disks of the former ones are gone with them."""
        shutil.rmtree(self._folder, ignore_errors=True)
        if interruption is None:
            self._change("Restarting", "Restarting the training job after an internal error")
            return not self._stop.is_set()
        self._change("Interrupted", "Training job interrupted: its managed spot instances were taken back")
        last = self._deadlines()["wait"]
        until = min(time.monotonic() + interruption.away, last)
        self._stop.wait(max(0.0, until - time.monotonic()))
        return not self._stop.is_set() and time.monotonic() < last

    def _plan(self) -> JobPlan:
        uri = self.request["AlgorithmSpecification"].get("TrainingImage")
        if uri is None:
            raise JobFailed(
                "ClientError: the local account runs jobs by their TrainingImage, and the request names none"
            )
        around = self._around
        # Containers without a network have no credentials either, says SageMaker's guide.
        isolated = self.request.get("EnableNetworkIsolation", False)
        plan = plan_job(
            self.request,
            image=around.images.resolve(uri),
            folder=self._folder,
            endpoint_port=None if isolated else int(around.endpoint_url.rpartition(":")[2]),
            environment={
                "AWS_DEFAULT_REGION": around.region,
                "AWS_REGION": around.region,
                "TRAINING_JOB_ARN": self.arn,
                "TRAINING_JOB_NAME": self.name,
                # No host reaches an index of packages: pip says at once what the image lacks, and retries nothing.
                "PIP_NO_INDEX": "1",
                **({} if isolated else {"AWS_ENDPOINT_URL": around.endpoint_url, **self._credentials()}),
            },
            devices=around.devices,
            fidelity=around.fidelity,
        )
        hosts = []
        for host in plan.hosts:
            late = around.faults.take_one(LateHost, job=self.name, host=host.name)
            full = around.faults.take_one(FullDisk, job=self.name, host=host.name)
            hosts.append(
                dataclasses.replace(
                    host,
                    starts_after=late.seconds if late else 0.0,
                    disk_mebibytes=full.mebibytes if full else None,
                    limits=around.limits.of_host(
                        host.instance_type,
                        self.request["ResourceConfig"].get("VolumeSizeInGB"),
                        len(plan.hosts),
                        around.folder,
                    ),
                )
            )
        return dataclasses.replace(plan, hosts=tuple(hosts))

    def _client(self, service: str) -> Any:
        """SageMaker does all of this with the job's role."""
        return self._around.client(service, self._credentials())

    def _credentials(self) -> Mapping[str, str]:
        return self._around.credentials(self.request["RoleArn"], self.arn)

    def _download(self, plan: JobPlan) -> JobPlan:
        """What the hosts find when they start; the plan with the file systems that they mount."""
        for host in plan.hosts:
            for folder in ("input/config", "input/data", "model", "output/data"):
                (ml(host) / folder).mkdir(parents=True, exist_ok=True)
            for name, content in config_files(plan, host, self.request).items():
                (ml(host) / "input" / "config" / name).write_text(json.dumps(content))
            write_stand_ins(host.folder / "devices", host.instance_type, host.accelerators)
        s3 = self._client("s3")
        for channel in self.request.get("InputDataConfig", []):
            source = s3_source(channel)
            if not source:
                continue
            objects = channel_objects(s3, channel)
            hosts = plan.hosts_of(source.get("InstanceGroupNames"))
            for number, host in enumerate(hosts):
                below = JobFolder(ml(host), f"input/data/{channel['ChannelName']}")
                distribution = source.get("S3DataDistributionType", "FullyReplicated")
                download(s3, share_of(objects, number, len(hosts), distribution), below)
        for host in plan.hosts:
            _check_space(host)
        mounts = tuple(
            self._around.file_systems.mount(name, source, self.request["VpcConfig"], self._around.region)
            for name, source in sources(self.request)
        )
        return dataclasses.replace(plan, hosts=tuple(dataclasses.replace(host, mounts=mounts) for host in plan.hosts))

    def _checkpoints(self, plan: JobPlan) -> Checkpoints | None:
        config = self.request.get("CheckpointConfig")
        if not config:
            return None
        path = config.get("LocalPath", CHECKPOINTS)
        if not path.startswith("/opt/ml/"):
            raise JobFailed(
                f"ClientError: the local account keeps checkpoints under /opt/ml only, got LocalPath {path}"
            )
        below = path.removeprefix("/opt/ml/").rstrip("/")
        folders = [JobFolder(ml(host), below) for host in plan.hosts]
        checkpoints = Checkpoints(self._client("s3"), config["S3Uri"], folders)
        checkpoints.restore()
        return checkpoints

    def _train(self, plan: JobPlan, checkpoints: Checkpoints | None) -> Outcome:
        logs = JobLogs(
            self.name, logs=self._client("logs"), cloudwatch=self._client("cloudwatch"), metrics=self._metrics
        )
        try:
            self._training = Training(
                plan,
                request=self.request,
                checkpoints=checkpoints,
                faults=self._around.faults,
                deadlines=self._deadlines(),
                stop=self._stop,
                abort=self._abort,
                on_line=logs.line,
            )
            return self._training.run()
        finally:
            self._training = None
            logs.close()

    def _upload(self, plan: JobPlan) -> bool:
        """Upload what the hosts left; whether a model is among it.

        Of an empty folder nothing is uploaded, and ModelArtifacts is described all the same (aws/sagemaker-python-sdk 608, 3455).
        """
        s3, config = self._client("s3"), self.request["OutputDataConfig"]
        output = f"{config['S3OutputPath'].rstrip('/')}/{self.name}/output"
        key, compressed = config.get("KmsKeyId"), config.get("CompressionType", "GZIP") == "GZIP"

        def upload_all(folder: str, name: str) -> None:
            folders = [JobFolder(ml(host), folder) for host in plan.hosts]
            upload(s3, folders, f"{output}/{name}", key, compressed=compressed, scratch=self._folder)

        def holds(folder: str) -> bool:
            return any(holds_files(JobFolder(ml(host), folder)) for host in plan.hosts)

        place = f"{output}/model.tar.gz" if compressed else f"{output}/model/"
        self._ended["ModelArtifacts"] = {"S3ModelArtifacts": place}
        for folder, name in (("model", "model"), ("output/data", "output")):
            if holds(folder):
                upload_all(folder, name)
        return holds("model")

    def _change(self, secondary: str, message: str, *, status: str | None = None) -> None:
        with self._lock:
            now = _now()
            # What goes on while a job is being stopped does not show.
            if self.status == "Stopping" and status is None:
                return
            last = self._transitions[-1] if self._transitions else None
            if last is not None and last["Status"] == secondary:
                last["StatusMessage"] = message
            else:
                if last is not None:
                    last["EndTime"] = now
                self._transitions.append({"Status": secondary, "StartTime": now, "StatusMessage": message})
            if status in ("Completed", "Failed", "Stopped"):
                self._transitions[-1]["EndTime"] = now
            self.status = status or self.status
            self._times["LastModifiedTime"] = now
            described = self.description()
        try:
            self._around.on_change(described)
        except Exception:
            _log.exception("the change of %s to %s was not announced", self.name, secondary)


def _check_space(host: HostPlan) -> None:
    """Raise StorageError where a host's volume does not hold what it downloads."""
    if host.limits is not None and (used := disk_usage(host.folder)) > host.limits.disk:
        # The service's words: aws/sagemaker-python-sdk 128.
        raise StorageError(
            f"ClientError: Data download failed:Insufficient disk space: {host.name} has {readable(host.limits.disk)}, and its "
            f"channels take {readable(used)}"
        )


def _now() -> datetime:
    """The time in whole milliseconds, as far as the API tells it."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


def check_devices(devices: Mapping[str, int]) -> None:
    """Raise ``ValueError`` for a type that is not known, or more devices than it has."""
    for instance_type in devices:
        accelerators(instance_type, devices)
