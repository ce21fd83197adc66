"""An execution of a workflow: its states, its jobs, its end."""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from training_jobs.client.errors import NotFoundError, code_of
from training_jobs.client.jobs import Job
from training_jobs.client.polling import poll

if TYPE_CHECKING:
    from training_jobs.client.account import Account


GOING_ON = ("RUNNING", "PENDING_REDRIVE")


@dataclass
class StateVisit:
    """What an execution did in one of its states.

    Attributes:
        name: The state's name.
        entered: When it was entered first, in UTC.
        times: How often it was entered.
        errors: The errors of its calls, each of which was retried or caught, such as ``"ThrottlingException: slow down"``.
        failures: Its jobs that did not complete, such as ``"train-1 Failed: AlgorithmError: exit code 1"``.
        over: Whether it was left.
    """

    name: str
    entered: datetime
    times: int = 1
    errors: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    over: bool = False


class Execution:
    """One execution of a workflow.

    Attributes:
        arn: Its ARN.
        name: Its name.
    """

    def __init__(self, account: Account, arn: str) -> None:
        """Refer to an execution; nothing is called yet.

        Args:
            account: The account.
            arn: The execution's ARN.
        """
        self.arn = arn
        self.name = arn.rpartition(":")[2]
        self._account = account

    def __repr__(self) -> str:
        return f"Execution({self.arn!r})"

    def describe(self) -> dict[str, Any]:
        """Return the response of DescribeExecution.

        Raises:
            NotFoundError: There is no such execution.
        """
        states = self._account.client("stepfunctions")
        try:
            answer: dict[str, Any] = states.describe_execution(executionArn=self.arn)
        except states.exceptions.ClientError as error:
            if code_of(error) in ("ExecutionDoesNotExist", "InvalidArn"):
                raise NotFoundError(f"no execution {self.arn} in {self._account.region}") from None
            raise
        answer.pop("ResponseMetadata", None)
        return answer

    @property
    def status(self) -> str:
        """``"RUNNING"``, ``"SUCCEEDED"``, ``"FAILED"``, ``"TIMED_OUT"``, ``"ABORTED"`` or ``"PENDING_REDRIVE"``."""
        return str(self.describe()["status"])

    def jobs(self) -> list[Job]:
        """Return its jobs, in the order in which they were created.

        Their names contain a hash of the execution's ARN, so that one list finds them.
        """
        digest = hashlib.md5(self.arn.encode(), usedforsecurity=False).hexdigest()
        pages = (
            self._account.client("sagemaker")
            .get_paginator("list_training_jobs")
            .paginate(NameContains=digest, SortBy="CreationTime", SortOrder="Ascending")
        )
        return [Job(self._account, it["TrainingJobName"]) for page in pages for it in page["TrainingJobSummaries"]]

    def job(self) -> Job:
        """Return its newest job.

        Raises:
            NotFoundError: It has created none yet, or ended without one.
        """
        jobs = self.jobs()
        if not jobs:
            described = self.describe()
            why = f": {described.get('error')}: {described.get('cause')}" if described.get("error") else ""
            raise NotFoundError(f"execution {self.name} has no training job yet (it is {described['status']}{why})")
        return jobs[-1]

    def states(self) -> list[StateVisit]:
        """Return the states that it entered, in that order, each once."""
        visits: dict[str, StateVisit] = {}
        current = ""
        pages = (
            self._account.client("stepfunctions")
            .get_paginator("get_execution_history")
            .paginate(executionArn=self.arn, includeExecutionData=False)
        )
        for event in (event for page in pages for event in page["events"]):
            if "stateEnteredEventDetails" in event:
                current = event["stateEnteredEventDetails"]["name"]
                known = visits.get(current)
                if known is None:
                    visits[current] = StateVisit(current, event["timestamp"])
                else:
                    known.times, known.over = known.times + 1, False
            elif "stateExitedEventDetails" in event:
                visits[event["stateExitedEventDetails"]["name"]].over = True
            elif current and (details := _failure_of(event)) is not None:
                job = _job_of(details.get("cause", ""))
                if job is None:
                    error = f"{details.get('error', event['type'])}: {details.get('cause', '')}".rstrip(": ")
                    visits[current].errors.append(error)
                else:
                    why = f": {reason}" if (reason := job.get("FailureReason")) else ""
                    visits[current].failures.append(f"{job['TrainingJobName']} {job['TrainingJobStatus']}{why}")
        return list(visits.values())

    def stop(self) -> None:
        """Stop it, and thereby its job; returns at once. One that is over is left as it is."""
        if self.status == "RUNNING":
            self._account.client("stepfunctions").stop_execution(executionArn=self.arn)

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
        return poll(self.describe, lambda it: it["status"] not in GOING_ON, poll_seconds, progress)

    def input(self) -> dict[str, Any]:
        """Return its input."""
        return dict(json.loads(self.describe().get("input") or "{}"))

    def _repr_html_(self) -> str:
        """Return what a notebook shows of it."""
        described = self.describe()
        jobs = [job.describe() for job in self.jobs()]
        rows = [
            f"<tr><td>{html.escape(job['TrainingJobName'])}</td><td>{html.escape(job['SecondaryStatus'])}</td>"
            f"<td>{job.get('BillableTimeInSeconds', '')}</td><td>{html.escape(job.get('FailureReason', ''))}</td></tr>"
            for job in jobs
        ]
        return (
            f"<b>{html.escape(self.name)}</b> {html.escape(described['status'])}"
            "<table><tr><th>job</th><th>status</th><th>billed seconds</th><th>reason</th></tr>"
            f"{''.join(rows)}</table>"
        )


def _failure_of(event: dict[str, Any]) -> dict[str, Any] | None:
    """The details of a failed call, which an event of the types TaskFailed, TaskSubmitFailed and TaskTimedOut has."""
    for key, details in event.items():
        if key.startswith("task") and key.endswith(("FailedEventDetails", "TimedOutEventDetails")):
            return dict(details)
    return None


def _job_of(cause: str) -> dict[str, Any] | None:
    """The job whose description is the cause of an error of `createTrainingJob.sync`; None for the cause of another error."""
    try:
        described = json.loads(cause)
    except ValueError:
        return None
    known = isinstance(described, dict) and {"TrainingJobName", "TrainingJobStatus"} <= described.keys()
    return described if known else None
