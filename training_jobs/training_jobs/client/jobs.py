"""A training job: its description, hosts, logs, metrics, cost and artifacts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_jobs.client import artifacts
from training_jobs.client.cost import MachineTime, machine_times
from training_jobs.client.errors import NotFoundError, code_of
from training_jobs.client.hosts import RESOURCE_CONFIG, Host, HostGroup, groups_in_log, host_groups, hosts_of
from training_jobs.client.logs import LogLine, LogReader, messages_with
from training_jobs.client.metrics import MetricParser, MetricPoint
from training_jobs.client.polling import poll

if TYPE_CHECKING:
    from training_jobs.client.account import Account

OVER = ("Completed", "Failed", "Stopped")
EXECUTION_TAG = (
    "StepFunctionsExecution"  # with which a TrainingWorkflow marks its jobs; the value is the execution's ARN
)


def tags_without_execution(request: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return a request's tags without that of an execution, by which the stack's guard would stop a job that none owns.

    Args:
        request: A CreateTrainingJob request.
    """
    return [tag for tag in request.get("Tags", []) if tag["Key"] != EXECUTION_TAG]


class Job:
    """One training job, of any workflow or of none.

    Attributes:
        name: Its name.
    """

    def __init__(self, account: Account, name: str) -> None:
        """Refer to a job; nothing is called yet.

        Args:
            account: The account.
            name: The job's name.
        """
        self.name = name
        self._account = account

    def __repr__(self) -> str:
        return f"Job({self.name!r})"

    def describe(self) -> dict[str, Any]:
        """Return the response of DescribeTrainingJob.

        Raises:
            NotFoundError: There is no such job in this account and region.
        """
        sagemaker = self._account.client("sagemaker")
        try:
            answer: dict[str, Any] = sagemaker.describe_training_job(TrainingJobName=self.name)
        except sagemaker.exceptions.ClientError as error:
            # "ValidationException: Requested resource not found." on AWS; ResourceNotFound in the service model.
            if code_of(error) == "ResourceNotFound" or "not found" in str(error).lower():
                raise NotFoundError(
                    f"no training job {self.name!r} in {self._account.region}; `training-jobs list` shows those that are"
                ) from None
            raise
        answer.pop("ResponseMetadata", None)
        return answer

    @property
    def status(self) -> str:
        """``"InProgress"``, ``"Completed"``, ``"Failed"``, ``"Stopping"`` or ``"Stopped"``."""
        return str(self.describe()["TrainingJobStatus"])

    def hosts(self) -> list[Host]:
        """Return its hosts, in the order of their numbers; their groups where the log has them, see ``groups_in_log``."""
        description = self.describe()
        return hosts_of(description, self._groups(description))

    def host_groups(self) -> list[HostGroup]:
        """Return its instance groups, with their hosts where the log has them; one without a name in a job without groups."""
        description = self.describe()
        return host_groups(description, self._groups(description))

    def _groups(self, description: dict[str, Any]) -> dict[str, str]:
        if len(description["ResourceConfig"].get("InstanceGroups") or ()) < 2:
            return {}
        return groups_in_log(messages_with(self._account.client("logs"), self.name, RESOURCE_CONFIG))

    def log_reader(
        self,
        *,
        host: str | None = None,
        group: str | None = None,
        since: datetime | None = None,
        grep: str | None = None,
    ) -> LogReader:
        """Return a reader whose ``read()`` returns the lines that are new since its last call.

        Args:
            host: Only this host, such as ``"algo-1"``.
            group: Only the hosts of this instance group.
            since: Only lines from this time on.
            grep: Only lines that contain this regular expression.

        Raises:
            NotFoundError: The job has no such host or group, or no line of its log has the hosts of its groups.
        """
        hosts = None
        if host is not None or group is not None:
            known = self.hosts()
            hosts = [it.name for it in known if host in (None, it.name) and group in (None, it.group)]
            if not hosts and group is not None and group in {it.name for it in self.host_groups()}:
                raise NotFoundError(
                    f"the log of {self.name} does not contain the hosts of {group!r} (yet): the line {RESOURCE_CONFIG} of "
                    "SageMaker's training toolkit; use --host"
                )
            if not hosts:
                names = {it.name for it in (known if group is None else self.host_groups()) if it.name}
                what = f"host {host!r}" if group is None else f"group {group!r}"
                raise NotFoundError(f"{self.name} has no {what}; it has {', '.join(sorted(names)) or 'none'}")
        return LogReader(self._account.client("logs"), self.name, hosts=hosts, since=since, grep=grep)

    def logs(self, **filters: Any) -> Iterator[LogLine]:
        """Yield the lines so far, of all hosts, by time.

        Args:
            filters: Those of ``log_reader``.
        """
        yield from self.log_reader(**filters).read()

    def follow(self, poll_seconds: float = 2.0, **filters: Any) -> Iterator[LogLine]:
        """Yield the lines as they come, until the job is over.

        Args:
            poll_seconds: Seconds between two calls.
            filters: Those of ``log_reader``.
        """
        reader = self.log_reader(**filters)
        while True:
            over = self.status in OVER
            yield from reader.read()
            if over:
                return
            time.sleep(poll_seconds)

    def metrics(self) -> list[MetricPoint]:
        """Return all values of its metrics, by time, as its metric definitions find them in its log lines."""
        return list(MetricParser(self.describe()).parse(self.log_reader().read()))

    def metrics_frame(self) -> Any:
        """Return its metrics as a pandas DataFrame: a row for each time, a column for each metric.

        Raises:
            ImportError: pandas is not installed.
        """
        import pandas

        rows = [{"time": it.time, "name": it.name, "value": it.value} for it in self.metrics()]
        frame = pandas.DataFrame(rows, columns=["time", "name", "value"])
        return frame.pivot_table(index="time", columns="name", values="value", aggfunc="last")

    def machine_times(self) -> list[MachineTime]:
        """Return what it has used of machines so far and at most, by type."""
        return machine_times(self.describe())

    def execution_arn(self) -> str | None:
        """Return the ARN of the execution that started it; None if no workflow did."""
        arn = self.describe()["TrainingJobArn"]
        pages = self._account.client("sagemaker").get_paginator("list_tags").paginate(ResourceArn=arn)
        tags = {tag["Key"]: tag["Value"] for page in pages for tag in page["Tags"]}
        return tags.get(EXECUTION_TAG)

    def stop(self) -> None:
        """Stop it, and the execution that started it; returns at once. A job that is over is left as it is.

        SageMaker sends SIGTERM, and kills the container 120 seconds later (API, StopTrainingJob).
        """
        arn = self.execution_arn()
        if arn is not None:
            self._account.execution(arn).stop()
        sagemaker = self._account.client("sagemaker")
        if self.status == "InProgress":
            try:
                sagemaker.stop_training_job(TrainingJobName=self.name)
            except sagemaker.exceptions.ClientError as error:
                # "The request was rejected because the training job is in status Stopped."
                if code_of(error) != "ValidationException":
                    raise

    def wait(
        self, poll_seconds: float = 5.0, progress: Callable[[dict[str, Any]], None] | None = None
    ) -> dict[str, Any]:
        """Wait for its end.

        Args:
            poll_seconds: Seconds between two calls.
            progress: Called with each description.

        Returns:
            Its description.
        """
        return poll(self.describe, lambda it: it["TrainingJobStatus"] in OVER, poll_seconds, progress)

    def model_uri(self) -> str | None:
        """Return where SageMaker puts its model; None until it has one."""
        uri = self.describe().get("ModelArtifacts", {}).get("S3ModelArtifacts")
        return None if uri is None else str(uri)

    def has_model(self) -> bool | None:
        """Return whether there is a model at ``model_uri``, which every description names; None where the caller may not look."""
        uri = self.model_uri()
        return False if uri is None else artifacts.exists(self._account.client("s3"), uri)

    def checkpoints_uri(self) -> str | None:
        """Return where its checkpoints are; None for a job without."""
        uri = self.describe().get("CheckpointConfig", {}).get("S3Uri")
        return None if uri is None else str(uri)

    def last_checkpoint(self) -> artifacts.S3Object | None:
        """Return the newest object among its checkpoints; None where there is none."""
        uri = self.checkpoints_uri()
        found = artifacts.objects_below(self._account.client("s3"), uri) if uri else []
        return found[-1] if found else None

    def download_model(self, directory: Path | str) -> list[Path]:
        """Download its model, unpacked.

        Args:
            directory: Where to.

        Returns:
            The files.

        Raises:
            NotFoundError: It has none.
        """
        uri = self.model_uri()
        if not uri:
            raise NotFoundError(f"{self.name} has no model: it is {self.status}")
        return artifacts.download(self._account.client("s3"), uri, Path(directory))

    def download_checkpoints(self, directory: Path | str) -> list[Path]:
        """Download its checkpoints.

        Args:
            directory: Where to.

        Returns:
            The files.

        Raises:
            NotFoundError: It has none.
        """
        uri = self.checkpoints_uri()
        if uri is None:
            raise NotFoundError(f"{self.name} has no checkpoints: set checkpoints=S3Prefix(...) in its workflow")
        return artifacts.download(self._account.client("s3"), uri, Path(directory))
