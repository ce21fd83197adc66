"""Faults on demand, as a deployed state machine and DescribeTrainingJob show them: in AWS's words."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_stepfunctions as sfn
from deployed import Deployed, wait_until

from cdk_sagemaker_training import (
    DataParallelJob,
    InstanceGroup,
    S3Channel,
    S3Prefix,
    Spot,
    TrainingImage,
    TrainingWorkflow,
)
from sagemaker_local_account.faults import (
    Capacity,
    Fault,
    FullDisk,
    Interruption,
    LateHost,
    LostAnswer,
    LostEvent,
    LostHost,
    NotCancelled,
    Quota,
    SlowS3,
    Throttling,
)

A_STEPPING_JOB = Path(__file__).parent / "a_stepping_job"
TYPE = "ml.m5.xlarge"
INTEGRATIONS = ("Sync", "Poll")
DRILLED = ("Sync", pytest.param("Poll", marks=pytest.mark.soak))  # the job meets the fault, not what waits for it


class Stepping(cdk.Stack):
    """One workflow for each kind of job that the tests break, by both integrations."""

    def __init__(self, app: cdk.App) -> None:
        super().__init__(app, "Stepping")
        bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
        image = TrainingImage.from_asset(self, "Image", directory=str(A_STEPPING_JOB))
        cdk.CfnOutput(self, "BucketName", value=bucket.bucket_name)
        spot = {"environment": {"STEPS": "80"}, "max_runtime": cdk.Duration.seconds(60)}
        checkpoints = S3Prefix(bucket, "checkpoints/")
        for integration in INTEGRATIONS:
            long = {"Long": {"environment": {"STEPS": "2000"}}} if integration == "Poll" else {}
            for name, props in {
                **long,
                "Once": {},
                "Twice": {"retries": 1},
                "Spot": {**spot, "spot": Spot(checkpoints, max_wait=cdk.Duration.seconds(90))},
                "Short": {
                    "environment": {"STEPS": "40"},
                    "max_runtime": cdk.Duration.seconds(5),
                    "spot": Spot(checkpoints, max_wait=cdk.Duration.seconds(6)),
                },
                "Hosts": {"job": DataParallelJob(InstanceGroup(TYPE, 2)), "environment": {"STEPS": "40"}},
                "Data": {"channels": {"letters": S3Channel(bucket, "letters/")}},
                "Large": {"environment": {"STEPS": "1", "MODEL_BYTES": "4000000"}},
            }.items():
                workflow = TrainingWorkflow(
                    self,
                    integration + name,
                    image=image,
                    output=S3Prefix(bucket, "models/"),
                    integration=integration.lower(),  # type: ignore[arg-type]
                    **{"job": DataParallelJob(InstanceGroup(TYPE)), **props},  # type: ignore[arg-type]
                )
                cdk.CfnOutput(self, f"{integration}{name}Arn", value=workflow.state_machine.state_machine_arn)
                if name == "Long":
                    language = sfn.QueryLanguage.JSONATA
                    body = sfn.DefinitionBody.from_chainable(workflow.as_task(self, "Train", query_language=language))
                    machine = sfn.StateMachine(self, "Parent", definition_body=body, query_language=language)
                    workflow.stop_with(machine)
                    cdk.CfnOutput(self, "ParentArn", value=machine.state_machine_arn)


@pytest.fixture(scope="module")
def machines(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    outputs = deployed.deploy(Stepping(cdk.App(outdir=str(tmp_path_factory.mktemp("assembly")))))
    deployed.client("s3").put_object(Bucket=outputs["BucketName"], Key="letters/a.txt", Body=b"a" * 1000)
    return outputs


@pytest.fixture(params=DRILLED)
def machine(request: pytest.FixtureRequest, machines: dict[str, str]) -> Any:
    """The state machine of a name, by one integration and by the other."""
    return lambda name: machines[f"{request.param}{name}Arn"]


@pytest.fixture
def broken(deployed: Deployed) -> Iterator[Any]:
    """Breaks the account, and mends what is left of it."""
    faults = deployed.account.faults
    yield faults.add
    for name in faults.remaining():
        faults.mend(name)


def executed(deployed: Deployed, machine: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """An execution that has ended, and its jobs."""
    ended = deployed.ended(deployed.start(machine))
    jobs = sorted(deployed.jobs_of(ended["executionArn"]), key=lambda job: job["CreationTime"])
    return ended, jobs


def statuses(job: dict[str, Any]) -> list[str]:
    return [transition["Status"] for transition in job["SecondaryStatusTransitions"]]


def errors_of(deployed: Deployed, ended: dict[str, Any]) -> list[tuple[str, str]]:
    """Error and cause of each task that failed."""
    events = deployed.client("stepfunctions").get_execution_history(executionArn=ended["executionArn"])["events"]
    details = [event["taskFailedEventDetails"] for event in events if "taskFailedEventDetails" in event]
    return [(detail["error"], detail["cause"]) for detail in details]


def test_a_job_without_capacity_fails_with_a_capacity_error(deployed: Deployed, machine: Any, broken: Any) -> None:
    broken(Capacity(TYPE))
    ended, [job] = executed(deployed, machine("Once"))
    assert (ended["status"], ended["error"]) == ("FAILED", "TrainingJobFailed")
    assert "CapacityError: Unable to provision requested ML compute capacity" in ended["cause"]
    assert job["FailureReason"].startswith("CapacityError: ")
    assert statuses(job) == ["Starting", "Failed"]
    assert job["SecondaryStatusTransitions"][0]["StatusMessage"].startswith("Insufficient capacity error from EC2")
    assert "BillableTimeInSeconds" not in job


def test_the_next_attempt_finds_capacity_that_has_come_back(deployed: Deployed, machine: Any, broken: Any) -> None:
    broken(Capacity(TYPE))
    ended, [first, second] = executed(deployed, machine("Twice"))
    assert ended["status"] == "SUCCEEDED"
    assert [first["TrainingJobStatus"], second["TrainingJobStatus"]] == ["Failed", "Completed"]


@pytest.mark.soak  # the faults are tested in tests/local_account
def test_capacity_of_another_type_does_not_matter(deployed: Deployed, machines: dict[str, str], broken: Any) -> None:
    broken(Capacity("ml.p4d.24xlarge", times=None))
    assert executed(deployed, machines["PollOnceArn"])[0]["status"] == "SUCCEEDED"


def test_a_create_beyond_the_quota_is_refused(deployed: Deployed, machine: Any, broken: Any) -> None:
    broken(Quota(TYPE, times=None))
    ended, jobs = executed(deployed, machine("Once"))
    assert jobs == []
    assert (ended["status"], ended["error"]) == ("FAILED", "SageMaker.ResourceLimitExceededException")
    assert f"The account-level service limit '{TYPE} for training job usage' is 0 Instances" in ended["cause"]


@pytest.mark.soak  # test_stopping.py has a throttled call
def test_a_throttled_create_is_tried_again(deployed: Deployed, machine: Any, broken: Any) -> None:
    broken(Throttling("CreateTrainingJob", times=2))
    ended, jobs = executed(deployed, machine("Once"))
    assert (ended["status"], len(jobs)) == ("SUCCEEDED", 1)
    errors = errors_of(deployed, ended)
    assert {error for error, _ in errors} <= {"SageMaker.SageMakerException", "SageMaker.AmazonSageMakerException"}
    assert ["Rate exceeded" in cause for _, cause in errors] == [True, True]


def test_an_interrupted_spot_job_starts_again_at_its_checkpoint(deployed: Deployed, machine: Any, broken: Any) -> None:
    broken(Interruption("step 20 ", away=3))
    ended, [job] = executed(deployed, machine("Spot"))
    assert ended["status"] == "SUCCEEDED", ended.get("cause")
    assert statuses(job) == [
        "Starting",
        "Downloading",
        "Training",
        "Interrupted",
        "Starting",
        "Downloading",
        "Training",
        "Uploading",
        "Completed",
    ]
    said = deployed.said(job["TrainingJobName"])
    assert "told to stop" in said
    [first, second] = [int(line.split()[-1]) for line in said if line.startswith("begins at")]
    assert first == 0
    assert second >= 20
    assert job["TrainingTimeInSeconds"] - job["BillableTimeInSeconds"] in (2, 3, 4)


@pytest.mark.soak  # the faults are tested in tests/local_account
def test_a_job_on_demand_is_not_interrupted(deployed: Deployed, machines: dict[str, str], broken: Any) -> None:
    broken(Interruption())
    _, [job] = executed(deployed, machines["PollOnceArn"])
    assert "Interrupted" not in statuses(job)
    assert job["TrainingTimeInSeconds"] == job["BillableTimeInSeconds"]


@pytest.mark.soak
def test_a_spot_job_that_finds_no_machines_in_time_stops(deployed: Deployed, machine: Any, broken: Any) -> None:
    broken(Interruption("step 2 ", away=600))
    ended, [job] = executed(deployed, machine("Short"))
    assert (ended["status"], ended["error"]) == ("FAILED", "TrainingJobStopped")
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "MaxWaitTimeExceeded")
    assert statuses(job)[-2:] == ["Interrupted", "MaxWaitTimeExceeded"]


def test_a_lost_host_fails_the_job_with_a_reason_that_names_it(deployed: Deployed, machine: Any, broken: Any) -> None:
    broken(LostHost("step 5 ", host="algo-2"))
    ended, [job] = executed(deployed, machine("Hosts"))
    assert (ended["status"], ended["error"]) == ("FAILED", "TrainingJobFailed")
    assert job["FailureReason"].startswith("InternalServerError: the host algo-2 was lost")


@pytest.mark.soak  # waits for the host
def test_a_late_host_starts_after_the_others(deployed: Deployed, machines: dict[str, str], broken: Any) -> None:
    broken(LateHost("algo-2", 2))
    ended, [job] = executed(deployed, machines["PollHostsArn"])
    assert ended["status"] == "SUCCEEDED"
    events = deployed.client("logs").filter_log_events(
        logGroupName="/aws/sagemaker/TrainingJobs",
        logStreamNamePrefix=job["TrainingJobName"],
        filterPattern='"begins at 0"',
    )["events"]
    began = {event["logStreamName"].split("/")[1][:6]: event["timestamp"] for event in events}
    assert began["algo-2"] - began["algo-1"] >= 1_500


def test_a_full_disk_fails_the_script(deployed: Deployed, machine: Any, broken: Any) -> None:
    broken(FullDisk("algo-1", 2))
    ended, [job] = executed(deployed, machine("Large"))
    assert ended["status"] == "FAILED"
    assert job["FailureReason"].startswith("AlgorithmError: ")
    assert any("No space left on device" in line for line in deployed.said(job["TrainingJobName"]))


def test_a_disk_with_room_keeps_what_is_written(deployed: Deployed, machines: dict[str, str], broken: Any) -> None:
    broken(FullDisk("algo-1", 64))
    ended, [job] = executed(deployed, machines["PollLargeArn"])
    assert ended["status"] == "SUCCEEDED", ended.get("cause")
    assert job["ModelArtifacts"]["S3ModelArtifacts"].endswith("model.tar.gz")


@pytest.mark.soak  # waits for the download
def test_a_slow_s3_makes_the_download_long(deployed: Deployed, machines: dict[str, str], broken: Any) -> None:
    broken(SlowS3(bytes_per_second=1_000, latency=0.2, times=None))
    ended, [job] = executed(deployed, machines["PollDataArn"])
    assert ended["status"] == "SUCCEEDED"
    [downloading] = [t for t in job["SecondaryStatusTransitions"] if t["Status"] == "Downloading"]
    assert (downloading["EndTime"] - downloading["StartTime"]).total_seconds() >= 1.2


def test_the_guard_stops_a_job_whose_stopped_execution_lost_its_event(
    deployed: Deployed, machines: dict[str, str], broken: Any
) -> None:
    def alarm() -> str:
        alarms = deployed.client("cloudwatch").describe_alarms(
            AlarmNamePrefix="Stepping-SageMakerTrainingJobsGuardAlarm"
        )
        return str(alarms["MetricAlarms"][0]["StateValue"])

    def looked() -> bool:
        metric = {"Namespace": "AWS/States", "MetricName": "ExecutionsSucceeded"}
        found = deployed.client("cloudwatch").list_metrics(**metric)["Metrics"]
        return any("GuardReconciler" in dimension["Value"] for one in found for dimension in one["Dimensions"])

    broken(LostEvent("FAILED"))  # which does not matter
    broken(LostEvent("ABORTED"))
    execution = deployed.start(machines["PollLongArn"])
    deployed.the_job_of(execution, until="Training")
    deployed.account.clock.advance(900)
    wait_until(looked)
    assert alarm() != "ALARM"
    deployed.client("stepfunctions").stop_execution(executionArn=execution)
    assert deployed.ended(execution)["status"] == "ABORTED"
    deployed.account.clock.advance(900)

    def stopped() -> Any:
        deployed.account.clock.advance(60)
        return [
            job for job in deployed.jobs_of(execution) if job["TrainingJobStatus"] not in ("InProgress", "Stopping")
        ]

    [job] = wait_until(stopped)
    assert job["TrainingJobStatus"] == "Stopped"
    wait_until(lambda: alarm() == "ALARM")
    assert [fault["status"] for fault in deployed.account.faults.remaining().values()] == ["FAILED"]


def test_the_guard_stops_a_workflow_whose_stopped_parent_did_not(
    deployed: Deployed, machines: dict[str, str], broken: Any
) -> None:
    broken(NotCancelled())
    states = deployed.client("stepfunctions")
    parent = deployed.start(machines["ParentArn"])

    def started() -> list[str]:
        listed = states.list_executions(stateMachineArn=machines["PollLongArn"], statusFilter="RUNNING")["executions"]
        return [one["executionArn"] for one in listed]

    [execution] = wait_until(started)
    job = deployed.the_job_of(execution, until="Training")["TrainingJobName"]
    deployed.account.clock.advance(1_800)  # with a parent that runs it stops nothing
    states.stop_execution(executionArn=parent)
    assert deployed.ended(parent)["status"] == "ABORTED"
    assert started() == [execution]
    wait_until(lambda: deployed.account.clock.advance(60) or not started())
    ended = deployed.ended(execution)
    assert (ended["status"], ended["error"]) == ("ABORTED", "ParentExecutionEnded")
    assert ended["cause"] == f"{parent} has ended, which started it"
    wait_until(lambda: deployed.account.clock.advance(60) or not deployed.running_jobs())
    described = deployed.client("sagemaker").describe_training_job(TrainingJobName=job)
    assert described["TrainingJobStatus"] == "Stopped"
    assert deployed.account.faults.remaining() == {}


def test_a_polled_job_outlives_an_outage_of_describing_it(
    deployed: Deployed, machines: dict[str, str], broken: Any
) -> None:
    execution = deployed.start(machines["PollHostsArn"])
    name = deployed.the_job_of(execution, until="Training")["TrainingJobName"]
    fault = broken(Throttling("DescribeTrainingJob", times=None))

    def refused() -> int:
        deployed.account.clock.advance(60)
        states = deployed.client("stepfunctions")
        events = states.get_execution_history(executionArn=execution, maxResults=1000)["events"]
        return sum("taskFailedEventDetails" in event for event in events)

    wait_until(lambda: refused() >= 12)
    deployed.account.faults.mend(fault)
    assert deployed.ended(execution)["status"] == "SUCCEEDED"
    [job] = deployed.jobs_of(execution)
    assert (job["TrainingJobName"], job["TrainingJobStatus"]) == (name, "Completed")


def local_account(deployed: Deployed, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "local-account"
    command = [str(program), "--state", str(deployed.account.state), *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        (["capacity", TYPE, "--times", "2"], Capacity(TYPE, times=2)),
        (["capacity", TYPE], Capacity(TYPE, times=None)),
        (["quota", TYPE, "--limit", "3", "--in-use", "2"], Quota(TYPE, 3, 2, times=None)),
        (["throttling", "DescribeTrainingJob", "--times", "4"], Throttling("DescribeTrainingJob", times=4)),
        (["interruption", "--at", "step 20 ", "--job", "mine"], Interruption("step 20 ", job="mine")),
        (["interruption", "--within", "60", "--seed", "7", "--away", "5"], Interruption(None, 60, 7, 5)),
        (["lost-host", "algo-2", "--at", "step 1"], LostHost("step 1", host="algo-2")),
        (["late-host", "algo-2", "30"], LateHost("algo-2", 30)),
        (["full-disk", "algo-1", "64"], FullDisk("algo-1", 64)),
        (["lost-event", "ABORTED"], LostEvent("ABORTED")),
        (["lost-answer", "StartExecution", "--times", "2"], LostAnswer("StartExecution", times=2)),
        (["not-cancelled"], NotCancelled()),
        (["slow-s3", "--latency", "0.5"], SlowS3(0, 0.5, times=None)),
    ],
)
def test_the_command_line_breaks_a_running_account(
    deployed: Deployed, broken: Any, command: list[str], fault: Fault
) -> None:
    done = local_account(deployed, "break", *command)
    name = done.stdout.strip()
    assert done.returncode == 0, done.stdout
    [(known, said)] = deployed.account.faults.remaining().items()
    assert known == name
    assert json.loads(json.dumps(said)).pop("kind") == type(fault).__name__
    assert deployed.account.faults.of(type(fault), job=fault.job) == [fault]


def test_the_command_line_lists_the_faults_of_a_running_account_and_mends_them(deployed: Deployed, broken: Any) -> None:
    kinds = (
        Capacity(TYPE),
        Quota(TYPE),
        Throttling("DescribeTrainingPlan"),  # which nothing calls that an earlier test has left running
        Interruption(),
        LostHost(),
        LateHost("algo-2", 1),
    )
    names = {broken(fault) for fault in (*kinds, FullDisk("algo-1", 64), SlowS3(1_000))}
    listed = local_account(deployed, "faults").stdout
    assert {name for name in names if name in listed} == names
    mended = names.pop()
    assert local_account(deployed, "mend", mended).returncode == 0
    assert {*deployed.account.faults.remaining()} == names


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["break", "capacity", TYPE, "--times", "0"], "times must be at least 1, or None until it is mended, got 0"),
        (["break", "lost-host", "algo-1", "--at", "("], "at must be a regular expression of a line, like 'step 20 '"),
        (["mend", "Capacity-1000"], "there is no fault 'Capacity-1000'"),
    ],
)
def test_a_wrong_command_is_one_line(deployed: Deployed, command: list[str], said: str) -> None:
    done = local_account(deployed, *command)
    assert done.returncode == 1
    assert said in done.stdout
    assert len(done.stdout.splitlines()) == 1
