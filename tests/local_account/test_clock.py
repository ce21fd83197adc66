"""The account's clock: what waits for a time goes on once the clock is advanced to it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from shell_jobs import BUCKET, ShellJobs

from sagemaker_local_account.account import LocalAccount
from sagemaker_local_account.faults import Interruption, Throttling

AN_ERROR_RATHER_THAN_A_HANG = 300
AN_HOUR = 3_600
A_DAY = 24 * AN_HOUR


def until(found: Callable[[], Any]) -> Any:
    limit = time.monotonic() + AN_ERROR_RATHER_THAN_A_HANG
    while time.monotonic() < limit:
        if value := found():
            return value
        time.sleep(0.05)
    raise AssertionError("it did not come to pass")


class Timed:
    """An account with a clock that tests advance, its jobs and its state machines."""

    def __init__(self, account: LocalAccount) -> None:
        self.account = account
        self.jobs = ShellJobs(account.environment(), account.state)
        self.states = self.jobs.client("stepfunctions")
        self.role = self.jobs.make_role("States", {"Service": "states.amazonaws.com"})

    def start(self, **definition: Any) -> str:
        number = len(self.states.list_state_machines()["stateMachines"])
        machine = self.states.create_state_machine(
            name=f"timed-{number}", definition=json.dumps(definition), roleArn=self.role
        )
        return str(self.states.start_execution(stateMachineArn=machine["stateMachineArn"])["executionArn"])

    def has_said(self, execution: str, event: str) -> None:
        """Returns once the history has an event of a type."""
        until(lambda: event in {one["type"] for one in self._history(execution)})

    def status(self, execution: str) -> str:
        return str(self.states.describe_execution(executionArn=execution)["status"])

    def ended(self, execution: str) -> str:
        return str(until(lambda: self.status(execution) != "RUNNING" and self.status(execution)))

    def _history(self, execution: str) -> Any:
        return self.states.get_execution_history(executionArn=execution)["events"]


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Timed]:
    with LocalAccount(state=tmp_path_factory.mktemp("account")) as account:
        yield Timed(account)


def waiting(seconds: int) -> dict[str, Any]:
    return {"StartAt": "Wait", "States": {"Wait": {"Type": "Wait", "Seconds": seconds, "End": True}}}


def test_a_wait_of_a_day_ends_when_a_day_has_passed_and_not_before(timed: Timed) -> None:
    execution = timed.start(**waiting(A_DAY))
    timed.has_said(execution, "WaitStateEntered")
    timed.account.clock.advance(A_DAY - AN_HOUR)
    short = timed.start(**waiting(AN_HOUR - 60))
    timed.has_said(short, "WaitStateEntered")
    assert timed.status(execution) == "RUNNING"
    timed.account.clock.advance(AN_HOUR)
    assert (timed.ended(execution), timed.ended(short)) == ("SUCCEEDED", "SUCCEEDED")


def test_the_dates_of_an_execution_are_by_the_accounts_clock(timed: Timed) -> None:
    timed.account.clock.advance(A_DAY)
    before = timed.account.clock.now()
    execution = timed.start(StartAt="Done", States={"Done": {"Type": "Succeed"}})
    timed.ended(execution)
    described = timed.states.describe_execution(executionArn=execution)
    # Dates are of whole milliseconds.
    assert before.replace(microsecond=0) <= described["startDate"] <= described["stopDate"] <= timed.account.clock.now()


def test_a_retry_is_made_when_its_interval_has_passed(timed: Timed) -> None:
    timed.account.faults.add(Throttling("ListTrainingJobs"))
    retry = {"ErrorEquals": ["States.ALL"], "IntervalSeconds": AN_HOUR, "MaxAttempts": 1}
    task = {"Type": "Task", "Resource": "arn:aws:states:::aws-sdk:sagemaker:listTrainingJobs", "Retry": [retry]}
    execution = timed.start(StartAt="List", States={"List": {**task, "End": True}})
    timed.has_said(execution, "TaskFailed")
    timed.account.clock.advance(AN_HOUR)
    assert timed.ended(execution) == "SUCCEEDED"


def test_an_execution_times_out_when_its_time_has_passed(timed: Timed) -> None:
    execution = timed.start(TimeoutSeconds=AN_HOUR, **waiting(A_DAY))
    timed.has_said(execution, "WaitStateEntered")
    timed.account.clock.advance(AN_HOUR)
    assert timed.ended(execution) == "TIMED_OUT"


def test_a_job_is_stopped_when_its_longest_runtime_has_passed(timed: Timed) -> None:
    sagemaker = timed.jobs.sagemaker
    program = "trap exit TERM; sleep 600 & wait"
    name = timed.jobs.create("long", program, StoppingCondition={"MaxRuntimeInSeconds": 2 * A_DAY})
    until(lambda: sagemaker.describe_training_job(TrainingJobName=name)["SecondaryStatus"] == "Training")
    timed.account.clock.advance(A_DAY)
    timed.account.clock.advance(A_DAY)
    until(lambda: sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobStatus"] == "Stopped")
    job = sagemaker.describe_training_job(TrainingJobName=name)
    assert job["SecondaryStatus"] == "MaxRuntimeExceeded"
    assert 2 * A_DAY <= job["TrainingTimeInSeconds"] < 2 * A_DAY + AN_HOUR
    assert job["OutputDataConfig"]["S3OutputPath"] == f"s3://{BUCKET}/models"


def test_the_longest_runtime_counts_what_ran_before_a_restart(timed: Timed) -> None:
    name = timed.jobs.create(
        "restarted",
        "trap exit TERM; echo runs; sleep 600 & wait",
        StoppingCondition={"MaxRuntimeInSeconds": 2 * A_DAY},
        RetryStrategy={"MaximumRetryAttempts": 1},
    )
    until(lambda: timed.jobs.said(name) == {"algo-1": ["runs"]})
    timed.account.clock.advance(A_DAY)
    timed.account.jobs.lose_host(name, "algo-1")
    until(lambda: timed.jobs.said(name) == {"algo-1": ["runs", "runs"]})
    timed.account.clock.advance(A_DAY)
    job = timed.jobs.ended(name)
    assert job["SecondaryStatus"] == "MaxRuntimeExceeded"
    assert job["TrainingStartTime"] == job["SecondaryStatusTransitions"][1]["StartTime"]
    assert 2 * A_DAY <= job["TrainingTimeInSeconds"] < 2 * A_DAY + AN_HOUR


def test_a_spot_job_is_stopped_when_its_longest_wait_has_passed_since_it_was_created(timed: Timed) -> None:
    timed.account.faults.add(Interruption("runs", away=A_DAY, job="spot"))
    name = timed.jobs.create(
        "spot",
        "trap exit TERM; echo runs; sleep 600 & wait",
        EnableManagedSpotTraining=True,
        StoppingCondition={"MaxRuntimeInSeconds": 2 * A_DAY, "MaxWaitTimeInSeconds": 2 * A_DAY},
    )
    describe = timed.jobs.sagemaker.describe_training_job
    until(lambda: describe(TrainingJobName=name)["SecondaryStatus"] == "Interrupted")
    timed.account.clock.advance(A_DAY)
    until(lambda: timed.jobs.said(name) == {"algo-1": ["runs", "runs"]})
    timed.account.clock.advance(A_DAY)
    job = timed.jobs.ended(name)
    assert job["SecondaryStatus"] == "MaxWaitTimeExceeded"
    assert 2 * A_DAY <= job["TrainingTimeInSeconds"] < 2 * A_DAY + AN_HOUR
    assert A_DAY <= job["BillableTimeInSeconds"] < A_DAY + AN_HOUR


def test_an_alarm_is_over_when_its_periods_have_passed(timed: Timed) -> None:
    cloudwatch = timed.jobs.client("cloudwatch")
    cloudwatch.put_metric_alarm(
        AlarmName="late",
        Namespace="Tests",
        MetricName="Late",
        Statistic="Sum",
        Period=AN_HOUR,
        EvaluationPeriods=1,
        ComparisonOperator="GreaterThanThreshold",
        Threshold=0,
        TreatMissingData="notBreaching",
    )

    def state() -> str:
        return str(cloudwatch.describe_alarms(AlarmNames=["late"])["MetricAlarms"][0]["StateValue"])

    cloudwatch.put_metric_data(Namespace="Tests", MetricData=[{"MetricName": "Late", "Value": 1}])
    until(lambda: state() == "ALARM")
    timed.account.clock.advance(10 * AN_HOUR)
    until(lambda: state() == "OK")
    cloudwatch.put_metric_data(Namespace="Tests", MetricData=[{"MetricName": "Late", "Value": 1}])
    until(lambda: state() == "ALARM")


def advanced_by(timed: Timed, time: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "local-account"
    command = [str(program), "--state", str(timed.account.state), "advance", time]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_the_command_line_advances_the_clock_of_a_running_account(timed: Timed) -> None:
    before = timed.account.clock.ahead
    assert advanced_by(timed, "20m").returncode == 0
    assert timed.account.clock.ahead - before == 1_200


@pytest.mark.parametrize(
    ("time", "said"),
    [
        ("20", "the time must be a number and s, m, h or d, like 20m, got '20'"),
        ("soon", "the time must be a number and s, m, h or d, like 20m, got 'soon'"),
        ("0s", "seconds must be a number above 0, like 1200, got 0"),
    ],
)
def test_a_time_that_is_none_is_one_line(timed: Timed, time: str, said: str) -> None:
    done = advanced_by(timed, time)
    assert done.returncode == 1
    assert said in done.stdout
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "20"])
def test_a_clock_goes_forward_only(timed: Timed, seconds: Any) -> None:
    with pytest.raises(ValueError, match="seconds must be a number above 0, like 1200, got "):
        timed.account.clock.advance(seconds)
