"""A training job's status: what DescribeTrainingJob returns, and the events of its changes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sagemaker_local_account.aws.sagemaker.attempt import EndedBy
from sagemaker_local_account.aws.sagemaker.host_logs import Metrics
from sagemaker_local_account.core.clock import CLOCK

_LONGEST_REASON = 1024  # characters of FailureReason (service model)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class End:
    """The final status of a job: TrainingJobStatus, SecondaryStatus, its message, and the FailureReason."""

    status: str
    secondary: str
    message: str
    reason: str = ""


COMPLETED = End("Completed", "Completed", "Training job completed")
STOPPED = End("Stopped", "Stopped", "Training job stopped")
# The service model says that such a job "is stopped", and has no separate status for it.
PENDING_TOO_LONG = End("Stopped", "Stopped", "Training job pending time exceeded MaxPendingTimeInSeconds provided")
ENDS: Mapping[EndedBy, End] = {
    "itself": COMPLETED,
    "stop": STOPPED,
    "runtime": End("Stopped", "MaxRuntimeExceeded", "Training job runtime exceeded MaxRuntimeInSeconds provided"),
    "wait": End("Stopped", "MaxWaitTimeExceeded", "Training job wait time exceeded MaxWaitTimeInSeconds provided"),
}


def failed(reason: str) -> End:
    """Returns the end of a failed job with a FailureReason."""
    return End("Failed", "Failed", "Training job failed", reason)


class JobStatus:
    """The status, transitions and times of one job; thread-safe.

    Args:
        request: CreateTrainingJob's.
        arn: the job's.
        metrics: the values found in its logs.
        on_change: called with the description after each change.
    """

    def __init__(
        self, request: Mapping[str, Any], arn: str, metrics: Metrics, on_change: Callable[[dict[str, Any]], None]
    ) -> None:
        self.request = request
        self.current = "InProgress"
        self._arn = arn
        self._metrics = metrics
        self._on_change = on_change
        self._lock = threading.RLock()
        self._transitions: list[dict[str, Any]] = []
        self._times: dict[str, datetime] = {"CreationTime": _now()}
        self._results: dict[str, Any] = {}

    def description(self) -> dict[str, Any]:
        """Returns DescribeTrainingJob's response."""
        with self._lock:
            given = {key: value for key, value in self.request.items() if key != "Tags"}
            return {
                **given,
                "TrainingJobArn": self._arn,
                "TrainingJobStatus": self.current,
                "SecondaryStatus": self._transitions[-1]["Status"],
                "SecondaryStatusTransitions": [dict(transition) for transition in self._transitions],
                "FinalMetricDataList": self._metrics.last(),
                **self._times,
                **self._results,
            }

    def change(self, secondary: str, message: str, *, status: str | None = None, at: datetime | None = None) -> None:
        """Enters a secondary status, or changes the message of the current one. Training starts with its first Downloading.

        Args:
            secondary: SecondaryStatus.
            message: StatusMessage.
            status: TrainingJobStatus; None keeps the current one. A job in Stopping only changes with it.
            at: When; None for now.
        """
        with self._lock:
            now = at or _now()
            if self.current == "Stopping" and status is None:
                return
            if self.current == "Stopping" and status == COMPLETED.status:
                # It was stopped while it uploaded: "After SageMaker stops the job, it sets the status to Stopped" (API,
                # StopTrainingJob).
                secondary, message, status = STOPPED.secondary, STOPPED.message, STOPPED.status
            last = self._transitions[-1] if self._transitions else None
            if last is not None and last["Status"] == secondary:
                last["StatusMessage"] = message
            else:
                if last is not None:
                    last["EndTime"] = now
                self._transitions.append({"Status": secondary, "StartTime": now, "StatusMessage": message})
            if status in ("Completed", "Failed", "Stopped"):
                self._transitions[-1]["EndTime"] = now
            if secondary == "Downloading":
                self._times.setdefault("TrainingStartTime", now)
            self.current = status or self.current
            self._times["LastModifiedTime"] = now
            described = self.description()
        try:
            self._on_change(described)
        except Exception:
            _log.exception("no event was sent for the change of %s to %s", described["TrainingJobName"], secondary)

    def begin_stopping(self) -> bool:
        """Enters Stopping; returns False where the job has ended or is stopping already."""
        with self._lock:
            if self.current != "InProgress":
                return False
            self.change("Stopping", "Stopping the training job", status="Stopping")
            return True

    def select(self, instance_type: str, count: int) -> None:
        """Sets the selected machines of a job with InstancePreferences."""
        selected = {"SelectedInstanceType": instance_type, "SelectedInstanceCount": count}
        with self._lock:
            self.request = {**self.request, "ResourceConfig": {**self.request["ResourceConfig"], **selected}}

    def set_model(self, uri: str) -> None:
        """Sets ModelArtifacts."""
        with self._lock:
            self._results["ModelArtifacts"] = {"S3ModelArtifacts": uri}

    def finish(self, end: End, unbilled: float) -> None:
        """Enters the final status.

        Args:
            end: the final status.
            unbilled: the seconds of the training time during which the job had no machines, after an interruption.
        """
        with self._lock:
            now = _now()
            if "TrainingStartTime" in self._times:
                seconds = (now - self._times["TrainingStartTime"]).total_seconds()
                self._results |= {  # both at least 1, of the service model
                    "TrainingTimeInSeconds": max(round(seconds), 1),
                    "BillableTimeInSeconds": max(round(seconds - unbilled), 1),
                }
            if end.reason:
                self._results["FailureReason"] = end.reason[:_LONGEST_REASON]
            self._times["TrainingEndTime"] = now
        self.change(end.secondary, end.message, status=end.status, at=now)


def _now() -> datetime:
    """The time in whole milliseconds, the resolution of the API."""
    now = CLOCK.now()
    return now.replace(microsecond=now.microsecond // 1000 * 1000)
