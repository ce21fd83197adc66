"""Queues, sweeps and pipelines with permissions enforced: that each fails without each part of what its stack grants."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sagemaker as sagemaker
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from botocore.exceptions import ClientError
from deployed import Deployed, wait_until
from page import PAGE, exercised
from test_permissions import without

from cdk_sagemaker_training import (
    Approval,
    DataParallelJob,
    Gate,
    Grid,
    InstanceGroup,
    MetricLimit,
    NumberField,
    RegisterModel,
    S3Prefix,
    Silence,
    TrainingImage,
    TrainingPipeline,
    TrainingQueue,
    TrainingSweep,
    TrainingWorkflow,
    default_retries,
)
from sagemaker_local_account.faults import Capacity, NotCancelled

pytestmark = pytest.mark.soak  # minutes: an execution for each action
A_FAILING_JOB = Path(__file__).parent / "a_failing_job"
A_SWEPT_JOB = Path(__file__).parent / "a_swept_job"
A_MEASURED_JOB = Path(__file__).parent / "a_measured_job"
ROWS = exercised(PAGE.read_text())
A_MINUTE = 60
ON_A_GPU = "ml.g5.xlarge"  # of which a job waits for capacity, up to max_pending


def actions(role: str, outcome: str) -> list[str]:
    found = [row.action for row in ROWS if (row.role, row.outcome) == (role, outcome)]
    assert found
    return list(dict.fromkeys(found))


def denial(role: str, action: str) -> str:
    """A pattern of the text that says that a role was denied an action."""
    return rf"{role.rpartition('/')[2]}/[^\n]*is not authorized to perform: {action}"


class Sets(cdk.Stack):
    """Workflows in a queue, with notices and with rules that stop a job; a sweep; and pipelines that register a model, wait for
    an approval and run a job in the queue, on a bucket with a key."""

    def __init__(self, app: cdk.App) -> None:
        super().__init__(app, "Sets")
        key = kms.Key(self, "Key", removal_policy=cdk.RemovalPolicy.DESTROY)
        bucket = s3.Bucket(self, "Bucket", encryption_key=key, removal_policy=cdk.RemovalPolicy.DESTROY)
        job = DataParallelJob(InstanceGroup("ml.m5.xlarge"))
        topic, messages = sns.Topic(self, "Topic", master_key=key), sqs.Queue(self, "Messages")
        topic.add_subscription(subscriptions.SqsSubscription(messages, raw_message_delivery=True))
        cdk.CfnOutput(self, "MessagesUrl", value=messages.queue_url)
        cdk.CfnOutput(self, "TopicArn", value=topic.topic_arn)
        noticed: dict[str, Any] = {"notify": [topic], "waiting_longer_than": A_MINUTE}
        pending: dict[str, Any] = {"job": DataParallelJob(InstanceGroup(ON_A_GPU)), "max_pending": cdk.Duration.days(1)}
        queued = TrainingWorkflow(
            self,
            "Queued",
            job=job,
            image=TrainingImage.from_asset(self, "Counting", directory=str(A_FAILING_JOB)),
            output=S3Prefix(bucket, "queued/"),
            environment={"FAILURE": sfn.JsonPath.string_at("$.failure")},
            queue=TrainingQueue(self, "Queue", capacity=1),
            **noticed,
        )
        waited = TrainingWorkflow(
            self,
            "Waited",
            image=queued.image,
            output=S3Prefix(bucket, "waited/"),
            environment={"FAILURE": sfn.JsonPath.string_at("$.failure")},
            **pending,
            **noticed,
        )
        swept = TrainingWorkflow(
            self,
            "Swept",
            image=TrainingImage.from_asset(self, "Rates", directory=str(A_SWEPT_JOB)),
            output=S3Prefix(bucket, "swept/"),
            environment={"LEARNING_RATE": sfn.JsonPath.format("{}", sfn.JsonPath.string_at("$.learning_rate"))},
            input_fields={"learning_rate": NumberField(0, 1)},
            **pending,
        )
        measured = TrainingWorkflow(
            self,
            "Measured",
            job=job,
            image=TrainingImage.from_asset(self, "Accuracy", directory=str(A_MEASURED_JOB)),
            output=S3Prefix(bucket, "measured/"),
            environment={"ACCURACY": "0.9"},
            metric_definitions={"accuracy": "accuracy=([0-9.]+)"},
            job_metrics=True,
            notify=[topic],
            retries=default_retries(),
        )
        watched = TrainingWorkflow(
            self,
            "Watched",
            job=job,
            image=queued.image,
            output=S3Prefix(bucket, "watched/"),
            environment={"FAILURE": sfn.JsonPath.string_at("$.failure")},
            metric_definitions={"loss": "loss=([0-9.]+)"},
            stop_when=[Silence(), MetricLimit("loss", above=10.0)],
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
        approves = TrainingPipeline(self, "Approves", steps=[Approval(self, "Release", topic=topic)])
        nests = TrainingPipeline(self, "Nests", steps=[queued])
        # Each test's rows are kept apart by the execution's results: a row that completed runs once.
        sweep = TrainingSweep(
            self,
            "Sweep",
            workflow=swept,
            over=Grid({"learning_rate": [0.25]}),
            results=S3Prefix(bucket, "sweep/"),
            concurrency=1,
        )
        machines: dict[str, TrainingWorkflow | TrainingSweep | TrainingPipeline] = {
            "queued": queued,
            "waited": waited,
            "swept": swept,
            "measured": measured,
            "watched": watched,
            "sweep": sweep,
            "registers": registers,
            "approves": approves,
            "nests": nests,
        }
        for name, one in machines.items():
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

    def function_role(self, part: str) -> str:
        functions = self.deployed.client("lambda").list_functions()["Functions"]
        return next(str(one["Role"]) for one in functions if part in one["FunctionName"])

    def function_log(self, part: str) -> str:
        """What a function of the stack has printed."""
        logs = self.deployed.client("logs")
        [group] = [one for one in logs.describe_log_groups()["logGroups"] if part in one["logGroupName"]]
        events = logs.filter_log_events(logGroupName=group["logGroupName"])["events"]
        return "\n".join(event["message"] for event in events)

    def forget_rows(self) -> None:
        """Delete the results of rows, so that the next execution of the sweep runs them."""
        for page in self.s3.get_paginator("list_objects_v2").paginate(
            Bucket=self.outputs["BucketName"], Prefix="sweep/rows/"
        ):
            for one in page.get("Contents", ()):
                self.s3.delete_object(Bucket=self.outputs["BucketName"], Key=one["Key"])

    def start(self, name: str, failure: str = "none") -> str:
        """An execution of one of the stack's machines."""
        given = json.dumps({"failure": failure})
        started = self.states.start_execution(stateMachineArn=self.outputs[f"{name}Arn"], input=given)
        return str(started["executionArn"])

    def run(self, machine: str, given: str = '{"failure": "none"}') -> dict[str, Any]:
        """The end of an execution; a minute passes at each look, so that its retries and those of what it calls take none."""
        self.forget_rows()
        execution = str(self.states.start_execution(stateMachineArn=machine, input=given)["executionArn"])

        def ended() -> dict[str, Any] | None:
            described: dict[str, Any] = self.states.describe_execution(executionArn=execution)
            if described["status"] != "RUNNING":
                return described
            self.deployed.account.clock.advance(A_MINUTE)
            return None

        return wait_until(ended)

    @contextmanager
    def without_capacity(self) -> Iterator[None]:
        """Leave the jobs on GPUs pending."""
        faults = self.deployed.account.faults
        fault = faults.add(Capacity(ON_A_GPU, times=None))
        try:
            yield
        finally:
            faults.mend(fault)

    @contextmanager
    def started(self, name: str, failure: str = "none") -> Iterator[str]:
        """An execution that is stopped afterwards."""
        execution = self.start(name, failure)
        try:
            yield execution
        finally:
            self.states.stop_execution(executionArn=execution)

    @contextmanager
    def held_up(self, name: str) -> Iterator[str]:
        """An execution whose job has not begun to train: another job has its queue's machine, or there is no capacity."""
        with ExitStack() as held:
            if name == "queued":
                first = held.enter_context(self.started("queued", "endless"))
                self.deployed.has_said(self.deployed.the_job_of(first)["TrainingJobName"], "step ")
                yield held.enter_context(self.started("queued"))
            else:
                held.enter_context(self.without_capacity())
                execution = held.enter_context(self.started(name))
                self.deployed.the_job_of(execution, until="Pending")
                yield execution

    def running(self, name: str) -> list[str]:
        """The executions of one of the stack's machines that run."""
        found = self.states.list_executions(stateMachineArn=self.outputs[f"{name}Arn"], statusFilter="RUNNING")
        return [str(one["executionArn"]) for one in found["executions"]]

    def text_of(self, execution: str) -> str:
        pages = self.states.get_paginator("get_execution_history").paginate(executionArn=execution)
        return json.dumps([page["events"] for page in pages], default=str)

    def text_of_all(self, machine: str) -> str:
        """The histories of all executions of a state machine."""
        listed = self.states.list_executions(stateMachineArn=machine)["executions"]
        return "\n".join(self.text_of(one["executionArn"]) for one in listed)

    def log(self) -> str:
        return (self.deployed.account.state / "account.log").read_text()

    def is_denied(self, machine: str, action: str, role: str | None = None, status: str = "FAILED") -> None:
        role = role or self.role_of(machine)
        with self.lacking(role, action):
            ended = self.run(machine)
        assert ended["status"] == status, (action, ended)
        # That of a row of a sweep is in its own execution, and in the account's log.
        assert re.search(denial(role, action), self.text_of(ended["executionArn"]) + self.log()), ended

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


@pytest.mark.parametrize("name", ["queued", "measured", "sweep", "registers"])
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


def test_the_execution_of_a_job_in_a_queue_whose_poller_is_denied_looks_itself(sandbox: Sandbox) -> None:
    [action] = actions("poller", "the poller fails, and the execution of a job in a queue looks itself")
    poller = sandbox.role_of(sandbox.machine_named("*QueuedPoller*"))
    sandbox.is_denied(sandbox.outputs["queuedArn"], action, poller, "SUCCEEDED")


@pytest.mark.parametrize("action", actions("guard", "a job in a queue goes on"))
def test_a_job_in_a_queue_whose_execution_was_stopped_goes_on(sandbox: Sandbox, action: str) -> None:
    stopper = sandbox.machine_named("*GuardStopper*")
    role = sandbox.role_of(stopper)
    batch, jobs = sandbox.deployed.client("batch"), sandbox.deployed.client("sagemaker")
    with sandbox.lacking(role, action):
        execution = sandbox.start("queued", "endless")
        job = sandbox.deployed.the_job_of(execution)["TrainingJobName"]
        sandbox.deployed.has_said(job, "step ")
        sandbox.states.stop_execution(executionArn=execution)
        wait_until(lambda: re.search(denial(role, action), sandbox.text_of_all(stopper)))
        assert jobs.describe_training_job(TrainingJobName=job)["TrainingJobStatus"] == "InProgress"
    for queue in batch.describe_job_queues()["jobQueues"]:
        names = [{"name": "JOB_NAME", "values": ["*"]}]
        for one in batch.list_service_jobs(jobQueue=queue["jobQueueArn"], filters=names)["jobSummaryList"]:
            if one["status"] not in ("SUCCEEDED", "FAILED"):
                batch.terminate_service_job(jobId=one["jobId"], reason="the test is over")
    wait_until(lambda: jobs.describe_training_job(TrainingJobName=job)["TrainingJobStatus"] == "Stopped")


@pytest.mark.parametrize("action", actions("guard", "an execution that outlives its parent goes on"))
def test_an_execution_that_outlives_its_pipeline_goes_on_where_the_guard_may_not_stop_it(
    sandbox: Sandbox, action: str
) -> None:
    clock = sandbox.deployed.account.clock
    sandbox.deployed.account.faults.add(NotCancelled())
    pipeline = sandbox.start("nests", "endless")
    [execution] = wait_until(lambda: sandbox.running("queued"))
    job = sandbox.deployed.the_job_of(execution)["TrainingJobName"]
    sandbox.deployed.has_said(job, "step ")
    sandbox.states.stop_execution(executionArn=pipeline)
    role = sandbox.role_of(sandbox.machine_named("*GuardReconciler*"))
    with sandbox.lacking(role, action):
        wait_until(lambda: clock.advance(A_MINUTE) or re.search(denial(role, action), sandbox.log()))
        assert sandbox.running("queued") == [execution]
    wait_until(lambda: clock.advance(A_MINUTE) or not sandbox.running("queued"))
    described = sandbox.states.describe_execution(executionArn=execution)
    assert (described["status"], described["error"]) == ("ABORTED", "ParentExecutionEnded")
    jobs = sandbox.deployed.client("sagemaker")
    wait_until(lambda: jobs.describe_training_job(TrainingJobName=job)["TrainingJobStatus"] == "Stopped")


@pytest.mark.parametrize("action", actions("sweep", "the sweep fails"))
def test_a_sweep_is_denied(sandbox: Sandbox, action: str) -> None:
    sandbox.is_denied(sandbox.outputs["sweepArn"], action)


@pytest.mark.parametrize("action", actions("sweep", "the row fails, and the sweep with it"))
def test_a_row_of_a_sweep_fails_whose_result_cannot_be_written(sandbox: Sandbox, action: str) -> None:
    machine = sandbox.outputs["sweepArn"]
    with sandbox.lacking(sandbox.role_of(machine), action):
        ended = sandbox.run(machine)
    assert ended["error"] == "TrainingSweepFailed"
    assert "1 of 1 items failed; of 1 rows 0 completed" in ended["cause"]


@pytest.mark.parametrize("action", actions("handler", "the sweep fails"))
def test_the_function_of_a_sweep_is_denied(sandbox: Sandbox, action: str) -> None:
    sandbox.is_denied(sandbox.outputs["sweepArn"], action, sandbox.function_role("SweepFunction"))


@pytest.mark.parametrize("action", actions("pipeline", "the pipeline fails"))
def test_a_pipeline_is_denied(sandbox: Sandbox, action: str) -> None:
    sandbox.is_denied(sandbox.outputs["registersArn"], action)


@pytest.mark.parametrize("action", actions("pipeline", "the approval fails"))
def test_a_pipeline_that_may_not_send_the_message_of_an_approval_fails(sandbox: Sandbox, action: str) -> None:
    sandbox.is_denied(sandbox.outputs["approvesArn"], action)


def test_an_execution_goes_on_whose_metrics_cannot_be_put(sandbox: Sandbox) -> None:
    [action] = actions("machine", "the execution goes on without metrics of its jobs")
    sandbox.is_denied(sandbox.outputs["measuredArn"], action, status="SUCCEEDED")


def test_an_execution_goes_on_whose_events_cannot_be_put(sandbox: Sandbox) -> None:
    [action] = actions("machine", "the execution goes on without its events")
    sandbox.deployed.account.faults.add(Capacity("ml.m5.xlarge"))  # once, so that the job is run again
    sandbox.is_denied(sandbox.outputs["measuredArn"], action, status="SUCCEEDED")


@pytest.mark.parametrize(
    ("holder", "action"),
    [(holder, action) for holder in ("poller", "handler") for action in actions(holder, "a job of no use goes on")],
)
def test_a_job_of_no_use_goes_on_whose_poller_or_its_function_may_not_look_or_stop_it(
    sandbox: Sandbox, holder: str, action: str
) -> None:
    poller, jobs = sandbox.machine_named("*WatchedPoller*"), sandbox.deployed.client("sagemaker")
    role = sandbox.role_of(poller) if holder == "poller" else sandbox.function_role("RulesHandler")
    failure = "silent" if action.startswith("logs:") else "diverges"

    def is_denied() -> bool:
        sandbox.deployed.account.clock.advance(A_MINUTE)
        said = sandbox.text_of_all(poller) if holder == "poller" else sandbox.function_log("RulesHandler")
        return bool(re.search(denial(role, action), said))

    with sandbox.lacking(role, action), sandbox.started("watched", failure) as execution:
        job = sandbox.deployed.the_job_of(execution, until="Training")["TrainingJobName"]
        wait_until(is_denied)
        assert jobs.describe_training_job(TrainingJobName=job)["TrainingJobStatus"] == "InProgress"


@pytest.mark.parametrize(("role", "outer", "inner"), [("pipeline", "nests", "queued"), ("sweep", "sweep", "swept")])
def test_the_workflow_goes_on_whose_pipeline_or_sweep_was_stopped(
    sandbox: Sandbox, role: str, outer: str, inner: str
) -> None:
    [action] = actions(role, "its workflow goes on")
    own = sandbox.role_of(sandbox.outputs[f"{outer}Arn"])
    sandbox.forget_rows()
    # A row of the sweep waits for capacity; the job in the queue is endless itself.
    with sandbox.without_capacity(), sandbox.lacking(own, action):
        before = len(sandbox.log())
        execution = sandbox.start(outer, "endless")
        [called] = wait_until(lambda: sandbox.running(inner))
        sandbox.states.stop_execution(executionArn=execution)
        wait_until(lambda: re.search(denial(own, action), sandbox.log()[before:]))
        assert sandbox.running(inner) == [called]
        sandbox.states.stop_execution(executionArn=called)


@pytest.mark.parametrize(
    ("holder", "action"),
    [(holder, action) for holder in ("topic", "key") for action in actions(holder, "there is no message")],
)
def test_a_topic_gets_no_message_where_its_policy_or_its_keys_does_not_let_rules_publish(
    sandbox: Sandbox, holder: str, action: str
) -> None:
    topic = sandbox.outputs["TopicArn"]
    topics, keys = sandbox.deployed.client("sns"), sandbox.deployed.client("kms")
    attributes = topics.get_topic_attributes(TopicArn=topic)["Attributes"]
    arn = topic if holder == "topic" else attributes["KmsMasterKeyId"]

    def put(policy: str) -> None:
        if holder == "topic":
            topics.set_topic_attributes(TopicArn=arn, AttributeName="Policy", AttributeValue=policy)
        else:
            keys.put_key_policy(KeyId=arn, PolicyName="default", Policy=policy)

    whole = (
        attributes["Policy"] if holder == "topic" else keys.get_key_policy(KeyId=arn, PolicyName="default")["Policy"]
    )
    left = without(json.loads(whole), (action,))
    assert left != json.loads(whole)
    before = len(sandbox.log())
    put(json.dumps(left))
    try:
        sandbox.run(sandbox.outputs["measuredArn"])
        said = f"the policy of {arn} does not allow events.amazonaws.com the action {action.rstrip('*')}"
        wait_until(lambda: said in sandbox.log()[before:])
    finally:
        put(whole)


@pytest.mark.parametrize("name", ["waited", "queued"])
def test_a_topic_gets_the_event_of_an_execution_that_waits(sandbox: Sandbox, name: str) -> None:
    queues = sandbox.deployed.client("sqs")

    def details() -> list[dict[str, Any]]:
        sandbox.deployed.account.clock.advance(A_MINUTE)
        received = queues.receive_message(QueueUrl=sandbox.outputs["MessagesUrl"], MaxNumberOfMessages=10)
        return [json.loads(message["Body"])["detail"] for message in received.get("Messages", ())]

    with sandbox.held_up(name) as execution:
        wait_until(lambda: {"Execution": execution, "WaitedSeconds": A_MINUTE} in details())


@pytest.mark.parametrize(
    ("name", "action"),
    [
        *(("waited", action) for action in actions("waiter", "there is no event of the wait")),
        *(("waited", action) for action in actions("waiter", "the event is not put")),
        *(("queued", action) for action in actions("waiter", "there is no event of the wait in a queue")),
    ],
)
def test_what_puts_the_event_of_a_wait_is_denied(sandbox: Sandbox, name: str, action: str) -> None:
    role = sandbox.function_role("WaitingHandler")

    def is_denied() -> bool:
        sandbox.deployed.account.clock.advance(A_MINUTE)
        return bool(re.search(denial(role, action), sandbox.function_log("WaitingHandler")))

    with sandbox.held_up(name), sandbox.lacking(role, action):
        wait_until(is_denied)


@pytest.mark.parametrize("name", ["sweep", "pipeline"])
def test_a_machine_that_waits_for_executions_is_not_created_without(sandbox: Sandbox, name: str) -> None:
    for action in actions(name, "the state machine is not created"):
        sandbox.is_not_created(sandbox.outputs["registersArn" if name == "pipeline" else "sweepArn"], action)
