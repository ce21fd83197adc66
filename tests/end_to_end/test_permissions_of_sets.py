"""Queues, sweeps and pipelines with permissions enforced: that each fails without each part of what its stack grants."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sagemaker as sagemaker
from aws_cdk import aws_stepfunctions as sfn
from botocore.exceptions import ClientError
from deployed import Deployed, wait_until
from page import PAGE, exercised
from test_permissions import without

from cdk_sagemaker_training import (
    DataParallelJob,
    Gate,
    Grid,
    InstanceGroup,
    NumberField,
    RegisterModel,
    S3Prefix,
    TrainingImage,
    TrainingPipeline,
    TrainingQueue,
    TrainingSweep,
    TrainingWorkflow,
)

pytestmark = pytest.mark.soak  # two minutes: an execution for each action
A_FAILING_JOB = Path(__file__).parent / "a_failing_job"
A_SWEPT_JOB = Path(__file__).parent / "a_swept_job"
A_MEASURED_JOB = Path(__file__).parent / "a_measured_job"
ROWS = exercised(PAGE.read_text())
A_MINUTE = 60


def actions(role: str, outcome: str) -> list[str]:
    found = [row.action for row in ROWS if (row.role, row.outcome) == (role, outcome)]
    assert found
    return list(dict.fromkeys(found))


class Sets(cdk.Stack):
    """A workflow in a queue, a sweep of two rows, and a pipeline that registers a model."""

    def __init__(self, app: cdk.App) -> None:
        super().__init__(app, "Sets")
        bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
        job = DataParallelJob(InstanceGroup("ml.m5.xlarge"))
        queued = TrainingWorkflow(
            self,
            "Queued",
            job=job,
            image=TrainingImage(self, "Counting", directory=str(A_FAILING_JOB)),
            output=S3Prefix(bucket, "queued/"),
            environment={"FAILURE": sfn.JsonPath.string_at("$.failure")},
            queue=TrainingQueue(self, "Queue", capacity=1),
        )
        swept = TrainingWorkflow(
            self,
            "Swept",
            job=job,
            image=TrainingImage(self, "Rates", directory=str(A_SWEPT_JOB)),
            output=S3Prefix(bucket, "swept/"),
            environment={"LEARNING_RATE": sfn.JsonPath.format("{}", sfn.JsonPath.string_at("$.learning_rate"))},
            input_fields={"learning_rate": NumberField(0, 1)},
        )
        measured = TrainingWorkflow(
            self,
            "Measured",
            job=job,
            image=TrainingImage(self, "Accuracy", directory=str(A_MEASURED_JOB)),
            output=S3Prefix(bucket, "measured/"),
            environment={"ACCURACY": "0.9"},
            metric_definitions={"accuracy": "accuracy=([0-9.]+)"},
        )
        sagemaker.CfnModelPackageGroup(self, "Group", model_package_group_name="sets")
        registers = TrainingPipeline(
            self,
            "Registers",
            steps=[
                measured,
                Gate(self, "Good", measured, metric="accuracy", at_least=0.5),
                RegisterModel(self, "Register", measured, group="sets", metrics=["accuracy"]),
            ],
        )
        # Each test's rows are kept apart by the execution's results: a row that completed runs once.
        sweep = TrainingSweep(
            self,
            "Sweep",
            workflow=swept,
            over=Grid({"learning_rate": [0.25]}),
            results=S3Prefix(bucket, "sweep/"),
            concurrency=1,
        )
        for name, one in {"queued": queued, "sweep": sweep, "registers": registers}.items():
            cdk.CfnOutput(self, f"{name}Arn", value=one.state_machine.state_machine_arn)
        cdk.CfnOutput(self, "BucketName", value=bucket.bucket_name)


class Sandbox:
    """The deployed stack, whose roles lose an action for the time of one execution."""

    def __init__(self, deployed: Deployed, outputs: dict[str, str]) -> None:
        self.deployed, self.outputs = deployed, outputs
        self.iam, self.states, self.s3 = (deployed.client(name) for name in ("iam", "stepfunctions", "s3"))

    @contextmanager
    def lacking(self, role_arn: str, *lost: str) -> Iterator[None]:
        """Take actions away from a role's policies."""
        name = role_arn.rpartition("/")[2]
        names = self.iam.list_role_policies(RoleName=name)["PolicyNames"]
        whole = {one: self.iam.get_role_policy(RoleName=name, PolicyName=one)["PolicyDocument"] for one in names}
        left = {one: without(document, lost) for one, document in whole.items()}
        assert left != whole, f"{name} has no {lost}"
        self._put(name, left)
        try:
            yield
        finally:
            self._put(name, whole)

    def _put(self, role: str, documents: dict[str, Any]) -> None:
        for name, document in documents.items():
            self.iam.put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=json.dumps(document))

    def role_of(self, machine: str) -> str:
        return str(self.states.describe_state_machine(stateMachineArn=machine)["roleArn"])

    def machine_named(self, pattern: str) -> str:
        machines = self.states.list_state_machines()["stateMachines"]
        return next(str(it["stateMachineArn"]) for it in machines if fnmatchcase(it["name"], pattern))

    def function_role(self) -> str:
        functions = self.deployed.client("lambda").list_functions()["Functions"]
        return next(str(one["Role"]) for one in functions if "SweepFunction" in one["FunctionName"])

    def run(self, machine: str, given: str = '{"failure": "none"}') -> dict[str, Any]:
        """The end of an execution, of whose retries the waits pass at once."""
        for page in self.s3.get_paginator("list_objects_v2").paginate(
            Bucket=self.outputs["BucketName"], Prefix="sweep/rows/"
        ):
            for one in page.get("Contents", ()):
                self.s3.delete_object(Bucket=self.outputs["BucketName"], Key=one["Key"])
        execution = str(self.states.start_execution(stateMachineArn=machine, input=given)["executionArn"])

        def ended() -> dict[str, Any] | None:
            described: dict[str, Any] = self.states.describe_execution(executionArn=execution)
            if described["status"] != "RUNNING":
                return described
            last = self.states.get_execution_history(executionArn=execution, reverseOrder=True, maxResults=1)["events"]
            if any(event["type"] in ("TaskFailed", "TaskSubmitFailed", "WaitStateEntered") for event in last):
                self.deployed.account.clock.advance(A_MINUTE)
            return None

        return wait_until(ended)

    def text_of(self, execution: str) -> str:
        pages = self.states.get_paginator("get_execution_history").paginate(executionArn=execution)
        return json.dumps([page["events"] for page in pages], default=str)

    def log_says(self, text: str) -> None:
        log = self.deployed.account.state / "account.log"
        wait_until(lambda: text in log.read_text())

    def is_denied(self, machine: str, action: str, role: str | None = None) -> None:
        role = role or self.role_of(machine)
        with self.lacking(role, action):
            ended = self.run(machine)
        assert ended["status"] == "FAILED", (action, ended)
        # That of a row of a sweep is in its own execution, and in the account's log.
        log = (self.deployed.account.state / "account.log").read_text()
        said = rf"{role.rpartition('/')[2]}/[^\n]*is not authorized to perform: {action}"
        assert re.search(said, self.text_of(ended["executionArn"]) + log), ended

    def is_not_created(self, machine: str, action: str) -> None:
        described = self.states.describe_state_machine(stateMachineArn=machine)
        with self.lacking(described["roleArn"], action), pytest.raises(ClientError) as refused:
            self.states.create_state_machine(
                name=f"Without{action.rpartition(':')[2]}",
                definition=described["definition"],
                roleArn=described["roleArn"],
            )
        assert refused.value.response["Error"]["Code"] == "AccessDeniedException"
        assert f"is not authorized to perform: {action}" in refused.value.response["Error"]["Message"]


@pytest.fixture(scope="module")
def sandbox(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    return Sandbox(deployed, deployed.deploy(Sets(cdk.App(outdir=str(tmp_path_factory.mktemp("assembly"))))))


@pytest.mark.parametrize("name", ["queued", "sweep", "registers"])
def test_each_succeeds_with_exactly_what_its_stack_grants(sandbox: Sandbox, name: str) -> None:
    ended = sandbox.run(sandbox.outputs[f"{name}Arn"])
    assert ended["status"] == "SUCCEEDED", ended


@pytest.mark.parametrize("action", actions("machine", "the execution of a job in a queue fails"))
def test_a_job_in_a_queue_is_denied(sandbox: Sandbox, action: str) -> None:
    sandbox.is_denied(sandbox.outputs["queuedArn"], action)


def test_a_job_whose_submission_was_refused_is_not_looked_for(sandbox: Sandbox) -> None:
    [action] = actions("machine", "a job whose submission was refused is not looked for")
    machine = sandbox.outputs["queuedArn"]
    with sandbox.lacking(sandbox.role_of(machine), "batch:SubmitServiceJob", action):
        ended = sandbox.run(machine)
    assert f"is not authorized to perform: {action}" in sandbox.text_of(ended["executionArn"])


def test_a_job_in_a_queue_goes_on_whose_execution_failed_and_may_not_terminate_it(sandbox: Sandbox) -> None:
    [action] = actions("machine", "a job in a queue goes on")
    machine = sandbox.outputs["queuedArn"]
    with sandbox.lacking(sandbox.role_of(machine), "batch:DescribeServiceJob", action):
        ended = sandbox.run(machine)
    assert f"is not authorized to perform: {action}" in sandbox.text_of(ended["executionArn"])


def test_the_poller_of_a_job_in_a_queue_is_denied(sandbox: Sandbox) -> None:
    [action] = actions("poller", "the execution of a job in a queue fails")
    sandbox.is_denied(sandbox.outputs["queuedArn"], action, sandbox.role_of(sandbox.machine_named("*QueuedPoller*")))


@pytest.mark.parametrize("action", actions("stopper", "a job in a queue goes on"))
def test_a_job_in_a_queue_whose_execution_was_stopped_goes_on(sandbox: Sandbox, action: str) -> None:
    stopper, machine = sandbox.machine_named("*QueuedStopper*"), sandbox.outputs["queuedArn"]
    batch, jobs = sandbox.deployed.client("batch"), sandbox.deployed.client("sagemaker")
    with sandbox.lacking(sandbox.role_of(stopper), action):
        given = json.dumps({"failure": "endless"})
        execution = sandbox.states.start_execution(stateMachineArn=machine, input=given)["executionArn"]
        job = sandbox.deployed.the_job_of(execution)["TrainingJobName"]
        sandbox.deployed.has_said(job, "step ")
        sandbox.states.stop_execution(executionArn=execution)
        sandbox.log_says(f"is not authorized to perform: {action}")
        assert jobs.describe_training_job(TrainingJobName=job)["TrainingJobStatus"] == "InProgress"
    for queue in batch.describe_job_queues()["jobQueues"]:
        names = [{"name": "JOB_NAME", "values": ["*"]}]
        for one in batch.list_service_jobs(jobQueue=queue["jobQueueArn"], filters=names)["jobSummaryList"]:
            if one["status"] not in ("SUCCEEDED", "FAILED"):
                batch.terminate_service_job(jobId=one["jobId"], reason="the test is over")
    wait_until(lambda: jobs.describe_training_job(TrainingJobName=job)["TrainingJobStatus"] == "Stopped")


@pytest.mark.parametrize("action", actions("sweep", "the sweep fails"))
def test_a_sweep_is_denied(sandbox: Sandbox, action: str) -> None:
    sandbox.is_denied(sandbox.outputs["sweepArn"], action)


def test_a_row_of_a_sweep_fails_whose_result_cannot_be_written(sandbox: Sandbox) -> None:
    [action] = actions("sweep", "the row fails, and the sweep with it")
    machine = sandbox.outputs["sweepArn"]
    with sandbox.lacking(sandbox.role_of(machine), action):
        ended = sandbox.run(machine)
    assert ended["error"] == "TrainingSweepFailed"
    assert "1 of 1 items failed; of 1 rows 0 completed" in ended["cause"]


@pytest.mark.parametrize("action", actions("handler", "the sweep fails"))
def test_the_function_of_a_sweep_is_denied(sandbox: Sandbox, action: str) -> None:
    sandbox.is_denied(sandbox.outputs["sweepArn"], action, sandbox.function_role())


@pytest.mark.parametrize("action", actions("pipeline", "the pipeline fails"))
def test_a_pipeline_is_denied(sandbox: Sandbox, action: str) -> None:
    sandbox.is_denied(sandbox.outputs["registersArn"], action)


@pytest.mark.parametrize("name", ["sweep", "pipeline"])
def test_a_machine_that_waits_for_executions_is_not_created_without(sandbox: Sandbox, name: str) -> None:
    for action in actions(name, "the state machine is not created"):
        sandbox.is_not_created(sandbox.outputs["registersArn" if name == "pipeline" else "sweepArn"], action)
