"""The life cycle of a training job: pending, download, training, upload, and retries after interruptions."""

from __future__ import annotations

import dataclasses
import logging
import shutil
import threading
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sagemaker_local_account.aws.sagemaker.attempt import Attempt, EndedBy, Outcome
from sagemaker_local_account.aws.sagemaker.container_spec import specification
from sagemaker_local_account.aws.sagemaker.host_logs import JobLogs, Metrics
from sagemaker_local_account.aws.sagemaker.job_context import JobContext
from sagemaker_local_account.aws.sagemaker.job_data import (
    download_channels,
    model_uri,
    restored_checkpoints,
    upload_artifacts,
    write_config,
)
from sagemaker_local_account.aws.sagemaker.job_status import ENDS, PENDING_TOO_LONG, STOPPED, End, JobStatus, failed
from sagemaker_local_account.aws.sagemaker.scheduler import CapacityWait, NoCapacity
from sagemaker_local_account.core import atomic_files
from sagemaker_local_account.core.clock import CLOCK
from sagemaker_local_account.core.safe_paths import UnsafePath
from sagemaker_local_account.faults import Interruption
from sagemaker_local_account.images.image_store import ImageError
from sagemaker_local_account.runtime.devices import accelerators
from sagemaker_local_account.runtime.pod import HostError
from sagemaker_local_account.runtime.spec import PodSpec
from sagemaker_local_account.storage.checkpoints import Checkpoints
from sagemaker_local_account.storage.file_systems import sources
from sagemaker_local_account.storage.transfer import StorageError, space_for

_POLL_SECONDS = 0.2
_LONGEST_RUNTIME = 86_400  # the default of StoppingCondition.MaxRuntimeInSeconds

_log = logging.getLogger(__name__)


class JobFailed(Exception):
    """The job fails; the message is its FailureReason."""


class Job:
    """A training job, which runs on a separate thread.

    Args:
        request: CreateTrainingJob's.
        arn: the job's.
        context: the account's services that it uses.
    """

    def __init__(self, request: Mapping[str, Any], arn: str, context: JobContext) -> None:
        self.name: str = request["TrainingJobName"]
        self.arn = arn
        self.tags: dict[str, str] = {tag["Key"]: tag["Value"] for tag in request.get("Tags", [])}
        self._context = context
        self._folder = context.folder / self.name
        self._metrics = Metrics(request["AlgorithmSpecification"].get("MetricDefinitions", []))
        self._status = JobStatus(request, arn, self._metrics, context.on_change)
        self._stop = threading.Event()
        self._abort = threading.Event()
        self._began = CLOCK.monotonic()
        self._billed = self._unbilled = 0.0
        self._retries: int = request.get("RetryStrategy", {}).get("MaximumRetryAttempts", 0)
        self._attempt: Attempt | None = None
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    @property
    def request(self) -> Mapping[str, Any]:
        """CreateTrainingJob's request, with the selected machines of a job with InstancePreferences."""
        return self._status.request

    @property
    def status(self) -> str:
        """TrainingJobStatus."""
        return self._status.current

    def metric_series(self) -> dict[str, list[tuple[datetime, float]]]:
        """Returns the values of each metric by time."""
        return self._metrics.series()

    def description(self) -> dict[str, Any]:
        """Returns DescribeTrainingJob's response."""
        return self._status.description()

    def summary(self) -> dict[str, Any]:
        """Returns the job's entry in ListTrainingJobs' response."""
        described = self.description()
        names = ("TrainingJobName", "TrainingJobArn", "CreationTime", "TrainingEndTime", "LastModifiedTime")
        return {name: described[name] for name in (*names, "TrainingJobStatus", "SecondaryStatus") if name in described}

    def start(self) -> None:
        """Starts the job's thread."""
        self._status.change("Starting", "Starting the training job")
        self._thread.start()

    def stop(self) -> bool:
        """Begins to stop the job; returns False where it has ended or is stopping already."""
        if not self._status.begin_stopping():
            return False
        self._stop.set()
        return True

    def lose_host(self, host: str) -> None:
        """Kills a host as if its machine had failed; without effect unless the job is training."""
        attempt = self._attempt
        if attempt is not None:
            attempt.lose_host(host)

    def abort(self) -> None:
        """Kills the job; returns when its thread has ended. For the end of the account."""
        self._abort.set()
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            end = self._run_to_end()
        except Exception as error:
            end = failed(self._reason_of(error))
        shutil.rmtree(self._folder, ignore_errors=True)
        self._status.finish(end, self._unbilled)

    def _reason_of(self, error: Exception) -> str:
        """The FailureReason of an error."""
        if isinstance(error, (JobFailed, ImageError, StorageError)):
            return str(error)
        if isinstance(error, UnsafePath):
            return f"ClientError: {error.strerror}"
        if atomic_files.is_disk_full(error):
            return f"ClientError: Insufficient disk space: the disk of {self._context.folder} is full: {error}"
        if isinstance(error, HostError):
            return str(error)
        _log.error("%s failed", self.name, exc_info=error)
        return f"InternalServerError: {type(error).__name__}: {error}"

    def _run_to_end(self) -> End:
        spec = None
        while True:
            unstarted = self._find_machines()
            if unstarted is not None:
                return unstarted
            spec = spec or specification(self._context, self.request, self.arn)
            since = CLOCK.monotonic()
            try:
                end = self._run_attempt(spec)
            finally:
                self._billed += CLOCK.monotonic() - since
            if isinstance(end, End):
                return end
            since = CLOCK.monotonic()
            found = self._wait_for_machines(end)
            self._unbilled += CLOCK.monotonic() - since
            if not found:
                return STOPPED if self._stop.is_set() else ENDS["wait"]

    def _run_attempt(self, spec: PodSpec) -> End | Interruption | None:
        """Runs the job on one set of machines.

        Returns:
            The job's end; the interruption that ended the attempt; or None for a failure of a machine that is retried.
        """
        self._status.change("Downloading", "Downloading input data")
        with space_for("Data download", self._context.folder):
            write_config(spec, self.request)
            download_channels(self._client("s3"), spec, self.request)
            spec = self._mount_file_systems(spec)
        if self._stop.is_set():
            return STOPPED
        with space_for("Checkpoint download", self._context.folder):
            checkpoints = restored_checkpoints(self._client("s3"), spec, self.request)
        deadlines = self._deadlines()
        self._status.change("Training", "Training image download completed. Training in progress.")
        outcome = self._train(spec, checkpoints, deadlines)
        self._context.file_systems.export(self.request)
        if self._abort.is_set():
            return dataclasses.replace(STOPPED, message="The account ended")
        if checkpoints is not None:
            checkpoints.sync()
        if outcome.interruption is not None:
            return outcome.interruption
        if outcome.failure is not None and outcome.failure.startswith("InternalServerError") and self._retries > 0:
            self._retries -= 1
            return None
        if outcome.failure is None:
            self._status.change("Uploading", "Uploading generated training model")
        has_model = False
        try:
            with space_for("Artifact upload", self._context.folder):
                self._status.set_model(model_uri(self.request))
                has_model = upload_artifacts(self._client("s3"), spec, self.request, self._folder)
        except StorageError as error:
            if outcome.failure is None:
                raise
            _log.warning("%s: %s", self.name, error)  # the first failure is the FailureReason
        if outcome.failure is not None:
            return failed(outcome.failure)
        if not has_model:
            _log.warning("%s ended without a model: /opt/ml/model is empty, so nothing was uploaded", self.name)
        return ENDS[outcome.ended_by]

    def _deadlines(self) -> dict[EndedBy, float]:
        """The deadlines of an attempt that starts now; earlier attempts count towards MaxRuntimeInSeconds."""
        limits = self.request["StoppingCondition"]
        left = limits.get("MaxRuntimeInSeconds", _LONGEST_RUNTIME) - self._billed
        deadlines: dict[EndedBy, float] = {"runtime": CLOCK.monotonic() + left}
        if "MaxWaitTimeInSeconds" in limits:
            deadlines["wait"] = self._began + limits["MaxWaitTimeInSeconds"]
        return deadlines

    def _find_machines(self) -> End | None:
        """Waits for machines; returns the job's end where it ends before."""
        self._status.change("Starting", "Preparing the instances for training")
        wait = CapacityWait(self.request, self._context.faults)
        try:
            while (reason := wait.reason()) is not None:
                if wait.over:
                    return PENDING_TOO_LONG
                self._status.change("Pending", reason)
                if self._stop.wait(_POLL_SECONDS):
                    return STOPPED
        except NoCapacity:
            self._status.change("Starting", "Insufficient capacity error from EC2 while launching instances, retrying!")
            raise JobFailed(
                "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different "
                "ML instance type."
            ) from None
        if wait.selected is not None:
            self._status.select(*wait.selected)
        self._status.change("Starting", "Preparing the instances for training")
        return None

    def _wait_for_machines(self, interruption: Interruption | None) -> bool:
        """Waits for new machines, without the former hosts' files; returns False where the job ends before."""
        shutil.rmtree(self._folder, ignore_errors=True)
        if interruption is None:
            self._status.change("Restarting", "Restarting the training job after an internal error")
            return not self._stop.is_set()
        self._status.change("Interrupted", "Training job interrupted: its managed spot instances were taken back")
        last = self._deadlines()["wait"]
        until = min(CLOCK.monotonic() + interruption.away, last)
        while (left := until - CLOCK.monotonic()) > 0 and not self._stop.wait(min(left, _POLL_SECONDS)):
            pass
        return not self._stop.is_set() and CLOCK.monotonic() < last

    def _client(self, service: str) -> Any:
        """A client with the job's role."""
        return self._context.client(service, self._context.credentials(self.request["RoleArn"], self.arn))

    def _mount_file_systems(self, spec: PodSpec) -> PodSpec:
        mounts = tuple(
            self._context.file_systems.mount(name, source, self.request["VpcConfig"], self._context.region)
            for name, source in sources(self.request)
        )
        return dataclasses.replace(spec, hosts=tuple(dataclasses.replace(host, mounts=mounts) for host in spec.hosts))

    def _train(self, spec: PodSpec, checkpoints: Checkpoints | None, deadlines: Mapping[EndedBy, float]) -> Outcome:
        logs = JobLogs(
            self.name, logs=self._client("logs"), cloudwatch=self._client("cloudwatch"), metrics=self._metrics
        )
        try:
            self._attempt = Attempt(
                spec,
                request=self.request,
                checkpoints=checkpoints,
                faults=self._context.faults,
                deadlines=deadlines,
                stop=self._stop,
                abort=self._abort,
                on_line=logs.line,
            )
            return self._attempt.run()
        finally:
            self._attempt = None
            logs.close()


def check_devices(devices: Mapping[str, int]) -> None:
    """Raises ``ValueError`` for an unknown instance type, or for more devices than it has."""
    for instance_type in devices:
        accelerators(instance_type, devices)
