"""Executions with permissions enforced: that they succeed with what their stacks grant, and fail without each part of it."""

from __future__ import annotations

import copy
import json
import re
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import boto3
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from botocore.exceptions import ClientError
from deployed import Deployed, wait_until
from page import PAGE, exercised, granted

from cdk_sagemaker_training import (
    DataParallelJob,
    EfsChannel,
    FsxLustreChannel,
    InstanceGroup,
    LustreFileSystem,
    S3Channel,
    S3Prefix,
    TrainingImage,
    TrainingNetwork,
    TrainingWorkflow,
)
from sagemaker_local_account.aws.cloudwatch import alarm_scheduler as cloudwatch
from sagemaker_local_account.faults import ScheduledPlan

PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/spring"
BOOTSTRAPPED = "cdk-hnb659fds-container-assets-123456789012-us-east-1"
A_QUICK_JOB = Path(__file__).parent / "a_quick_job"
# role, action, what happens without it: the rows of the page.
ROWS = [(row.role, row.action, row.outcome) for row in exercised(PAGE.read_text())]


class Quick(cdk.Stack):
    """A quick job in a network, on an encrypted bucket, file systems of both kinds and encrypted volumes, by both integrations,
    and a machine that has one as a state."""

    def __init__(self, app: cdk.App) -> None:
        super().__init__(app, "Quick")
        key = kms.Key(self, "Key", removal_policy=cdk.RemovalPolicy.DESTROY)
        bucket = s3.Bucket(self, "Bucket", encryption_key=key, removal_policy=cdk.RemovalPolicy.DESTROY)
        image = TrainingImage.from_asset(self, "Image", directory=str(A_QUICK_JOB))
        assert image.asset is not None
        # The same image by URIs: one of parts that the template puts together, and one that nothing but the deployment has.
        place = f"123456789012.dkr.ecr.us-east-1.amazonaws.com/{BOOTSTRAPPED}:{image.asset.asset_hash}"
        by_uri = {
            "sync": TrainingImage.from_uri(self, "ByUri", image.image_uri),
            "planned": TrainingImage.from_uri(
                self, "ByParameter", cdk.CfnParameter(self, "Uri", default=place).value_as_string
            ),
        }
        network = TrainingNetwork(self, "Network", max_azs=1)
        linked = LustreFileSystem(
            self,
            "Linked",
            network=network,
            data=S3Prefix(bucket, "linked/"),
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        subnets = ec2.SubnetSelection(subnets=network.subnets.subnets)
        shared = efs.FileSystem(
            self, "Shared", vpc=network.vpc, vpc_subnets=subnets, removal_policy=cdk.RemovalPolicy.DESTROY
        )
        on_files = {"linked": FsxLustreChannel(linked), "shared": EfsChannel(shared, read_only=False)}
        topic, told = sns.Topic(self, "Topic"), sqs.Queue(self, "Told")
        topic.add_subscription(subscriptions.SqsSubscription(told, raw_message_delivery=True))
        cdk.CfnOutput(self, "ToldUrl", value=told.queue_url)
        for integration in ("poll", "sync"):
            workflow = TrainingWorkflow(
                self,
                integration.capitalize(),
                job=DataParallelJob(InstanceGroup("ml.m5.xlarge")),
                image=by_uri.get(integration, image),
                # `.sync` takes no file systems.
                channels={"letters": S3Channel(bucket, "letters/"), **(on_files if integration == "poll" else {})},
                volume_key=key,
                output=S3Prefix(bucket, "models/"),
                checkpoints=S3Prefix(bucket, "checkpoints/"),
                network=network,
                metric_definitions={"loss": "loss ([0-9.]+)"},
                integration=integration,  # type: ignore[arg-type]
                notify=[topic] if integration == "poll" else [],
            )
            cdk.CfnOutput(self, f"{integration}Arn", value=workflow.state_machine.state_machine_arn)
        planned = TrainingWorkflow(
            self,
            "Planned",
            job=DataParallelJob(InstanceGroup("ml.p4d.24xlarge")),
            image=by_uri["planned"],
            channels={"letters": S3Channel(bucket, "letters/")},
            output=S3Prefix(bucket, "models/"),
            checkpoints=S3Prefix(bucket, "checkpoints/"),
            training_plan=PLAN,
        )
        cdk.CfnOutput(self, "plannedArn", value=planned.state_machine.state_machine_arn)
        chosen = TrainingWorkflow(
            self,
            "Chosen",
            job=DataParallelJob(InstanceGroup("ml.m5.xlarge")),
            image=image,
            channels={"letters": S3Channel(bucket, "sets/", subfolder=sfn.JsonPath.string_at("$.letters"))},
            output=S3Prefix(bucket, "models/", subfolder=sfn.JsonPath.string_at("$.models")),
            checkpoints=S3Prefix(bucket, "checkpoints/"),
        )
        cdk.CfnOutput(self, "chosenArn", value=chosen.state_machine.state_machine_arn)
        parent = sfn.StateMachine(
            self, "Parent", definition_body=sfn.DefinitionBody.from_chainable(workflow.as_task(self, "Train"))
        )
        cdk.CfnOutput(self, "parentArn", value=parent.state_machine_arn)
        cdk.CfnOutput(self, "BucketName", value=bucket.bucket_name)
        cdk.CfnOutput(self, "KeyArn", value=key.key_arn)


class Account:
    """What the tests ask of the account with the quick stack in it."""

    def __init__(self, deployed: Deployed, outputs: dict[str, str]) -> None:
        self.deployed = deployed
        self.outputs = outputs
        self.iam, self.sagemaker = deployed.client("iam"), deployed.client("sagemaker")
        self.states, self.s3 = deployed.client("stepfunctions"), deployed.client("s3")
        self.s3.put_object(Bucket=outputs["BucketName"], Key="letters/a.txt", Body=b"a")
        self._count = 0

    @cached_property
    def request(self) -> dict[str, Any]:
        """The request of a job that a state machine made."""
        execution = self.deployed.start(self.outputs["pollArn"])
        assert self.deployed.ended(execution)["status"] == "SUCCEEDED"
        [job] = self.deployed.jobs_of(execution)
        members = boto3.client("sagemaker", region_name="us-east-1").meta.service_model.operation_model(
            "CreateTrainingJob"
        )
        request = {name: job[name] for name in members.input_shape.members if name in job}
        of_workflow = job["CheckpointConfig"]["S3Uri"].rsplit("/", 2)[0]
        return {**request, "CheckpointConfig": {"S3Uri": f"{of_workflow}/before/"}}

    def role_without(self, arn: str, *names: str) -> str:
        """A role like another, whose policies do not have some actions or resources; its ARN."""
        self._count += 1
        name = arn.rpartition("/")[2]
        other = f"Without{self._count}"
        trust = self.iam.get_role(RoleName=name)["Role"]["AssumeRolePolicyDocument"]
        created = self.iam.create_role(RoleName=other, AssumeRolePolicyDocument=json.dumps(trust))["Role"]
        for policy in self.iam.list_role_policies(RoleName=name)["PolicyNames"]:
            document = self.iam.get_role_policy(RoleName=name, PolicyName=policy)["PolicyDocument"]
            left = without(document, names)
            assert left != document, f"{name} has no {names}"
            self.iam.put_role_policy(RoleName=other, PolicyName=policy, PolicyDocument=json.dumps(left))
        return str(created["Arn"])

    def job_without(self, action: str) -> dict[str, Any]:
        """The end of a job like the quick one, whose role lacks an action."""
        name = f"{self.request['TrainingJobName'][:40]}-{self._count}"
        role = self.role_without(self.request["RoleArn"], action)
        # A checkpoint that is there to be read, and to be removed.
        kept = self.request["CheckpointConfig"]["S3Uri"].split("/", 3)[3]
        self.s3.put_object(Bucket=self.outputs["BucketName"], Key=f"{kept}old.txt", Body=b"old")
        self.sagemaker.create_training_job(**{**self.request, "TrainingJobName": name, "RoleArn": role})

        def ended() -> dict[str, Any] | None:
            job: dict[str, Any] = self.sagemaker.describe_training_job(TrainingJobName=name)
            return None if job["TrainingJobStatus"] == "InProgress" else job

        return wait_until(ended)

    def machine_without(self, arn: str, *actions: str) -> str:
        """A state machine like another that tries nothing twice, and whose role lacks some actions; its ARN."""
        machine = self.states.describe_state_machine(stateMachineArn=arn)
        role = self.role_without(machine["roleArn"], *actions)
        definition = json.dumps(without_retries(json.loads(machine["definition"])))
        created = self.states.create_state_machine(name=role.rpartition("/")[2], definition=definition, roleArn=role)
        return str(created["stateMachineArn"])

    def history_without(self, arn: str, *actions: str, given: str = "{}") -> str:
        """What came to pass in an execution of such a machine, as text."""
        machine = self.machine_without(arn, *actions)
        execution = self.states.start_execution(stateMachineArn=machine, input=given)["executionArn"]
        self.deployed.ended(execution)
        events = self.states.get_execution_history(executionArn=execution)["events"]
        return json.dumps(events, default=str)

    def executions_of(self, machine: str) -> set[str]:
        listed = self.states.list_executions(stateMachineArn=machine)["executions"]
        return {execution["executionArn"] for execution in listed}

    def machine_named(self, pattern: str) -> str:
        machines = self.states.list_state_machines()["stateMachines"]
        return next(str(it["stateMachineArn"]) for it in machines if fnmatchcase(it["name"], pattern))

    def log_says(self, text: str) -> None:
        log = self.deployed.account.state / "account.log"
        wait_until(lambda: text in log.read_text())


def without_retries(definition: Any) -> Any:
    """A definition that calls nothing twice, and waits for nothing."""
    if isinstance(definition, list):
        return [without_retries(item) for item in definition]
    if isinstance(definition, dict):
        made = {name: without_retries(item) for name, item in definition.items() if name != "Retry"}
        if "Repeated" in made:
            made["Repeated"] = {"Wait": 16}  # as after the last
        return {**made, "Seconds": 0} if definition.get("Type") == "Wait" and "Seconds" in definition else made
    return definition


def without(document: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    document = copy.deepcopy(document)
    for statement in document["Statement"]:
        for element, nothing in (("Action", "nothing:Nothing"), ("Resource", "arn:aws:nothing:::nothing")):
            named = statement[element] if isinstance(statement[element], list) else [statement[element]]
            statement[element] = [name for name in named if name not in names] or [nothing]
    return document


@pytest.fixture(scope="module")
def account(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> Account:
    outputs = deployed.deploy(Quick(cdk.App(outdir=str(tmp_path_factory.mktemp("assembly")))))
    account = Account(deployed, outputs)
    assert account.request["RoleArn"]
    return account


def actions(role: str, outcome: str) -> list[str]:
    found = [action for row_role, action, row_outcome in ROWS if (row_role, row_outcome) == (role, outcome)]
    assert found
    return list(dict.fromkeys(found))


def denied(action: str) -> str:
    return f"is not authorized to perform: {action.rstrip('*')}"


@pytest.mark.parametrize("machine", ["pollArn", "syncArn", "parentArn"])
def test_executions_succeed_with_exactly_what_their_stack_grants(account: Account, machine: str) -> None:
    ended = account.deployed.ended(account.deployed.start(account.outputs[machine]))
    assert ended["status"] == "SUCCEEDED", ended.get("cause")


def test_an_executions_input_chooses_the_data_set_below_the_declared_prefix_and_no_other(account: Account) -> None:
    bucket = account.outputs["BucketName"]
    for name in ("sets/capitals/A.txt", "private/secret.txt"):
        account.s3.put_object(Bucket=bucket, Key=name, Body=b"text")
    chosen = json.dumps({"letters": "capitals/", "models": "capitals"})
    started = account.states.start_execution(stateMachineArn=account.outputs["chosenArn"], input=chosen)
    ended = account.deployed.ended(started["executionArn"])
    assert ended["status"] == "SUCCEEDED", ended.get("cause")
    [job] = account.deployed.jobs_of(started["executionArn"])
    source = job["InputDataConfig"][0]["DataSource"]["S3DataSource"]
    assert source["S3Uri"] == f"s3://{bucket}/sets/capitals/"
    assert job["ModelArtifacts"]["S3ModelArtifacts"].startswith(f"s3://{bucket}/models/capitals/")
    # What the same role, which the input cannot lead out of the prefix, may not read.
    source["S3Uri"] = f"s3://{bucket}/private/"
    request = {name: job[name] for name in account.request if name in job}
    name = f"{job['TrainingJobName'][:40]}-outside"
    account.sagemaker.create_training_job(**{**request, "TrainingJobName": name})

    def reason() -> str | None:
        described = account.sagemaker.describe_training_job(TrainingJobName=name)
        return None if described["TrainingJobStatus"] == "InProgress" else described.get("FailureReason", "none")

    assert denied("s3:ListBucket") in wait_until(reason)


@pytest.mark.parametrize("action", actions("job", "CreateTrainingJob is refused"))
def test_a_job_is_not_created_without(account: Account, action: str) -> None:
    with pytest.raises(ClientError) as refused:
        account.job_without(action)
    assert refused.value.response["Error"]["Code"] == "ValidationException"
    assert denied(action) in refused.value.response["Error"]["Message"]


@pytest.mark.parametrize("action", actions("job", "the job fails: data download failed"))
def test_a_job_cannot_read_its_data_without(account: Account, action: str) -> None:
    job = account.job_without(action)
    assert job["TrainingJobStatus"] == "Failed"
    assert "ClientError: Data download failed" in job["FailureReason"]
    assert denied(action) in job["FailureReason"]


def test_fsx_cannot_read_a_bucket_whose_key_does_not_let_it(account: Account) -> None:
    [action] = actions("FSx", "the job fails")
    kms, key = account.deployed.client("kms"), account.outputs["KeyArn"]
    policy = kms.get_key_policy(KeyId=key, PolicyName="default")["Policy"]
    left = without(json.loads(policy), (action,))
    assert left != json.loads(policy)
    kms.put_key_policy(KeyId=key, PolicyName="default", Policy=json.dumps(left))
    account.s3.put_object(Bucket=account.outputs["BucketName"], Key="linked/new.txt", Body=b"new")
    ended = account.deployed.ended(account.deployed.start(account.outputs["pollArn"]))
    kms.put_key_policy(KeyId=key, PolicyName="default", Policy=policy)
    account.s3.delete_object(Bucket=account.outputs["BucketName"], Key="linked/new.txt")
    assert ended["status"] == "FAILED"
    assert "AWSServiceRoleForFSxS3Access_fs-" in ended["cause"]
    assert denied(action) in ended["cause"]


@pytest.mark.parametrize("action", actions("job", "the job fails: upload failed"))
def test_a_job_cannot_write_without(account: Account, action: str) -> None:
    job = account.job_without(action)
    assert job["TrainingJobStatus"] == "Failed"
    assert "upload failed" in job["FailureReason"]
    assert denied(action) in job["FailureReason"]


def test_a_job_cannot_remove_its_checkpoints_without(account: Account) -> None:
    [action] = actions("job", "the job fails: deletion failed")
    job = account.job_without(action)
    assert job["TrainingJobStatus"] == "Failed"
    assert "ClientError: Checkpoint deletion failed" in job["FailureReason"]
    assert denied(action) in job["FailureReason"]


@pytest.mark.parametrize("action", actions("job", "the job runs without logs"))
def test_a_job_has_no_logs_without(account: Account, action: str) -> None:
    if action == "logs:CreateLogGroup":
        account.deployed.client("logs").delete_log_group(logGroupName="/aws/sagemaker/TrainingJobs")
    job = account.job_without(action)
    assert job["TrainingJobStatus"] == "Completed"
    account.log_says(denied(action))
    assert (
        f"logs of {job['TrainingJobName']} are not sent any more"
        in (account.deployed.account.state / "account.log").read_text()
    )


@pytest.mark.parametrize("action", actions("job", "the job runs without metrics"))
def test_a_job_has_no_metrics_without(account: Account, action: str) -> None:
    job = account.job_without(action)
    assert job["TrainingJobStatus"] == "Completed"
    account.log_says(denied(action))


@pytest.mark.parametrize("action", actions("machine", "the execution fails"))
@pytest.mark.parametrize("machine", ["pollArn", "syncArn"])
def test_an_execution_is_denied(account: Account, machine: str, action: str) -> None:
    assert denied(action) in account.history_without(account.outputs[machine], action)


@pytest.mark.parametrize("action", actions("machine", "an execution that waits by `.sync` fails"))
def test_an_execution_that_waits_by_sync_is_denied(account: Account, action: str) -> None:
    assert denied(action) in account.history_without(account.outputs["syncArn"], action)


def test_an_execution_does_not_look_for_its_model_without(account: Account) -> None:
    [action] = actions("machine", "a job without a model is not warned of")
    history = account.history_without(account.outputs["syncArn"], action)
    assert denied(action) in history
    assert "ExecutionSucceeded" in history


CAPACITY = PLAN.replace(":training-plan/spring", ":reserved-capacity/*")


@pytest.mark.parametrize("resource", [PLAN, CAPACITY])
def test_an_execution_is_denied_a_training_plan(account: Account, resource: str) -> None:
    history = account.history_without(account.outputs["plannedArn"], resource)
    assert f"{denied('sagemaker:CreateTrainingJob')} on resource: {resource}" in history


def test_an_execution_may_use_the_training_plan_that_its_stack_names(account: Account) -> None:
    ended = account.deployed.ended(account.deployed.start(account.outputs["plannedArn"]))
    assert ended["status"] == "SUCCEEDED", ended.get("cause")


@pytest.mark.parametrize("action", actions("machine", "the execution of a long job fails"))
def test_an_execution_cannot_run_its_poller_without(account: Account, action: str) -> None:
    assert denied(action) in account.history_without(account.outputs["plannedArn"], action)


def test_an_execution_that_is_stopped_leaves_its_poller_running_without_leave(account: Account) -> None:
    [action] = actions("machine", "the poller goes on until the job is over")
    poller, faults = account.machine_named("*PlannedPoller*"), account.deployed.account.faults
    scheduled = faults.add(ScheduledPlan(PLAN, times=None))
    machine = account.machine_without(account.outputs["plannedArn"], action)
    before = account.executions_of(poller)
    execution = account.states.start_execution(stateMachineArn=machine)["executionArn"]
    [polling] = wait_until(lambda: account.executions_of(poller) - before)
    account.states.stop_execution(executionArn=execution)
    account.log_says(denied(action))
    faults.mend(scheduled)
    assert account.deployed.ended(polling)["status"] == "SUCCEEDED"


def test_a_poller_is_denied(account: Account) -> None:
    [action] = actions("poller", "the execution of a long job fails")
    poller = account.machine_named("*PlannedPoller*")
    assert denied(action) in account.history_without(poller, action, given=json.dumps({"JobName": "planned-1"}))


def test_an_execution_that_failed_cannot_stop_its_job_without_leave(account: Account) -> None:
    [action] = actions("machine", "the job goes on")
    history = account.history_without(account.outputs["pollArn"], action, "sagemaker:DescribeTrainingJob")
    assert denied(action) in history


@pytest.mark.parametrize(
    ("machine", "action"),
    [
        (machine, action)
        for machine, role in (("syncArn", "machine"), ("parentArn", "caller"))
        for action in actions(role, "the state machine is not created")
    ],
)
def test_a_machine_that_waits_is_not_created_without(account: Account, machine: str, action: str) -> None:
    with pytest.raises(ClientError, match="is not authorized to create managed-rule") as refused:
        account.machine_without(account.outputs[machine], action)
    assert refused.value.response["Error"]["Code"] == "AccessDeniedException"
    assert denied(action) in refused.value.response["Error"]["Message"]


@pytest.mark.parametrize("action", actions("caller", "the execution fails"))
def test_an_execution_that_calls_the_workflow_is_denied(account: Account, action: str) -> None:
    assert denied(action) in account.history_without(account.outputs["parentArn"], action)


@pytest.mark.parametrize("allowed", [True, False])
def test_an_execution_that_is_stopped_stops_the_workflow_if_it_may(account: Account, allowed: bool) -> None:
    [action] = actions("caller", "the workflow goes on")
    parent = account.outputs["parentArn"]
    machine = parent if allowed else account.machine_without(parent, action)
    workflow = account.outputs["syncArn"]
    before = account.executions_of(workflow)
    execution = account.states.start_execution(stateMachineArn=machine)["executionArn"]
    [called] = wait_until(lambda: account.executions_of(workflow) - before)
    account.states.stop_execution(executionArn=execution)
    if not allowed:
        account.log_says(denied(action))
    assert account.deployed.ended(called)["status"] == ("ABORTED" if allowed else "SUCCEEDED")


def stopper(account: Account) -> str:
    return account.machine_named("*GuardStopper*")


def test_what_stops_the_jobs_of_an_ended_execution_must_be_able_to_describe_it(account: Account) -> None:
    [action] = actions("guard", "the execution fails")
    given = json.dumps({"executionArn": "arn:aws:states:us-east-1:123456789012:execution:a:b"})
    assert denied(action) in account.history_without(stopper(account), action, given=given)


def aborted(account: Account, machine: str) -> str:
    """An execution that was stopped, where one of a quick job may have ended before."""
    while True:
        execution = account.deployed.start(machine)
        account.states.stop_execution(executionArn=execution)
        if account.deployed.ended(execution)["status"] == "ABORTED":
            return execution


def test_what_a_rule_may_not_start_is_a_dead_letter_an_alarm_and_a_notice(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloudwatch, "QUEUES_EVERY_SECONDS", 0)
    [action] = actions("rule", "the stopper is not started: a dead letter, and an alarm")
    events = account.deployed.client("events")
    [rule] = [rule["Name"] for rule in events.list_rules()["Rules"] if "GuardRule" in rule["Name"]]
    [target] = events.list_targets_by_rule(Rule=rule)["Targets"]
    role = account.role_without(target["RoleArn"], action)
    events.put_targets(Rule=rule, Targets=[{**target, "RoleArn": role}])
    execution = aborted(account, account.outputs["pollArn"])
    # Of this role: the log has denials of the same action to others.
    said = re.compile(rf"assumed-role/{role.rpartition('/')[2]}/\S* {re.escape(denied(action))}")
    log = account.deployed.account.state / "account.log"
    wait_until(lambda: said.search(log.read_text()))
    events.put_targets(Rule=rule, Targets=[target])
    queues, queue = account.deployed.client("sqs"), target["DeadLetterConfig"]["Arn"].rpartition(":")[2]
    url = queues.get_queue_url(QueueName=queue)["QueueUrl"]
    # The denied call is in the log before its event is in the queue.
    [letter] = wait_until(lambda: queues.receive_message(QueueUrl=url, VisibilityTimeout=0).get("Messages"))
    assert json.loads(letter["Body"])["detail"]["executionArn"] == execution
    alarms = account.deployed.client("cloudwatch")

    def in_alarm() -> list[str]:
        found = alarms.describe_alarms(StateValue="ALARM")["MetricAlarms"]
        return [dimension["Value"] for alarm in found for dimension in alarm["Dimensions"]]

    assert wait_until(in_alarm) == [queue]

    def noticed() -> list[dict[str, Any]]:
        received = queues.receive_message(QueueUrl=account.outputs["ToldUrl"], MaxNumberOfMessages=10)
        told = [json.loads(message["Body"]) for message in received.get("Messages", ())]
        return [one["detail"] for one in told if one["detail-type"] == "CloudWatch Alarm State Change"]

    assert {notice["state"]["value"] for notice in wait_until(noticed)} == {"ALARM"}


def test_a_role_of_another_service_cannot_be_given_to_a_job(account: Account) -> None:
    machine = account.states.describe_state_machine(stateMachineArn=account.outputs["pollArn"])
    with pytest.raises(ClientError, match="Could not assume role"):
        account.sagemaker.create_training_job(
            **{**account.request, "TrainingJobName": "not-mine", "RoleArn": machine["roleArn"]}
        )


def test_a_job_acts_as_its_own_role_only(account: Account) -> None:
    """What its hosts have is not the account's: they may read their channel, and not list buckets."""
    sts = account.deployed.client("sts")
    role = account.request["RoleArn"]
    keys = account.deployed.account.jobs._sessions.credentials(role, "sagemaker.amazonaws.com", "any")
    s3 = boto3.client(
        "s3",
        endpoint_url=account.deployed.account.endpoint_url,
        region_name="us-east-1",
        aws_access_key_id=keys["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=keys["AWS_SECRET_ACCESS_KEY"],
        aws_session_token=keys["AWS_SESSION_TOKEN"],
    )
    bucket = account.outputs["BucketName"]
    assert s3.get_object(Bucket=bucket, Key="letters/a.txt")["Body"].read() == b"a"
    for call in (lambda: s3.list_buckets(), lambda: s3.get_object(Bucket=bucket, Key="other/a.txt")):
        with pytest.raises(ClientError) as refused:
            call()
        assert refused.value.response["Error"]["Code"] == "AccessDenied"
        assert role.rpartition("/")[2] in refused.value.response["Error"]["Message"]
    assert sts.get_caller_identity()["Arn"].endswith(":root")


# Roles by their construct ids, and what is used only when an execution fails, is stopped or goes on.
KINDS = {
    "PollRole": "job",
    "SyncRole": "job",
    "PollStateMachine": "machine",
    "SyncStateMachine": "machine",
    "ParentRole": "caller",
}
NOT_WITHOUT_FAILURES = {
    ("job", "s3:GetObject"),  # of checkpoints
    ("job", "s3:DeleteObject"),  # of checkpoints
    ("machine", "sagemaker:StopTrainingJob"),
    ("caller", "states:StopExecution"),
}


def test_what_a_run_without_failures_does_not_use_has_its_reason_on_the_page(account: Account) -> None:
    for machine in ("pollArn", "syncArn", "parentArn"):
        assert account.deployed.ended(account.deployed.start(account.outputs[machine]))["status"] == "SUCCEEDED"
    found = account.deployed.account.permissions()
    held, unused = set(), set()
    for arn, rows in found.items():
        kind = next((kind for name, kind in KINDS.items() if f"role/Quick-{name}" in arn), None)
        for row in rows if kind else ():
            held |= {(kind, action) for action in row["actions"]}
            unused |= {(kind, action) for action, calls in row["actions"].items() if not calls}
    reasons = {(row.role, row.action) for row in granted(PAGE.read_text())}
    assert unused - reasons - NOT_WITHOUT_FAILURES == set()
    # Nor does the page say of one that is used that it is not.
    assert held & reasons - unused == set()
    assert len(held - unused) > 20
