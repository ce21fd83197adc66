"""Which executions and jobs are stopped before a workflow is deleted, by what AWS answers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from stacks import UserStack

from cdk_sagemaker_training import Grid, NumberField, TrainingPipeline, TrainingSweep
from cdk_sagemaker_training.handlers.deletion import SECONDS_UNTIL_LATE_JOBS_SHOW, Workflow, look, taken

MACHINE = "arn:aws:states:us-east-1:123456789012:stateMachine:Training"
HASH, OTHER = (hashlib.md5(name.encode()).hexdigest() for name in (f"{MACHINE}:1", f"{MACHINE}:2"))
NOW = datetime.now(UTC)
LONG_AGO = NOW - timedelta(hours=1)
FIRST = {f"{MACHINE}:1"}
DESCRIBED: dict[str, Any] = {
    "ModelArtifacts": {"S3ModelArtifacts": "s3://bucket/model.tar.gz"},
    "TrainingJobStatus": "Stopping",
    "SecondaryStatus": "Stopping",
    "AlgorithmSpecification": {"TrainingInputMode": "File"},
    "ResourceConfig": {"VolumeSizeInGB": 1},
    "StoppingCondition": {"MaxRuntimeInSeconds": 60},
    "CreationTime": LONG_AGO,
}


def arn_of(name: str) -> str:
    return f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{name}"


class Deleted:
    """A workflow that is deleted, and the answers of AWS, which botocore holds against its service models."""

    def __init__(self, **properties: str) -> None:
        self.workflow = Workflow({"StateMachineArn": MACHINE, **properties}, lambda: 600)
        self.states, self.jobs = Stubber(self.workflow.states), Stubber(self.workflow.jobs)
        self.states.activate()
        self.jobs.activate()

    def executions(self, **statuses: str) -> None:
        """Executions by their names, which ended long ago or not at all."""
        listed = [
            {
                "executionArn": f"{MACHINE}:{name}",
                "stateMachineArn": MACHINE,
                "name": name,
                "status": status,
                "startDate": LONG_AGO,
                **({} if status in ("RUNNING", "PENDING_REDRIVE") else {"stopDate": LONG_AGO}),
            }
            for name, status in statuses.items()
        ]
        self.states.add_response("list_executions", {"executions": listed}, {"stateMachineArn": MACHINE})

    def stops_execution(self, name: str) -> None:
        given = {"executionArn": f"{MACHINE}:{name}", "cause": "the workflow is being deleted"}
        self.states.add_response("stop_execution", {"stopDate": NOW}, given)

    def training_jobs(self, **statuses: str) -> None:
        """Jobs by their names, listed by status as SageMaker does it, whatever their names are."""
        for status in ("InProgress", "Stopping"):
            listed = [
                {
                    "TrainingJobName": name.replace("_", "-"),
                    "TrainingJobArn": arn_of(name.replace("_", "-")),
                    "CreationTime": LONG_AGO,
                    "TrainingJobStatus": status,
                }
                for name, of in statuses.items()
                if of == status
            ]
            given = {"StatusEquals": status, "MaxResults": 100}
            self.jobs.add_response("list_training_jobs", {"TrainingJobSummaries": listed}, given)

    def tagged(self, name: str, execution: str) -> None:
        """A job whose tag names an execution."""
        described = {**DESCRIBED, "TrainingJobName": name, "TrainingJobArn": arn_of(name)}
        self.jobs.add_response("describe_training_job", described, {"TrainingJobName": name})
        tags = [{"Key": "team", "Value": "vision"}, {"Key": "StepFunctionsExecution", "Value": execution}]
        self.jobs.add_response("list_tags", {"Tags": tags}, {"ResourceArn": arn_of(name)})


@pytest.fixture(params=[{}])
def deleted(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Deleted]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "of-no-account")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    found = Deleted(**request.param)
    yield found
    found.states.assert_no_pending_responses()
    found.jobs.assert_no_pending_responses()


@pytest.mark.parametrize("status", ["RUNNING", "PENDING_REDRIVE"])
def test_an_execution_that_runs_or_will_again_is_stopped(deleted: Deleted, status: str) -> None:
    deleted.executions(**{"1": status})
    deleted.stops_execution("1")
    assert deleted.workflow.stop_executions() == (FIRST, True)


@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED", "ABORTED", "TIMED_OUT"])
def test_the_jobs_of_an_execution_that_ended_long_ago_are_looked_for_once(deleted: Deleted, status: str) -> None:
    deleted.executions(**{"1": status})
    assert deleted.workflow.stop_executions() == (FIRST, False)


@pytest.mark.parametrize(("status", "active"), [("ABORTED", True), ("FAILED", True), ("SUCCEEDED", False)])
def test_the_jobs_of_an_execution_that_ended_just_now_are_looked_for_again_unless_it_succeeded(
    deleted: Deleted, status: str, active: bool
) -> None:
    assert SECONDS_UNTIL_LATE_JOBS_SHOW == 15
    ended: dict[str, Any] = {"executionArn": f"{MACHINE}:1", "stateMachineArn": MACHINE, "name": "1", "status": status}
    listed = [{**ended, "startDate": LONG_AGO, "stopDate": datetime.now(UTC)}]
    deleted.states.add_response("list_executions", {"executions": listed})
    assert deleted.workflow.stop_executions() == (FIRST, active)


def test_an_execution_that_ended_in_the_future_of_this_clock_is_waited_for_once(
    deleted: Deleted, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = {"executionArn": f"{MACHINE}:1", "stateMachineArn": MACHINE, "name": "1", "status": "ABORTED"}
    listed = [{**ended, "startDate": LONG_AGO, "stopDate": datetime.now(UTC) + timedelta(hours=1)}]
    moments = [100.0, 100.0, 115.5, 115.5]
    monkeypatch.setattr("cdk_sagemaker_training.handlers.deletion.time.monotonic", lambda: moments.pop(0))
    for active in (True, False):
        deleted.states.add_response("list_executions", {"executions": listed})
        assert deleted.workflow.stop_executions() == (FIRST, active)


def test_the_unfinished_jobs_of_the_executions_are_stopped_whatever_their_names_begin_with(deleted: Deleted) -> None:
    deleted.training_jobs(
        **{
            f"digits_{HASH}_1": "Completed",
            f"digits_{HASH}_2": "Stopping",
            f"digits_{HASH}_3": "InProgress",
            f"before_an_update_{HASH}_c1": "InProgress",
            f"digits_{OTHER}_1": "InProgress",
            f"digits_{HASH}0_1": "InProgress",
            "digits_by_hand": "InProgress",
        }
    )
    found = deleted.workflow.unfinished(FIRST)
    assert found == [f"digits-{HASH}-3", f"before-an-update-{HASH}-c1", f"digits-{HASH}-2"]


@pytest.mark.parametrize("deleted", [{"TaggedJobNamePrefix": "digits"}], indirect=True)
def test_jobs_whose_tag_names_an_execution_are_stopped_where_their_names_have_no_hash_of_it(deleted: Deleted) -> None:
    deleted.training_jobs(digits_1="InProgress", digits_2="InProgress", my_digits_3="InProgress")
    for name, execution in {"digits-1": f"{MACHINE}:1", "digits-2": f"{MACHINE}:2"}.items():
        deleted.tagged(name, execution)
    assert deleted.workflow.unfinished(FIRST) == ["digits-1"]


def test_a_job_that_has_ended_before_it_is_stopped_is_no_error(deleted: Deleted) -> None:
    message = "The request was rejected because the training job is in status Completed."
    deleted.jobs.add_client_error("stop_training_job", "ValidationException", message)
    deleted.workflow.stop_job("digits-1")


def test_a_job_that_cannot_be_stopped_is_an_error(deleted: Deleted) -> None:
    deleted.jobs.add_client_error("stop_training_job", "AccessDeniedException", "not authorized")
    with pytest.raises(deleted.workflow.jobs.exceptions.ClientError, match="not authorized"):
        deleted.workflow.stop_job("digits-1")


def test_a_job_that_does_not_end_in_time_is_named_beside_the_others(deleted: Deleted) -> None:
    deleted.workflow.seconds_left = lambda: 4
    described = {**DESCRIBED, "TrainingJobName": "digits-2", "TrainingJobArn": arn_of("digits-2")}
    deleted.jobs.add_response("describe_training_job", described, {"TrainingJobName": "digits-2"})
    with pytest.raises(TimeoutError, match=r"^digits-2 is Stopping, of these .*: digits-1, digits-2; delete the stack"):
        deleted.workflow.wait("digits-2", ["digits-1", "digits-2"])


STACK = "arn:aws:cloudformation:us-east-1:123456789012:stack/Training/1"
MODELS, CHECKPOINTS = "arn:aws:s3:::bucket/models/*", "arn:aws:s3:::bucket/checkpoints/*"


def entry(breaking: str = "refuse", **needs: list[str]) -> dict[str, Any]:
    return {"StateMachineArn": MACHINE, "BreakingUpdates": breaking, "Needs": needs}


@pytest.mark.parametrize(
    ("before", "now", "lost"),
    [
        ({"s3:PutObject": [MODELS]}, {"s3:PutObject": [MODELS, CHECKPOINTS]}, []),
        ({"s3:PutObject": [MODELS, CHECKPOINTS]}, {"s3:PutObject": [MODELS]}, [f"s3:PutObject on {CHECKPOINTS}"]),
        ({"s3:PutObject": [MODELS]}, {"s3:GetObject": [MODELS]}, [f"s3:PutObject on {MODELS}"]),
        ({"s3:PutObject": [MODELS]}, {"s3:PutObject": ["arn:aws:s3:::bucket/*"]}, []),
        (
            {"s3:PutObject": ["arn:aws:s3:::bucket/*"]},
            {"s3:PutObject": [MODELS]},
            ["s3:PutObject on arn:aws:s3:::bucket/*"],
        ),
        ({}, {"s3:PutObject": [MODELS]}, []),
    ],
)
def test_what_an_update_takes_away_is_what_was_allowed_and_no_pattern_still_allows(
    before: dict[str, list[str]], now: dict[str, list[str]], lost: list[str]
) -> None:
    assert taken(before, now) == lost


def test_a_state_machine_that_was_deleted_by_hand_has_no_executions_to_stop(deleted: Deleted) -> None:
    for _ in range(2):
        deleted.states.add_client_error("list_executions", "StateMachineDoesNotExist", "State Machine Does Not Exist")
    deleted.training_jobs()
    assert deleted.workflow.running() == []
    deleted.workflow.stop()
    deleted.states.assert_no_pending_responses()


SWEEP = {"LogicalResourceId": "SweepStateMachine", "PhysicalResourceId": f"{MACHINE}-sweep"}
OF_SWEEP = {"LogicalId": SWEEP["LogicalResourceId"], "BreakingUpdates": "refuse", "Needs": {}}
KNOWN = {MACHINE, SWEEP["PhysicalResourceId"]}


class Updated:
    """Updates of a stack whose one workflow has executions that run; AWS's answers are stubs, as of ``Deleted``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, status: str, running: int) -> None:
        self.stopped = 0
        described = {"Stacks": [{"StackName": "Training", "CreationTime": NOW, "StackStatus": status}]}
        client = boto3.client("cloudformation", region_name="us-east-1")
        stubber = Stubber(client)
        stubber.add_response("describe_stacks", described, {"StackName": STACK})
        now = {
            "LastUpdatedTimestamp": NOW,
            "ResourceStatus": "CREATE_COMPLETE",
            "ResourceType": "AWS::StepFunctions::StateMachine",
            **SWEEP,
        }
        asked = {"StackName": STACK, "LogicalResourceId": SWEEP["LogicalResourceId"]}
        stubber.add_response("describe_stack_resource", {"StackResourceDetail": now}, asked)
        stubber.activate()
        real = boto3.client
        choose = lambda name, **options: client if name == "cloudformation" else real(name, **options)  # noqa: E731
        monkeypatch.setattr("cdk_sagemaker_training.handlers.deletion.boto3.client", choose)
        arns = [f"{MACHINE}:{number}" for number in range(running)]
        monkeypatch.setattr(Workflow, "running", lambda workflow: arns if workflow.machine in KNOWN else [])
        monkeypatch.setattr(Workflow, "stop", lambda workflow: setattr(self, "stopped", self.stopped + 1))

    def look(self, before: list[Any], now: list[Any]) -> None:
        event = {
            "StackId": STACK,
            "ResourceProperties": {"Workflows": now},
            "OldResourceProperties": {"Workflows": before},
        }
        look(event, lambda: 600.0)


@pytest.fixture
def of_no_account(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "of-no-account")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    return monkeypatch


NARROWED = [entry(**{"s3:PutObject": [MODELS]})], [entry(**{"s3:PutObject": [CHECKPOINTS]})]


def test_an_update_that_takes_from_executions_that_run_is_refused_with_what_and_whom(of_no_account: Any) -> None:
    updated = Updated(of_no_account, "UPDATE_IN_PROGRESS", 5)
    with pytest.raises(RuntimeError) as error:
        updated.look(*NARROWED)
    assert str(error.value) == (
        "breaking_updates must be 'stop' or 'allow', or these executions must have ended, for an update in which what they need "
        f"is taken away: s3:PutObject on {MODELS} is needed by {MACHINE}:0, {MACHINE}:1, {MACHINE}:2 and 2 more"
    )
    assert updated.stopped == 0


@pytest.mark.parametrize(
    ("breaking", "status", "running", "stopped"),
    [
        ("stop", "UPDATE_IN_PROGRESS", 1, 1),
        ("stop", "UPDATE_IN_PROGRESS", 0, 0),
        ("allow", "UPDATE_IN_PROGRESS", 1, 0),
        ("refuse", "UPDATE_IN_PROGRESS", 0, 0),
        ("refuse", "UPDATE_ROLLBACK_IN_PROGRESS", 1, 0),
    ],
)
def test_an_update_stops_them_or_goes_on_as_the_workflow_says_and_one_that_is_taken_back_goes_on(
    of_no_account: Any, breaking: str, status: str, running: int, stopped: int
) -> None:
    updated = Updated(of_no_account, status, running)
    before, _ = NARROWED
    updated.look(before, [entry(breaking, **{"s3:PutObject": [CHECKPOINTS]})])
    assert updated.stopped == stopped


def test_an_update_that_removes_a_workflow_whose_executions_run_is_refused(of_no_account: Any) -> None:
    updated = Updated(of_no_account, "UPDATE_IN_PROGRESS", 1)
    before, _ = NARROWED
    with pytest.raises(RuntimeError) as error:
        updated.look(before, [{**before[0], "StateMachineArn": f"{MACHINE}-renamed"}])
    assert str(error.value).endswith(
        f"taken away: the state machine or its guard, which is removed or has another id, is needed by {MACHINE}:0"
    )


def test_so_is_one_that_removes_the_state_machine_of_another_construct_which_its_logical_id_finds(
    of_no_account: Any,
) -> None:
    updated = Updated(of_no_account, "UPDATE_IN_PROGRESS", 1)
    with pytest.raises(RuntimeError, match=f"the state machine or its guard, .* is needed by {MACHINE}:0"):
        updated.look([OF_SWEEP], [])


def test_updates_look_for_the_state_machines_of_sweeps_pipelines_and_guarded_tasks() -> None:
    stack = UserStack()
    workflow = stack.workflow(input_fields={"rate": NumberField(0, 1)})
    grid = Grid({"rate": [0.5]})
    sweep = TrainingSweep(stack, "Sweep", workflow=workflow, over=grid, results=stack.place("rows/"), concurrency=1)
    pipeline = TrainingPipeline(stack, "Pipeline", steps=[workflow])
    task = stack.task()
    machine = stack.machine_of(task)
    task.guard(machine)
    machines = [sweep.state_machine, pipeline.state_machine, machine]
    template = stack.template()
    [updates] = [one for one in template["Resources"].values() if one["Type"] == "Custom::SageMakerTrainingUpdates"]
    ids = [one.get("LogicalId") for one in updates["Properties"]["Workflows"]]
    assert ids == [None, *(stack.get_logical_id(one.node.default_child) for one in machines)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "status", "running"),
    [
        ({"BreakingUpdates": "stop"}, "UPDATE_IN_PROGRESS", 1),
        ({"BreakingUpdates": "allow"}, "UPDATE_IN_PROGRESS", 1),
        ({"Retain": "true"}, "UPDATE_IN_PROGRESS", 1),
        ({}, "UPDATE_IN_PROGRESS", 0),
        ({}, "UPDATE_ROLLBACK_IN_PROGRESS", 1),
    ],
)
def test_a_workflow_that_is_removed_as_it_was_deployed_to_be_is_left_to_its_deletion(
    of_no_account: Any, said: dict[str, str], status: str, running: int
) -> None:
    updated = Updated(of_no_account, status, running)
    before, _ = NARROWED
    updated.look([{**before[0], **said}], [])
    assert updated.stopped == 0


def test_a_workflow_that_loses_nothing_goes_on(of_no_account: Any) -> None:
    updated = Updated(of_no_account, "UPDATE_IN_PROGRESS", 1)
    before = [*NARROWED[0], OF_SWEEP]
    updated.look(before, before)
    assert updated.stopped == 0
