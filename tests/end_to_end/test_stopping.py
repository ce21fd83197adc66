"""The state machine that stops the jobs of executions that ended before them, in an account that throttles as AWS does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from deployed import Deployed, wait_until
from shell_jobs import ShellJobs

from cdk_sagemaker_training.guard import stopping
from sagemaker_local_account.account import LocalAccount
from sagemaker_local_account.faults import Throttling

WAITING = {"StartAt": "Wait", "States": {"Wait": {"Type": "Wait", "Seconds": 600, "End": True}}}


class Watched:
    """A state machine whose executions wait, and the stopper that a rule starts when they end."""

    def __init__(self, account: LocalAccount) -> None:
        self.account, self.deployed = account, Deployed(account)
        self.jobs = ShellJobs(account.environment(), account.state)
        self.states = self.deployed.client("stepfunctions")
        self.role = self.jobs.make_role(
            "States", {"Service": "states.amazonaws.com"}, {"Service": "events.amazonaws.com"}
        )
        self.machine = self.create("watched", WAITING)
        self.stopper = self.create("stopper", stopping.stopping_definition({}, "aws"))
        events = self.deployed.client("events")
        pattern = {
            "source": ["aws.states"],
            "detail": {"stateMachineArn": [self.machine], "status": ["ABORTED", "FAILED", "TIMED_OUT"]},
        }
        events.put_rule(Name="ended", EventPattern=json.dumps(pattern))
        target = {"Id": "1", "Arn": self.stopper, "RoleArn": self.role, "InputPath": "$.detail"}
        events.put_targets(Rule="ended", Targets=[target])

    def create(self, name: str, definition: dict[str, Any]) -> str:
        created = self.states.create_state_machine(name=name, definition=json.dumps(definition), roleArn=self.role)
        return str(created["stateMachineArn"])

    def job(self, execution: str, attempt: str = "1", program: str = "trap exit TERM; sleep 600 & wait") -> str:
        """A job of an execution, by its name."""
        return self.jobs.create(f"watched-{hashlib.md5(execution.encode()).hexdigest()}-{attempt}", program)

    def abort(self, execution: str) -> None:
        self.states.stop_execution(executionArn=execution)

    def all_stopped(self, executions: list[str]) -> list[str]:
        """The statuses of the stopper's executions for these, once there is one for each and all have ended."""
        of: dict[str, str] = {}  # by the stopper's execution, that which it is for

        def ended() -> list[str] | None:
            pages = self.states.get_paginator("list_executions").paginate(stateMachineArn=self.stopper)
            found = {one["executionArn"]: one["status"] for page in pages for one in page["executions"]}
            for arn in found.keys() - of.keys():
                of[arn] = json.loads(self.states.describe_execution(executionArn=arn)["input"])["executionArn"]
            statuses = [status for arn, status in found.items() if of[arn] in executions]
            return statuses if len(statuses) == len(executions) and "RUNNING" not in statuses else None

        return wait_until(ended)

    def stop_directly(self, execution: str, **detail: Any) -> str:
        given = json.dumps({"executionArn": execution, "error": None, **detail})
        return str(self.states.start_execution(stateMachineArn=self.stopper, input=given)["executionArn"])

    def calls_of(self, execution: str) -> int:
        pages = self.states.get_paginator("get_execution_history").paginate(executionArn=execution)
        return sum(event["type"] == "TaskScheduled" for page in pages for event in page["events"])

    def waits_for_late_jobs(self, execution: str) -> None:
        wait_until(lambda: "WaitForLateJobs" in json.dumps(self._history(execution), default=str))

    def _history(self, execution: str) -> Any:
        return self.states.get_execution_history(executionArn=execution)["events"]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with pytest.MonkeyPatch.context() as patch, LocalAccount(state=tmp_path_factory.mktemp("account")) as account:
        patch.setattr(stopping, "_SECONDS_BETWEEN_LOOKS", 2)
        yield Watched(account)


@pytest.mark.parametrize("at_once", [6, pytest.param(60, marks=pytest.mark.soak)])
def test_executions_that_end_at_once_leave_no_job_running(watched: Watched, at_once: int) -> None:
    executions = [watched.deployed.start(watched.machine) for _ in range(at_once)]
    jobs = [watched.job(execution) for execution in executions[:: at_once // 3]]
    for execution in executions:
        watched.abort(execution)
    assert watched.all_stopped(executions) == ["SUCCEEDED"] * at_once
    assert watched.jobs.statuses(jobs) == ["Stopped"] * len(jobs)


def test_the_attempt_that_runs_is_stopped_and_those_before_it_are_left_alone(watched: Watched) -> None:
    execution = watched.deployed.start(watched.machine)
    before = [watched.job(execution, attempt, "true") for attempt in ("c1", "1")]
    assert watched.jobs.statuses(before) == ["Completed"] * 2
    last = watched.job(execution, "2")
    watched.abort(execution)
    assert watched.jobs.statuses([last]) == ["Stopped"]


def test_a_call_that_is_throttled_is_made_again(watched: Watched) -> None:
    execution = watched.deployed.start(watched.machine)
    job = watched.job(execution)
    watched.account.faults.add(Throttling("StopTrainingJob", times=3))
    watched.abort(execution)
    assert watched.jobs.statuses([job]) == ["Stopped"]


@pytest.mark.soak
def test_an_execution_of_the_stopper_that_was_throttled_for_too_long_fails(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "_RETRIED_SECONDS", 1)
    impatient = watched.create("impatient", stopping.stopping_definition({}, "aws"))
    execution = watched.deployed.start(watched.machine)
    fault = watched.account.faults.add(Throttling("StopTrainingJob", times=None))
    watched.job(execution)
    given = json.dumps({"executionArn": execution})
    started = watched.states.start_execution(stateMachineArn=impatient, input=given)["executionArn"]
    ended = watched.deployed.ended(started)
    watched.account.faults.mend(fault)
    assert (ended["status"], ended["error"]) == ("FAILED", "TrainingJobMayStillRun")
    assert "Rate exceeded" in ended["cause"]


@pytest.mark.parametrize(("redriven", "status"), [(False, "Stopped"), (True, "Completed")])
def test_a_job_that_comes_late_is_stopped_unless_its_execution_was_redriven(
    watched: Watched, redriven: bool, status: str
) -> None:
    execution = watched.deployed.start(watched.machine)
    if not redriven:
        watched.abort(execution)
    stopper = watched.stop_directly(execution)
    watched.waits_for_late_jobs(stopper)
    job = watched.job(execution, program="sleep 5")
    assert watched.deployed.ended(stopper)["status"] == "SUCCEEDED"
    assert watched.jobs.statuses([job]) == [status]


@pytest.mark.parametrize("error", ["TrainingJobFailed", "TrainingJobStopped"])
def test_nothing_is_called_where_the_execution_failed_because_its_job_is_over(watched: Watched, error: str) -> None:
    stopper = watched.stop_directly(watched.deployed.start(watched.machine), error=error, status="FAILED")
    assert watched.deployed.ended(stopper)["status"] == "SUCCEEDED"
    assert watched.calls_of(stopper) == 0
