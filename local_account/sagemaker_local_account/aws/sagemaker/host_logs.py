"""Sends the output of a job's hosts to CloudWatch Logs, and its metrics to CloudWatch."""

from __future__ import annotations

import contextlib
import logging
import queue
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
NAMESPACE = "/aws/sagemaker/TrainingJobs"
_BATCH_SECONDS = 0.2
_MOST_METRICS = 1_000  # of one PutMetricData
_MOST_POINTS = 1_000  # of a metric that are kept for the web page
# The limits of PutLogEvents (CloudWatch Logs API): events, bytes, and the bytes of each event besides its message.
_MOST_EVENTS, _MOST_BYTES, _BYTES_EACH = 10_000, 1_048_576, 26
_MOST_WAITING = 16 * 2**20  # bytes of buffered lines

_log = logging.getLogger(__name__)


class Metrics:
    """Extracts metrics from lines by a job's MetricDefinitions."""

    def __init__(self, definitions: Sequence[Mapping[str, str]]) -> None:
        self._patterns = [(definition["Name"], re.compile(definition["Regex"])) for definition in definitions]
        self._last: dict[str, dict[str, Any]] = {}
        self._series: dict[str, list[tuple[datetime, float]]] = {}

    def read(self, line: str, when: datetime) -> list[dict[str, Any]]:
        """Returns the metrics of a line, each with MetricName, Value and Timestamp."""
        found: list[dict[str, Any]] = []
        for name, pattern in self._patterns:
            match = pattern.search(line)
            try:
                value = float(match[1]) if match else None
            except (IndexError, TypeError, ValueError):  # no group, or no number in it: no value, as on AWS
                value = None
            if value is not None:
                found.append({"MetricName": name, "Value": value, "Timestamp": when})
        for metric in found:
            self._last[str(metric["MetricName"])] = metric
            series = self._series.setdefault(str(metric["MetricName"]), [])
            series.append((when, float(metric["Value"])))
            if len(series) > _MOST_POINTS:
                del series[1:-1:2]
        return found

    def last(self) -> list[dict[str, Any]]:
        """Returns FinalMetricDataList, the last value of each metric."""
        return list(self._last.values())

    def series(self) -> dict[str, list[tuple[datetime, float]]]:
        """Returns the values of each metric by time; of more than 1,000 every second, fourth, ... and the first and the last."""
        return {name: [*points] for name, points in self._series.items()}


class JobLogs:
    """Sends a job's lines on a separate thread, with a buffer of 16 MiB.

    Args:
        job_name: the prefix of its log streams.
        logs: a client of CloudWatch Logs with the job's role.
        cloudwatch: a client of CloudWatch with the job's role.
        metrics: extracts the metrics.
    """

    def __init__(self, job_name: str, *, logs: Any, cloudwatch: Any, metrics: Metrics) -> None:
        self._job_name = job_name
        self._logs = logs
        self._cloudwatch = cloudwatch
        self._metrics = metrics
        self._lines: queue.Queue[tuple[str, datetime, str] | None] = queue.Queue()
        self._waiting = 0
        self._sent = threading.Condition()
        self._streams: dict[str, str] = {}
        self._thread = threading.Thread(target=self._send, name=f"{job_name} logs", daemon=True)
        self._thread.start()

    def line(self, host: str, text: str) -> None:
        """Adds a line of a host; blocks while the buffer is full."""
        with self._sent:
            self._sent.wait_for(lambda: self._waiting < _MOST_WAITING)
            self._waiting += len(text) + _BYTES_EACH
        self._lines.put((host, datetime.now(UTC), text))

    def close(self) -> None:
        """Returns once all lines have been sent."""
        self._lines.put(None)
        self._thread.join()

    def _send(self) -> None:
        more = True
        sends = {"logs": self._send_lines, "metrics": self._send_metrics}
        while more:
            batch, more = self._batch()
            for name, send in [*sends.items()]:
                try:
                    send(batch)
                except ClientError as error:
                    # As on AWS the job continues without logs.
                    _log.error("%s of %s are not sent any more: %s", name, self._job_name, error)
                    del sends[name]
                except Exception:
                    _log.exception("%d lines of %s were dropped", len(batch), self._job_name)
            with self._sent:
                self._waiting -= sum(len(text) + _BYTES_EACH for _, _, text in batch)
                self._sent.notify_all()

    def _batch(self) -> tuple[list[tuple[str, datetime, str]], bool]:
        """The lines of _BATCH_SECONDS after the first, and whether there may be more."""
        batch = []
        item = self._lines.get()
        until = time.monotonic() + _BATCH_SECONDS
        while item is not None:
            batch.append(item)
            left = until - time.monotonic()
            if left <= 0 or len(batch) == _MOST_EVENTS:
                return batch, True
            try:
                item = self._lines.get(timeout=left)
            except queue.Empty:
                return batch, True
        return batch, False

    def _send_lines(self, batch: list[tuple[str, datetime, str]]) -> None:
        by_host: dict[str, list[dict[str, Any]]] = {}
        for host, when, text in batch:
            # The service rejects empty messages.
            event = {"timestamp": round(when.timestamp() * 1000), "message": text or " "}
            by_host.setdefault(host, []).append(event)
        for host, events in by_host.items():
            for some in _requests(events):
                self._logs.put_log_events(logGroupName=LOG_GROUP, logStreamName=self._stream(host), logEvents=some)

    def _stream(self, host: str) -> str:
        if host not in self._streams:
            if not self._streams:
                self._make(self._logs.create_log_group, logGroupName=LOG_GROUP)
                self._logs.describe_log_streams(
                    logGroupName=LOG_GROUP, logStreamNamePrefix=f"{self._job_name}/", limit=1
                )
            stream = f"{self._job_name}/{host}-{int(time.time())}"
            self._make(self._logs.create_log_stream, logGroupName=LOG_GROUP, logStreamName=stream)
            self._streams[host] = stream
        return self._streams[host]

    def _make(self, create: Any, **names: str) -> None:
        with contextlib.suppress(self._logs.exceptions.ResourceAlreadyExistsException):
            create(**names)

    def _send_metrics(self, batch: list[tuple[str, datetime, str]]) -> None:
        dimensions = [{"Name": "TrainingJobName", "Value": self._job_name}]
        found = [
            {**metric, "Dimensions": dimensions} for _, when, text in batch for metric in self._metrics.read(text, when)
        ]
        for first in range(0, len(found), _MOST_METRICS):
            self._cloudwatch.put_metric_data(Namespace=NAMESPACE, MetricData=found[first : first + _MOST_METRICS])


def _requests(events: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The events in order, split by the limits of a request."""
    some: list[dict[str, Any]] = []
    size = 0
    for event in events:
        more = len(event["message"].encode()) + _BYTES_EACH
        if some and (size + more > _MOST_BYTES or len(some) == _MOST_EVENTS):
            yield some
            some, size = [], 0
        some.append(event)
        size += more
    if some:
        yield some
