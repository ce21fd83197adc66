"""Jobs in a queue, through deployed state machines, with permissions enforced."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_stepfunctions as sfn
from deployed import Deployed, wait_until

from cdk_sagemaker_training import (
    Budget,
    Cause,
    DataParallelJob,
    InstanceGroup,
    QuotaShare,
    Retry,
    S3Prefix,
    TrainingImage,
    TrainingQueue,
    TrainingWorkflow,
    default_retries,
)
from sagemaker_local_account.faults import LostEvent, LostHost

pytestmark = [pytest.mark.soak, pytest.mark.usefixtures("no_job_left")]
A_FAILING_JOB = Path(__file__).parent / "a_failing_job"
HALF_AN_HOUR = 1_800
TEAMS = {"vision": 2, "speech": 1, "robots": 1}


class Queued(cdk.Stack):
    """A queue in the order of submission, one with shares of 2:1:1 and of 1 for who holds it up, and one with quota shares."""

    def __init__(self, app: cdk.App, id: str = "Queued") -> None:
        super().__init__(app, id)
        self.bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY, auto_delete_objects=True)
        self.image = TrainingImage.from_asset(self, "Image", directory=str(A_FAILING_JOB))
        self.add("Line", TrainingQueue(self, "Queue", capacity=1))
        shared = TrainingQueue(self, "Shared", capacity=1, shares={**TEAMS, "others": 1})
        for name in (*TEAMS, "others"):
            self.add(name, shared.share(name))

        machines = {"ml.m5.xlarge": 1}
        quotas = TrainingQueue(
            self,
            "Quotas",
            capacity={"ml.m5.xlarge": 2},
            shares={
                "lends": QuotaShare(machines, sharing="LEND"),
                "borrows": QuotaShare(machines, sharing="LEND_AND_BORROW"),
            },
        )
        self.add("lends", quotas.share("lends"))
        self.add("borrows", quotas.share("borrows"), {**default_retries(), Cause.PREEMPTED: Retry(attempts=9)})
        self.add("limited", quotas.share("borrows"), {**default_retries(), Cause.PREEMPTED: Retry(attempts=0)})

    def add(self, id: str, queue: Any, retries: Any = None) -> None:
        workflow = TrainingWorkflow(
            self,
            id,
            job=DataParallelJob(InstanceGroup("ml.m5.xlarge")),
            image=self.image,
            output=S3Prefix(self.bucket, "models/"),
            checkpoints=S3Prefix(self.bucket, "checkpoints/"),
            environment={"FAILURE": sfn.JsonPath.string_at("$.failure")},
            queue=queue,
            retries=retries or default_retries(),
            budget=Budget(hours=5),
            max_runtime=3_600,
        )
        cdk.CfnOutput(self, f"{id}Arn", value=workflow.state_machine.state_machine_arn)


class Line:
    """Executions whose jobs wait in a queue."""

    def __init__(self, deployed: Deployed, outputs: dict[str, str]) -> None:
        self.deployed, self.outputs = deployed, outputs
        self.states, self.batch = deployed.client("stepfunctions"), deployed.client("batch")
        self.sagemaker = deployed.client("sagemaker")

    def start(self, failure: str, workflow: str = "Line") -> str:
        machine = self.outputs[f"{workflow}Arn"]
        given = json.dumps({"failure": failure})
        return str(self.states.start_execution(stateMachineArn=machine, input=given)["executionArn"])

    def service_job(self, execution: str, *statuses: str) -> dict[str, Any]:
        """The last service job of an execution, once it has one of the statuses."""

        def found() -> dict[str, Any] | None:
            for queue in self.batch.describe_job_queues()["jobQueues"]:
                names = [{"name": "JOB_NAME", "values": ["*"]}]
                listed = self.batch.list_service_jobs(jobQueue=queue["jobQueueArn"], filters=names)["jobSummaryList"]
                for job in (self.batch.describe_service_job(jobId=one["jobId"]) for one in listed):
                    if job["tags"].get("StepFunctionsExecution") == execution and job["status"] in statuses:
                        return dict(job)
            return None

        return wait_until(found)

    def training_job(self, job: dict[str, Any]) -> str:
        return str(job["latestAttempt"]["serviceResourceId"]["value"]).partition("/")[2]


@pytest.fixture(scope="module")
def line(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> Line:
    return Line(deployed, deployed.deploy(Queued(cdk.App(outdir=str(tmp_path_factory.mktemp("assembly"))))))


def test_of_three_jobs_on_one_machine_one_is_cancelled_one_is_stopped_and_the_last_completes(line: Line) -> None:
    runs = line.start("endless")
    job = line.service_job(runs, "RUNNING")
    cancelled, last = line.start("none"), line.start("none")
    waiting = line.service_job(cancelled, "RUNNABLE")
    line.service_job(last, "RUNNABLE")
    line.batch.terminate_service_job(jobId=waiting["jobId"], reason="not needed")
    ended = line.deployed.ended(cancelled)
    assert (ended["status"], ended["error"]) == ("FAILED", "TrainingJobStopped"), ended
    assert "latestAttempt" not in line.service_job(cancelled, "FAILED")

    line.states.stop_execution(executionArn=runs)
    stopped = line.service_job(runs, "FAILED")
    assert stopped["statusReason"] == "its execution has ended"
    described = line.sagemaker.describe_training_job(TrainingJobName=line.training_job(job))
    assert described["TrainingJobStatus"] == "Stopped"

    ended = line.deployed.ended(last)
    assert ended["status"] == "SUCCEEDED", ended
    output = json.loads(ended["output"])
    assert output["TrainingJobName"] == line.training_job(line.service_job(last, "SUCCEEDED"))
    assert output["TrainingJobStatus"] == "Completed"
    assert output["Budget"]["SecondsLeft"] < 5 * 3_600


def test_a_failed_job_is_reported_with_its_cause_as_without_a_queue(line: Line) -> None:
    ended = line.deployed.ended(line.start("CUDA out of memory"))
    assert (ended["status"], ended["error"]) == ("FAILED", "TrainingJobFailed")
    assert ": out of memory, not retried: AlgorithmError: CUDA out of memory" in ended["cause"]


def test_a_job_that_lost_its_host_goes_on_in_the_queue_from_its_checkpoint(line: Line) -> None:
    line.deployed.account.faults.add(LostHost("step 15 "))
    execution = line.start("lost")
    ended = line.deployed.ended(execution)
    assert ended["status"] == "SUCCEEDED", ended
    assert [job["TrainingJobStatus"] for job in line.deployed.jobs_of(execution)] == ["Failed", "Completed"]


def test_three_teams_with_shares_of_2_1_1_start_jobs_in_that_ratio(line: Line) -> None:
    first = line.start("endless", "others")
    job = line.service_job(first, "RUNNING")
    backlog = [line.start("none", team) for team in TEAMS for _ in range(4)]
    for execution in backlog:
        line.service_job(execution, "RUNNABLE")
    line.sagemaker.stop_training_job(TrainingJobName=line.training_job(job))
    jobs = [line.service_job(execution, "SUCCEEDED") for execution in backlog]
    found = Counter(job["shareIdentifier"] for job in sorted(jobs, key=lambda job: job["scheduledAt"])[:8])
    assert 3 <= found["vision"] <= 4, found
    assert {1 <= found[team] <= 3 for team in ("speech", "robots")} == {True}, found


def borrowed(line: Line, failure: str, said: str) -> tuple[str, str, str]:
    """Executions on a share's own and on a borrowed machine, and the training job there, once it has said something."""
    own = line.start("endless", "borrows")
    line.service_job(own, "RUNNING")
    borrowing = line.start(failure, "borrows")
    job = line.training_job(line.service_job(borrowing, "RUNNING"))
    line.deployed.has_said(job, said)
    return own, borrowing, job


def test_a_job_on_a_borrowed_machine_is_stopped_for_the_lenders_and_goes_on_from_its_checkpoint(line: Line) -> None:
    own, borrowing, first = borrowed(line, "endless", "step 5 ")
    lenders = line.start("none", "lends")
    ended = line.deployed.ended(lenders)
    assert ended["status"] == "SUCCEEDED", ended
    described = line.sagemaker.describe_training_job(TrainingJobName=first)
    assert described["TrainingJobStatus"] == "Stopped"
    job = line.service_job(borrowing, "RUNNING")
    assert job["preemptionSummary"]["preemptedAttemptCount"] == 1
    begins = line.deployed.has_said(line.training_job(job), "begins at ([0-9]+)")
    assert int(begins[1]) >= 5
    assert line.states.describe_execution(executionArn=own)["status"] == "RUNNING"
    for execution in (own, borrowing):
        line.states.stop_execution(executionArn=execution)
        line.service_job(execution, "FAILED")


def test_a_budget_counts_the_run_before_a_preemption_and_a_job_that_was_preempted_too_often_fails(line: Line) -> None:
    own, borrowing, first = borrowed(line, "lost", "step 15 ")
    line.deployed.account.clock.advance(HALF_AN_HOUR)
    assert line.deployed.ended(line.start("none", "lends"))["status"] == "SUCCEEDED"
    ended = line.deployed.ended(borrowing)
    assert ended["status"] == "SUCCEEDED", ended
    output = json.loads(ended["output"])
    before = line.sagemaker.describe_training_job(TrainingJobName=first)["BillableTimeInSeconds"]
    assert before >= HALF_AN_HOUR
    assert output["TrainingJobName"] != first
    assert output["Budget"]["SecondsLeft"] == 5 * 3_600 - before - output["BillableTimeInSeconds"]

    limited = line.start("endless", "limited")
    line.deployed.has_said(line.training_job(line.service_job(limited, "RUNNING")), "step 5 ")
    assert line.deployed.ended(line.start("none", "lends"))["status"] == "SUCCEEDED"
    ended = line.deployed.ended(limited)
    assert (ended["status"], ended["error"]) == ("FAILED", "TrainingJobStopped"), ended
    assert ended["cause"].endswith(": preempted more often than retries of Cause.PREEMPTED allow, 0")
    line.states.stop_execution(executionArn=own)
    line.service_job(own, "FAILED")


def test_a_job_that_runs_and_one_that_waits_are_terminated_where_the_events_of_their_executions_are_lost(
    line: Line,
) -> None:
    executions = [line.start("endless"), line.start("endless")]
    running = line.service_job(executions[0], "RUNNING")
    line.service_job(executions[1], "RUNNABLE")
    line.deployed.account.faults.add(LostEvent("ABORTED", times=2))
    # First the one that waits, so that it never trains.
    for execution in reversed(executions):
        line.states.stop_execution(executionArn=execution)
    assert line.deployed.ended(executions[0])["status"] == "ABORTED"
    line.deployed.account.clock.advance(900)
    wait_until(lambda: line.deployed.account.clock.advance(60) or not line.deployed.running_jobs())
    jobs = [line.service_job(execution, "FAILED") for execution in executions]
    assert [job["isTerminated"] for job in jobs] == [True, True]
    assert jobs[0]["jobId"] == running["jobId"]
    assert line.deployed.account.faults.remaining() == {}


def test_a_destroyed_stacks_jobs_are_terminated_and_over_before_their_queue_goes(
    deployed: Deployed, tmp_path: Path
) -> None:
    app = cdk.App(outdir=str(tmp_path))
    line = Line(deployed, deployed.deploy(Queued(app, "Destroyed")))
    job = line.service_job(line.start("endless"), "RUNNING")
    line.service_job(line.start("endless"), "RUNNABLE")
    deployed.cdk("destroy", "--app", str(tmp_path), "Destroyed", "--force")
    described = line.sagemaker.describe_training_job(TrainingJobName=line.training_job(job))
    assert described["TrainingJobStatus"] == "Stopped"
    left = [queue["jobQueueName"] for queue in line.batch.describe_job_queues()["jobQueues"]]
    assert not [name for name in left if name.startswith("Destroyed")]
    summaries = line.sagemaker.list_training_jobs(StatusEquals="InProgress", MaxResults=100)["TrainingJobSummaries"]
    assert summaries == []
