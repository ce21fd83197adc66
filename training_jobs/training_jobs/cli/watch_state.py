"""What is watched: an execution and its newest job, or a job alone, as of the last look."""

from __future__ import annotations

import time
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from training_jobs.client.executions import GOING_ON
from training_jobs.client.hosts import groups_in_log, hosts_of
from training_jobs.client.jobs import OVER
from training_jobs.client.logs import LogLine
from training_jobs.client.metrics import MetricParser

if TYPE_CHECKING:
    from training_jobs.client.account import Account
    from training_jobs.client.executions import Execution, StateVisit
    from training_jobs.client.jobs import Job
    from training_jobs.client.logs import LogReader

_KEPT_LINES = 200
_KEPT_VALUES = 1000
_MEASURED = ("CPUUtilization", "GPUUtilization")
_MEASURE_SECONDS = 60  # SageMaker publishes once a minute


class Watched:
    """An execution and its newest job, or a job alone.

    Attributes:
        execution: The response of DescribeExecution; None for a job alone.
        states: The states that the execution entered.
        job: The response of DescribeTrainingJob; None until there is a job.
        lines: The last lines of the job's hosts.
        utilization: The shares of its vCPUs and GPUs that each host uses, ``cpu`` and ``gpu``, as far as CloudWatch has them.
        groups: The instance group of each host, as far as the log has it.
        new_lines: Those that came with the last look.
        metrics: The last values of each metric, by name.
        lost: Why the last look failed; None where it did not.
        seen: Whether a look has succeeded.
    """

    def __init__(self, account: Account, *, execution: Execution | None, job: Job | None) -> None:
        """Watch nothing yet.

        Args:
            account: The account.
            execution: The execution; None for a job alone.
            job: The job, where there is no execution.
        """
        self._account, self._execution, self._job = account, execution, job
        self._reader: LogReader | None = None
        self._parser: MetricParser | None = None
        self.execution: dict[str, Any] | None = None
        self.states: list[StateVisit] = []
        self.job: dict[str, Any] | None = None
        self.lines: deque[LogLine] = deque(maxlen=_KEPT_LINES)
        self.new_lines: list[LogLine] = []
        self.groups: dict[str, str] = {}
        self.utilization: dict[str, dict[str, float]] = {}
        self._measured: tuple[str, bool] | None = None
        self._measured_at = 0.0
        self.metrics: dict[str, deque[float]] = {}
        self.lost: str | None = None
        self.seen = False

    def refresh(self) -> None:
        """Look again: describe, and read what is new."""
        # The execution first: one that is over has a job that is.
        if self._execution is not None:
            self.execution = self._execution.describe()
            self.states = self._execution.states()
            # Lists of jobs are throttled, and an execution has one job at a time: another follows when this one is over.
            if self._job is None or self._job_over or self.execution_over:
                self._follow(self._execution.jobs())
        if self._job is not None:
            self.job = self._job.describe()
            self._read(self._job)
            self._measure()
        self.lost, self.seen = None, True

    @property
    def execution_over(self) -> bool:
        """Whether the execution has ended."""
        return self.execution is not None and self.execution["status"] not in GOING_ON

    @property
    def over(self) -> bool:
        """Whether all has ended, as of a look that succeeded."""
        if self.lost is not None or not self.seen:
            return False
        return (self.job is None or self._job_over) and (self.execution is None or self.execution_over)

    @property
    def _job_over(self) -> bool:
        return self.job is not None and self.job["TrainingJobStatus"] in OVER

    @property
    def failed(self) -> str | None:
        """Why it did not succeed, once it has ended; else None."""
        if not self.over:
            return None
        if self.execution is not None:
            if self.execution["status"] == "SUCCEEDED":
                return None
            cause = self.execution.get("cause") or (self.job or {}).get("FailureReason") or ""
            return _reason(self.execution["name"], self.execution["status"], cause)
        if self.job is None or self.job["TrainingJobStatus"] == "Completed":
            return None
        return _reason(self.job["TrainingJobName"], self.job["TrainingJobStatus"], self.job.get("FailureReason", ""))

    @property
    def headline(self) -> str:
        """The execution, its status, the job and its phase, in one line."""
        parts = []
        if self.execution is not None:
            parts.append(f"{self.execution['name']} {self.execution['status']}")
        if self.job is not None:
            parts.append(f"{self.job['TrainingJobName']} {self.job['SecondaryStatus']}")
        if self.lost is not None:
            parts.append(f"connection lost, trying again: {self.lost}")
        return ", ".join(parts)

    @property
    def seconds(self) -> float:
        """Since the start of the execution, or of the job, to its end or to now."""
        if self.execution is not None:
            start, end = self.execution["startDate"], self.execution.get("stopDate")
        elif self.job is not None:
            start, end = self.job["CreationTime"], self.job.get("TrainingEndTime")
        else:
            return 0.0
        return float(((end or datetime.now(UTC)) - start).total_seconds())

    def _follow(self, jobs: list[Job]) -> None:
        """The newest job of the execution; another attempt has other lines."""
        if jobs and (self._job is None or jobs[-1].name != self._job.name):
            self._job, self._reader, self._parser, self.groups = jobs[-1], None, None, {}

    def _read(self, job: Job) -> None:
        assert self.job is not None
        self._reader = self._reader or job.log_reader()
        self._parser = self._parser or MetricParser(self.job)
        self.new_lines = self._reader.read()
        self.lines.extend(self.new_lines)
        self.groups = self.groups or groups_in_log(line.message for line in self.new_lines)
        for point in self._parser.parse(self.new_lines):
            self.metrics.setdefault(point.name, deque(maxlen=_KEPT_VALUES)).append(point.value)

    def _measure(self) -> None:
        """Read the hosts' utilization once a minute and at the job's end; without cloudwatch:GetMetricData there is none."""
        from botocore.exceptions import BotoCoreError, ClientError

        from training_jobs.client.utilization import shares, utilization

        assert self.job is not None
        look, now = (str(self.job["TrainingJobName"]), self._job_over), time.monotonic()
        if look == self._measured and now < self._measured_at + _MEASURE_SECONDS:
            return
        self._measured, self._measured_at = look, now
        hosts = hosts_of(self.job, self.groups)
        try:
            used = utilization(self._account.client("cloudwatch"), self.job, [it.name for it in hosts], _MEASURED)
        except (BotoCoreError, ClientError):
            return
        self.utilization = {it.name: shares(it.instance_type, used[it.name]) for it in hosts if used.get(it.name)}


def _reason(name: str, status: str, cause: str) -> str:
    """In one line."""
    return f"{name} {status}: {' '.join(cause.split())}".rstrip(": ")
