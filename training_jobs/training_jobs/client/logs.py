"""The log lines of a job, merged over its hosts."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from training_jobs.client.errors import code_of

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
_LATE_MS = 30_000  # CloudWatch Logs may show an event of one host after later ones of another


@dataclass(frozen=True)
class LogLine:
    """One line that a host printed.

    Attributes:
        time: When, in UTC.
        host: Such as ``"algo-1"``.
        message: The line.
    """

    time: datetime
    host: str
    message: str


class LogReader:
    """Reads the lines of one job that have a text, each once, from CloudWatch Logs.

    SageMaker's training toolkit prints an empty one after each line of the script (sagemaker-training 5.1.4, process.py).
    """

    def __init__(
        self,
        logs: Any,
        job_name: str,
        *,
        hosts: Collection[str] | None = None,
        since: datetime | None = None,
        grep: str | None = None,
    ) -> None:
        """Prepare to read; nothing is called yet.

        Args:
            logs: boto3's client of CloudWatch Logs.
            job_name: The job.
            hosts: The hosts whose lines are read, such as ``["algo-1"]``; None for all.
            since: The earliest time of a line; None for all.
            grep: A regular expression that lines must contain; None for all.

        Raises:
            re.error: ``grep`` is no regular expression.
        """
        self._logs = logs
        self._hosts = None if hosts is None else set(hosts)
        only = next(iter(self._hosts)) if self._hosts and len(self._hosts) == 1 else None
        self._prefix = f"{job_name}/" if only is None else f"{job_name}/{only}-"
        self._since = None if since is None else int(since.timestamp() * 1000)
        matches: Callable[[str], Any] = (lambda line: True) if grep is None else re.compile(grep).search
        self._matches = matches
        self._seen: dict[str, int] = {}

    def read(self) -> list[LogLine]:
        """Return the lines that were not returned before, by time; none while no host has printed anything."""
        pages = self._logs.get_paginator("filter_log_events").paginate(
            logGroupName=LOG_GROUP,
            logStreamNamePrefix=self._prefix,
            **({} if self._since is None else {"startTime": self._since}),
        )
        try:
            events = [event for page in pages for event in page["events"] if event["eventId"] not in self._seen]
        except self._logs.exceptions.ClientError as error:
            if code_of(error) == "ResourceNotFoundException":  # the group is created with the account's first job
                return []
            raise
        self._remember(events)
        lines = [_line(event) for event in sorted(events, key=lambda event: event["timestamp"])]
        return [line for line in lines if self._wanted(line)]

    def _remember(self, events: list[dict[str, Any]]) -> None:
        """Record what was read: the next call requests newer events, and those that may be late."""
        self._seen |= {event["eventId"]: event["timestamp"] for event in events}
        if self._seen:
            self._since = max(self._since or 0, max(self._seen.values()) - _LATE_MS)
            self._seen = {event: time for event, time in self._seen.items() if time >= self._since}

    def _wanted(self, line: LogLine) -> bool:
        of_host = self._hosts is None or line.host in self._hosts
        return of_host and bool(line.message.strip()) and bool(self._matches(line.message))


def messages_with(logs: Any, job_name: str, text: str) -> Iterator[str]:
    """Yield the messages of a job's log that contain a text.

    Args:
        logs: boto3's client of CloudWatch Logs.
        job_name: The job.
        text: The text, without quotes.
    """
    pages = logs.get_paginator("filter_log_events").paginate(
        logGroupName=LOG_GROUP, logStreamNamePrefix=f"{job_name}/", filterPattern=f'"{text}"'
    )
    try:
        yield from (event["message"] for page in pages for event in page["events"])
    except logs.exceptions.ClientError as error:
        if code_of(error) != "ResourceNotFoundException":  # the group is created with the account's first job
            raise


def _line(event: dict[str, Any]) -> LogLine:
    # JOB/algo-1-1700000000; a job that was restarted has several streams of a host.
    host = event["logStreamName"].partition("/")[2].rpartition("-")[0]
    return LogLine(datetime.fromtimestamp(event["timestamp"] / 1000, UTC), host, event["message"].rstrip("\n"))
