"""Retries by cause, drilled through deployed state machines: hours of waits in seconds, by the account's clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from deployed import Deployed, wait_until

from cdk_sagemaker_training import (
    Alternative,
    Budget,
    Cause,
    ChoiceField,
    DataParallelJob,
    InstanceGroup,
    MetricLimit,
    NumberField,
    Retry,
    S3Prefix,
    Silence,
    TextField,
    TrainingDashboard,
    TrainingImage,
    TrainingWorkflow,
    default_retries,
)
from cdk_sagemaker_training.lifecycle.polling import Poller
from sagemaker_local_account.faults import Capacity, Fault, LostHost, Quota, Throttling

A_FAILING_JOB = Path(__file__).parent / "a_failing_job"
TYPE, OTHER_TYPE = "ml.m5.xlarge", "ml.m5.2xlarge"
INTEGRATIONS = ("Sync", "Poll")
DRILLED = ("Sync", pytest.param("Poll", marks=pytest.mark.soak))  # the states around the job are the same
A_MINUTE, AN_HOUR = 60, 3_600
# The last event of an execution that waits: in a Wait state, or between the retries of a call.
WAITS = ("WaitStateEntered", "TaskFailed", "TaskSubmitFailed")


class Retried(cdk.Stack):
    """Workflows by both integrations: one with the default retries, one with all else."""

    def __init__(self, app: cdk.App) -> None:
        super().__init__(app, "Retried")
        bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
        image = TrainingImage.from_asset(self, "Image", directory=str(A_FAILING_JOB))
        topic, told = sns.Topic(self, "Topic"), sqs.Queue(self, "Told")
        topic.add_subscription(subscriptions.SqsSubscription(told, raw_message_delivery=True))
        cdk.CfnOutput(self, "ToldUrl", value=told.queue_url)
        for integration in INTEGRATIONS:
            workflow = TrainingWorkflow(
                self,
                integration,
                job=DataParallelJob(InstanceGroup(TYPE, sfn.JsonPath.number_at("$.machines"))),
                image=image,
                output=S3Prefix(bucket, "models/"),
                checkpoints=S3Prefix(bucket, "checkpoints/"),
                environment={"FAILURE": sfn.JsonPath.string_at("$.failure")},
                integration=integration.lower(),  # type: ignore[arg-type]
                retries=default_retries(),
                input_fields={
                    "failure": TextField(),
                    "machines": ChoiceField([1, 2]),
                    "weight": NumberField(0, 1),
                    "epochs": NumberField(1, 9, default=1, whole=True),
                },
            )
            self.write_arns(integration, workflow)
            managed = TrainingWorkflow(
                self,
                f"Managed{integration}",
                job=DataParallelJob(InstanceGroup(TYPE)),
                image=image,
                output=S3Prefix(bucket, "models/"),
                checkpoints=S3Prefix(bucket, "checkpoints/"),
                environment={"FAILURE": sfn.JsonPath.string_at("$.failure"), "BATCH": "64"},
                integration=integration.lower(),  # type: ignore[arg-type]
                alternatives=[Alternative(DataParallelJob(InstanceGroup(OTHER_TYPE, 2)), environment={"BATCH": "32"})],
                budget=Budget(hours=6, least=60),
                retries={Cause.RUNTIME_EXCEEDED: Retry(attempts=2)},
                max_runtime=5 * AN_HOUR,
                metric_definitions={"loss": "loss=([0-9.]+)"},
                notify=[topic],
                job_metrics=True,
                stop_when=[Silence(AN_HOUR), MetricLimit("loss", above=10.0)] if integration == "Poll" else [],
            )
            self.write_arns(f"Managed{integration}", managed)
            TrainingDashboard(self, f"{integration}Dashboard", workflow=managed, dollars_per_hour=1.0)

    def write_arns(self, name: str, workflow: TrainingWorkflow) -> None:
        cdk.CfnOutput(self, f"{name}Arn", value=workflow.state_machine.state_machine_arn)
        cdk.CfnOutput(self, f"{name}StopperArn", value=workflow.guard.stopper.state_machine_arn)
        poller = workflow.node.try_find_child("Poller")
        if isinstance(poller, Poller):
            cdk.CfnOutput(self, f"{name}PollerArn", value=poller.state_machine.state_machine_arn)


class Drill:
    """The workflow of one integration, and a clock that is advanced while its execution waits."""

    def __init__(self, deployed: Deployed, machine: str, stopper: str) -> None:
        self.deployed, self.machine, self.stopper = deployed, machine, stopper
        self.states = deployed.client("stepfunctions")
        self.clock = deployed.account.clock

    def start(self, failure: str = "none", **fields: Any) -> str:
        given = json.dumps({"failure": failure, "machines": 1, "weight": 0.5, **fields})
        return str(self.states.start_execution(stateMachineArn=self.machine, input=given)["executionArn"])

    def events(self, execution: str) -> list[dict[str, Any]]:
        pages = self.states.get_paginator("get_execution_history").paginate(executionArn=execution)
        return [event for page in pages for event in page["events"]]

    def entered(self, execution: str) -> list[str]:
        """The names of the states that an execution entered."""
        details = [
            event["stateEnteredEventDetails"] for event in self.events(execution) if "stateEnteredEventDetails" in event
        ]
        return [detail["name"] for detail in details]

    def run(self, failure: str = "none", meanwhile: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """An execution that has ended; five minutes pass at each look while it waits, after ``meanwhile``."""
        execution = self.start(failure)

        def ended() -> dict[str, Any] | None:
            described: dict[str, Any] = self.states.describe_execution(executionArn=execution)
            if described["status"] != "RUNNING":
                return described
            if any(event["type"] in WAITS for event in self.events(execution)[-1:]):
                meanwhile()
                self.clock.advance(5 * A_MINUTE)
            return None

        return wait_until(ended)

    def told_of(self, queue: str, execution: str, enough: Callable[[Any], bool]) -> dict[str, dict[str, Any]]:
        """The details of the events of an execution that the queue got, by the execution's status or the event's type."""
        told: dict[str, dict[str, Any]] = {}

        def is_enough() -> bool:
            received = self.deployed.client("sqs").receive_message(QueueUrl=queue, MaxNumberOfMessages=10)
            for event in (json.loads(message["Body"]) for message in received.get("Messages", ())):
                if execution in event["resources"]:
                    told[event["detail"].get("status") or event["detail-type"]] = event["detail"]
            return enough(told)

        wait_until(is_enough)
        return told

    def jobs(self, execution: str) -> list[dict[str, Any]]:
        return sorted(self.deployed.jobs_of(execution), key=lambda job: job["CreationTime"])

    def statuses(self, execution: str) -> list[str]:
        return [job["TrainingJobStatus"] for job in self.jobs(execution)]


@pytest.fixture(scope="module")
def machines(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return deployed.deploy(Retried(cdk.App(outdir=str(tmp_path_factory.mktemp("assembly")))))


@pytest.fixture
def mended(deployed: Deployed, no_job_left: None) -> Iterator[None]:
    """Mends what is left of the faults."""
    yield
    for name in deployed.account.faults.remaining():
        deployed.account.faults.mend(name)


@pytest.fixture(params=DRILLED)
def drill(request: pytest.FixtureRequest, deployed: Deployed, machines: dict[str, str], mended: None) -> Drill:
    return Drill(deployed, machines[f"{request.param}Arn"], machines[f"{request.param}StopperArn"])


@pytest.fixture(params=DRILLED)
def managed(request: pytest.FixtureRequest, deployed: Deployed, machines: dict[str, str], mended: None) -> Drill:
    return Drill(deployed, machines[f"Managed{request.param}Arn"], machines[f"Managed{request.param}StopperArn"])


@pytest.fixture
def watched(deployed: Deployed, machines: dict[str, str], mended: None) -> Drill:
    return Drill(deployed, machines["ManagedPollArn"], machines["ManagedPollStopperArn"])


def broken(drill: Drill, fault: Fault) -> str:
    return drill.deployed.account.faults.add(fault)


def test_two_capacity_errors_are_waited_out_and_the_third_job_succeeds(drill: Drill) -> None:
    broken(drill, Capacity(TYPE, times=2))
    began = drill.clock.ahead
    ended = drill.run()
    assert ended["status"] == "SUCCEEDED", ended.get("cause")
    assert drill.statuses(ended["executionArn"]) == ["Failed", "Failed", "Completed"]
    assert drill.clock.ahead - began >= 15 * A_MINUTE  # 5 and 10


def test_an_alternative_runs_at_once_on_its_own_machines_and_with_its_own_values(managed: Drill) -> None:
    broken(managed, Capacity(TYPE, times=None))
    ended = managed.deployed.ended(managed.start())
    assert ended["status"] == "SUCCEEDED", ended.get("cause")
    [first, second] = managed.jobs(ended["executionArn"])
    assert (first["TrainingJobStatus"], second["TrainingJobStatus"]) == ("Failed", "Completed")
    assert (second["ResourceConfig"]["InstanceType"], second["ResourceConfig"]["InstanceCount"]) == (OTHER_TYPE, 2)
    assert (first["Environment"]["BATCH"], second["Environment"]["BATCH"]) == ("64", "32")
    assert "WaitAfterCapacity" not in managed.entered(ended["executionArn"])


def test_topics_get_events_and_the_dashboard_metrics_of_the_start_the_retry_with_its_cause_and_the_end(
    managed: Drill, machines: dict[str, str]
) -> None:
    broken(managed, Capacity(TYPE, times=None))
    ended = managed.deployed.ended(managed.start())
    told = managed.told_of(machines["ToldUrl"], ended["executionArn"], lambda told: len(told) >= 3)
    assert set(told) == {"RUNNING", "SUCCEEDED", "Training Job Retried"}
    assert told["Training Job Retried"]["Cause"] == "capacity"
    assert {*told["SUCCEEDED"]} == {"executionArn", "stateMachineArn", "name", "status", "startDate"}
    cloudwatch = managed.deployed.client("cloudwatch")
    bodies = [
        json.loads(cloudwatch.get_dashboard(DashboardName=one["DashboardName"])["DashboardBody"])
        for one in cloudwatch.list_dashboards()["DashboardEntries"]
    ]
    shown = str([body for body in bodies if managed.machine in str(body)])
    put = [
        (one["MetricName"], {dimension["Name"]: dimension["Value"] for dimension in one["Dimensions"]})
        for one in cloudwatch.list_metrics(Namespace="cdk-sagemaker-training")["Metrics"]
    ]
    own = {"StateMachineArn": managed.machine}
    expected = [("FailedAttempts", {**own, "Cause": "capacity"}), ("TrainingTime", own), ("BillableTime", own)]
    for name, dimensions in expected:
        assert (name, dimensions) in put
        assert name in shown
        assert all(text in shown for text in dimensions.values())


def test_an_execution_whose_alternatives_have_no_capacity_either_names_the_cause(
    managed: Drill, machines: dict[str, str]
) -> None:
    broken(managed, Capacity(TYPE, times=None))
    broken(managed, Capacity(OTHER_TYPE, times=None))
    ended = managed.deployed.ended(managed.start())
    assert (ended["status"], ended["error"]) == ("FAILED", "TrainingJobFailed")
    assert ": capacity, not retried: CapacityError" in ended["cause"]
    told = managed.told_of(machines["ToldUrl"], ended["executionArn"], lambda told: "FAILED" in told)["FAILED"]
    assert {name: told[name] for name in ("error", "cause")} == {name: ended[name] for name in ("error", "cause")}
    assert "input" not in told
    assert managed.statuses(ended["executionArn"]) == ["Failed", "Failed"]


@pytest.mark.soak  # one that is left runs with each change
def test_a_budget_that_is_used_up_in_the_second_attempt_stops_it_and_begins_no_third(
    managed: Drill, machines: dict[str, str]
) -> None:
    execution = managed.start("endless")
    first = str(managed.deployed.the_job_of(execution)["TrainingJobName"])
    managed.deployed.has_said(first, "step ")
    managed.clock.advance(5 * AN_HOUR)
    wait_until(lambda: len(managed.jobs(execution)) == 2)
    second = str(managed.jobs(execution)[1]["TrainingJobName"])
    managed.deployed.has_said(second, "step ")
    managed.clock.advance(AN_HOUR)
    ended = managed.deployed.ended(execution)
    assert (ended["status"], ended["error"]) == ("FAILED", "TrainingBudgetUsed")
    assert f"{second}: the budget of 21600 seconds is used up: " in ended["cause"]
    [whole, rest] = managed.jobs(execution)
    assert [job["SecondaryStatus"] for job in (whole, rest)] == 2 * ["MaxRuntimeExceeded"]
    assert whole["StoppingCondition"]["MaxRuntimeInSeconds"] == 5 * AN_HOUR
    assert rest["StoppingCondition"]["MaxRuntimeInSeconds"] == 6 * AN_HOUR - whole["BillableTimeInSeconds"] <= AN_HOUR
    assert managed.deployed.said(second)[-1].startswith("stopped at ")
    warned = managed.told_of(machines["ToldUrl"], execution, lambda told: "Training Budget Nearly Used" in told)
    assert warned["Training Budget Nearly Used"]["SecondsLeft"] == 6 * AN_HOUR - whole["BillableTimeInSeconds"]


def test_a_job_whose_loss_diverges_is_stopped_with_its_last_checkpoint_and_the_cause_is_named(watched: Drill) -> None:
    execution = watched.start("diverges")
    ended = watched.deployed.ended(execution)
    assert (ended["status"], ended["error"]) == ("FAILED", "TrainingJobStopped")
    assert ended["cause"].endswith(": stopped, since loss was above 10 in 1 readings")
    [job] = watched.jobs(execution)
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "Stopped")
    [stopped] = [line for line in watched.deployed.said(job["TrainingJobName"]) if line.startswith("stopped at ")]
    bucket, _, key = job["CheckpointConfig"]["S3Uri"].removeprefix("s3://").partition("/")
    kept = watched.deployed.client("s3").get_object(Bucket=bucket, Key=f"{key}step")["Body"].read().decode()
    assert kept.strip() == stopped.split()[-1]


@pytest.mark.soak  # 60 polls
def test_a_job_of_which_no_host_logs_a_line_for_an_hour_is_stopped(watched: Drill, machines: dict[str, str]) -> None:
    execution = watched.start("silent")
    passed: set[tuple[str, int]] = set()

    def ended() -> dict[str, Any] | None:
        described: dict[str, Any] = watched.states.describe_execution(executionArn=execution)
        polls = watched.states.list_executions(stateMachineArn=machines["ManagedPollPollerArn"], statusFilter="RUNNING")
        for poll in polls["executions"]:
            [last] = watched.events(poll["executionArn"])[-1:]
            if last["type"] == "WaitStateEntered" and (poll["executionArn"], last["id"]) not in passed:
                passed.add((poll["executionArn"], last["id"]))
                watched.clock.advance(2 * A_MINUTE)
        return None if described["status"] == "RUNNING" else described

    end = wait_until(ended)
    assert (end["status"], end["error"]) == ("FAILED", "TrainingJobStopped")
    assert end["cause"].endswith(": stopped, since no host has logged a line for 3600 seconds")
    [job] = watched.jobs(execution)
    assert watched.deployed.said(job["TrainingJobName"])[-1].startswith("stopped at ")


def test_what_is_left_of_a_budget_is_returned_with_the_result(managed: Drill) -> None:
    ended = managed.deployed.ended(managed.start())
    [job] = managed.jobs(ended["executionArn"])
    assert json.loads(ended["output"])["Budget"]["SecondsLeft"] == 6 * AN_HOUR - job["BillableTimeInSeconds"]


@pytest.mark.soak
def test_a_quota_that_is_full_for_20_minutes_delays_one_job(drill: Drill) -> None:
    fault = broken(drill, Quota(TYPE, 1, 1, times=None))
    began = drill.clock.ahead

    def mend_after_20_minutes() -> None:
        faults = drill.deployed.account.faults
        if drill.clock.ahead - began >= 20 * A_MINUTE and fault in faults.remaining():
            faults.mend(fault)

    ended = drill.run(meanwhile=mend_after_20_minutes)
    assert ended["status"] == "SUCCEEDED", ended.get("cause")
    assert drill.statuses(ended["executionArn"]) == ["Completed"]
    assert drill.entered(ended["executionArn"]).count("WaitAfterQuota") >= 2  # 5 and 10 minutes, and a look later 20
    assert drill.clock.ahead - began >= 20 * A_MINUTE


@pytest.mark.soak
def test_a_quota_that_is_smaller_than_the_job_is_not_waited_for(drill: Drill) -> None:
    broken(drill, Quota(TYPE, 0, times=None))
    ended = drill.run()
    assert (ended["status"], ended["error"]) == ("FAILED", "SageMaker.ResourceLimitExceededException")
    assert "is 0 Instances, with current utilization of 0 Instances" in ended["cause"]
    assert "WaitAfterQuota" not in drill.entered(ended["executionArn"])


@pytest.mark.soak  # tests/constructs has the retriers
def test_a_throttled_api_is_called_again_until_it_answers(drill: Drill) -> None:
    broken(drill, Throttling("CreateTrainingJob", times=14))
    ended = drill.run()
    assert ended["status"] == "SUCCEEDED", ended.get("cause")
    assert drill.statuses(ended["executionArn"]) == ["Completed"]
    assert (
        drill.entered(ended["executionArn"]).count("SpreadLonger")
        + drill.entered(ended["executionArn"]).count("Spread")
        == 14
    )


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        ("ValueError: a bug", "algorithm error, not retried: AlgorithmError: ValueError: a bug"),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
            "out of memory, not retried: AlgorithmError: torch.OutOfMemoryError",
        ),
    ],
)
def test_what_a_script_does_wrong_is_billed_once_and_named(drill: Drill, failure: str, cause: str) -> None:
    ended = drill.run(failure)
    assert (ended["status"], ended["error"]) == ("FAILED", "TrainingJobFailed")
    assert cause in ended["cause"]
    assert drill.statuses(ended["executionArn"]) == ["Failed"]


def test_a_lost_host_is_replaced_at_once_and_training_goes_on_from_the_checkpoint(drill: Drill) -> None:
    broken(drill, LostHost("step 15 "))
    ended = drill.run("lost")
    assert ended["status"] == "SUCCEEDED", ended.get("cause")
    [lost, second] = drill.jobs(ended["executionArn"])
    assert lost["FailureReason"].startswith("InternalServerError")
    [begins] = [line for line in drill.deployed.said(second["TrainingJobName"]) if line.startswith("begins at")]
    assert int(begins.split()[-1]) > 0
    assert not any(name.startswith("WaitAfter") for name in drill.entered(ended["executionArn"]))


def test_an_execution_that_is_stopped_while_it_waits_leaves_no_job_and_starts_none(drill: Drill) -> None:
    broken(drill, Capacity(TYPE, times=None))
    execution = drill.start()
    wait_until(lambda: "WaitAfterCapacity" in drill.entered(execution))
    drill.states.stop_execution(executionArn=execution)
    drill.clock.advance(AN_HOUR)

    def stopped() -> bool:
        drill.clock.advance(A_MINUTE)
        started = drill.states.list_executions(stateMachineArn=drill.stopper)["executions"]
        described = [drill.states.describe_execution(executionArn=one["executionArn"]) for one in started]
        return any(execution in one["input"] and one["status"] == "SUCCEEDED" for one in described)

    wait_until(stopped)
    assert drill.states.describe_execution(executionArn=execution)["status"] == "ABORTED"
    assert drill.statuses(execution) == ["Failed"]


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"machines": 3}, "machines must be one of 1, 2, got 3"),
        ({"machines": "2"}, 'machines must be one of 1, 2, got "2"'),
        ({"weight": 1.5}, "weight must be a number of at least 0 and at most 1, got 1.5"),
        ({"weight": "low"}, 'weight must be a number of at least 0 and at most 1, got "low"'),
        ({"epochs": 2.5}, "epochs must be a whole number of at least 1 and at most 9, got 2.5"),
        ({"failure": 5}, "failure must be text, got 5"),
    ],
)
def test_an_input_that_is_not_allowed_ends_the_execution_before_there_is_a_job(
    drill: Drill, fields: dict[str, Any], cause: str
) -> None:
    ended = drill.deployed.ended(drill.start(**fields))
    assert (ended["status"], ended["error"], ended["cause"]) == ("FAILED", "InvalidInput", cause)
    assert drill.statuses(ended["executionArn"]) == []


def test_an_input_without_a_field_ends_the_execution_before_there_is_a_job(drill: Drill) -> None:
    execution = drill.states.start_execution(stateMachineArn=drill.machine, input='{"failure": "none"}')["executionArn"]
    ended = drill.deployed.ended(execution)
    assert (ended["error"], ended["cause"]) == ("InvalidInput", "machines must be one of 1, 2, got nothing")
    assert drill.statuses(execution) == []
