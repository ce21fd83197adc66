"""Each story of what `training-jobs prove` finds in the constructs, replayed by its commands, has the same end in the account."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from deployed import Deployed, wait_until

from cdk_sagemaker_training import (
    DataParallelJob,
    InstanceGroup,
    S3Prefix,
    TrainingImage,
    TrainingPipeline,
    TrainingQueue,
    TrainingTask,
    TrainingWorkflow,
)
from training_jobs.prove.explorer import Violation, prove
from training_jobs.prove.replay import commands

pytestmark = pytest.mark.soak  # jobs that train, one for each story
A_STEPPING_JOB = Path(__file__).parent / "a_stepping_job"
MACHINES = ("Task", "Guarded", "OfCdk", "Outer", "Pipeline", "Queued")
# What is found today; a construct that is mended loses its story.
FOUND = {
    ("Task", "one-failed-call"),
    ("Task", "left-running"),
    ("Guarded", "one-failed-call"),
    ("OfCdk", "one-failed-call"),
    ("OfCdk", "left-running"),
    ("Outer", "one-failed-call"),
    ("Outer", "outlives"),
}


class Unguarded(cdk.Stack):
    """What starts jobs without all that a workflow has, and a workflow whose jobs wait in a queue."""

    def __init__(self, app: cdk.App) -> None:
        super().__init__(app, "Unguarded")
        bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
        props: dict[str, Any] = {
            "job": DataParallelJob(InstanceGroup("ml.m5.xlarge")),
            "image": TrainingImage.from_asset(self, "Image", directory=str(A_STEPPING_JOB)),
            "output": S3Prefix(bucket, "models/"),
            "environment": {"STEPS": "2000"},
        }
        task = TrainingTask(self, "TaskState", **props)
        guarded = TrainingTask(self, "GuardedState", **props)
        cdk.CfnOutput(self, "BucketName", value=bucket.bucket_name)
        workflow = TrainingWorkflow(self, "Training", **props)
        queued = TrainingWorkflow(self, "Queued", **props, queue=TrainingQueue(self, "Queue", capacity=8))
        place = tasks.S3Location.from_bucket(bucket, "data/")
        of_cdk = tasks.SageMakerCreateTrainingJob(
            self,
            "OfCdkState",
            training_job_name=sfn.JsonPath.string_at("$$.Execution.Name"),
            integration_pattern=sfn.IntegrationPattern.RUN_JOB,
            algorithm_specification=tasks.AlgorithmSpecification(
                training_image=tasks.DockerImage.from_registry(props["image"].image_uri)
            ),
            environment={"STEPS": "2000"},
            input_data_config=[
                tasks.Channel(
                    channel_name="train",
                    data_source=tasks.DataSource(s3_data_source=tasks.S3DataSource(s3_location=place)),
                )
            ],
            output_data_config=tasks.OutputDataConfig(s3_output_location=place),
            role=task.role.role,
            stopping_condition=tasks.StoppingCondition(max_runtime=cdk.Duration.days(1)),
        )
        pipeline = TrainingPipeline(self, "Pipeline", steps=[workflow])
        outer = workflow.as_task(self, "Train")
        with_guard = self.machine("Guarded", guarded)
        guarded.guard(with_guard)
        for name, machine in {
            "Task": self.machine("Task", task),
            "Guarded": with_guard,
            "OfCdk": self.machine("OfCdk", of_cdk),
            "Outer": self.machine("Outer", outer),
            "Pipeline": pipeline.state_machine,
            "Training": workflow.state_machine,
            "Queued": queued.state_machine,
        }.items():
            cdk.CfnOutput(self, f"{name}Arn", value=machine.state_machine_arn)

    def machine(self, id: str, state: Any) -> sfn.StateMachine:
        return sfn.StateMachine(self, id, definition_body=sfn.DefinitionBody.from_chainable(state))


@pytest.fixture(scope="module")
def machines(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    outputs = deployed.deploy(Unguarded(cdk.App(outdir=str(tmp_path_factory.mktemp("assembly")))))
    deployed.client("s3").put_object(Bucket=outputs["BucketName"], Key="data/one", Body=b"one")
    return outputs


@pytest.fixture(scope="module")
def stories(deployed: Deployed, machines: dict[str, str]) -> dict[tuple[str, str], Violation]:
    """What is found in the template as it was deployed, by the state machine's id and the property."""
    template = deployed.client("cloudformation").get_template(StackName="Unguarded")["TemplateBody"]
    stories = {}
    for proof in prove(template if isinstance(template, dict) else json.loads(template), most_states=20_000):
        [name] = [name for name in MACHINES if proof.machine.startswith(name)] or [""]
        stories |= {(name, one.property): one for one in proof.violations if name}
    # Deletions are replayed below, but for one: nothing makes a machine start its workflow between two deletions of a stack.
    return {(name, one): story for (name, one), story in stories.items() if one != "left-by-deletion"}


@pytest.fixture
def cleared(deployed: Deployed) -> Iterator[None]:
    """Mends what is left of the faults, and stops what a story has left."""
    yield
    for fault in deployed.account.faults.remaining():
        deployed.account.faults.mend(fault)
    states = deployed.client("stepfunctions")
    for machine in states.list_state_machines()["stateMachines"]:
        if machine["type"] == "EXPRESS":
            continue
        for one in states.list_executions(stateMachineArn=machine["stateMachineArn"], statusFilter="RUNNING")[
            "executions"
        ]:
            states.stop_execution(executionArn=one["executionArn"])
    for name in deployed.running_jobs():
        deployed.client("sagemaker").stop_training_job(TrainingJobName=name)
    wait_until(lambda: not deployed.running_jobs())


def test_what_is_found_is_what_the_documentation_says(stories: dict[tuple[str, str], Violation]) -> None:
    assert set(stories) == FOUND


def replayed(deployed: Deployed, machine: str, violation: Violation) -> dict[str, Any]:
    """The execution that the commands of a story start, once it has ended."""
    execution = ""
    for line in commands(violation):
        words = shlex.split(line, comments=True)
        if words[:2] == ["local-account", "break"]:
            program = Path(sys.executable).parent / "local-account"
            subprocess.run([program, "--state", str(deployed.account.state), *words[1:]], check=True)
        elif words[:2] == ["training-jobs", "start"]:
            execution = deployed.start(machine)
        elif words[:1] == ["aws"]:
            wait_until(deployed.running_jobs)
            deployed.client("stepfunctions").stop_execution(executionArn=execution)
        else:
            assert not words, line
    assert not [line for line in commands(violation) if "has no fault" in line]
    return deployed.ended(execution)


@pytest.mark.usefixtures("cleared")
@pytest.mark.parametrize(("machine", "property"), sorted(FOUND))
def test_a_story_ends_in_the_account_as_it_says(
    deployed: Deployed,
    machines: dict[str, str],
    stories: dict[tuple[str, str], Violation],
    machine: str,
    property: str,
) -> None:
    ended = replayed(deployed, machines[f"{machine}Arn"], stories[machine, property])
    assert deployed.account.faults.remaining() == {}  # each has occurred
    states = deployed.client("stepfunctions")
    if property == "one-failed-call":
        assert ended["status"] == "FAILED"
        assert ended["error"].endswith("Exception"), ended  # of a call, and not of a job
        if machine == "Guarded":
            [job] = wait_until(deployed.running_jobs)
            deployed.account.clock.advance(900)
            wait_until(lambda: deployed.account.clock.advance(60) or not deployed.running_jobs())
            described = deployed.client("sagemaker").describe_training_job(TrainingJobName=job)
            assert described["TrainingJobStatus"] == "Stopped"
        return
    assert ended["status"] in ("ABORTED", "FAILED")
    [job] = wait_until(deployed.running_jobs)
    deployed.account.clock.advance(3_600)  # four times the schedule of the guard
    wait_until(lambda: not stoppers(deployed))
    assert deployed.running_jobs() == [job]
    if property == "outlives":
        running = states.list_executions(stateMachineArn=machines["TrainingArn"], statusFilter="RUNNING")["executions"]
        assert len(running) == 1


class Deleted(cdk.Stack):
    """A task of a user's own state machine, with a guard or without."""

    def __init__(self, app: cdk.App, *, guarded: bool) -> None:
        super().__init__(app, "Guarded" if guarded else "Deleted")
        bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.RETAIN)
        task = TrainingTask(
            self,
            "TaskState",
            job=DataParallelJob(InstanceGroup("ml.m5.xlarge")),
            image=TrainingImage.from_asset(self, "Image", directory=str(A_STEPPING_JOB)),
            output=S3Prefix(bucket, "models/"),
            environment={"STEPS": "2000"},
        )
        machine = sfn.StateMachine(self, "Task", definition_body=sfn.DefinitionBody.from_chainable(task))
        if guarded:
            task.guard(machine)
        cdk.CfnOutput(self, "TaskArn", value=machine.state_machine_arn)


@pytest.mark.usefixtures("cleared")
@pytest.mark.parametrize("guarded", [False, True])
def test_a_task_leaves_a_job_to_a_deletion_of_its_stack_and_a_guarded_one_does_not(
    deployed: Deployed, tmp_path: Path, guarded: bool
) -> None:
    stack = Deleted(cdk.App(outdir=str(tmp_path)), guarded=guarded)
    outputs = deployed.deploy(stack)
    template = deployed.client("cloudformation").get_template(StackName=stack.stack_name)["TemplateBody"]
    [proof] = prove(template if isinstance(template, dict) else json.loads(template), faults=0)
    assert ("left-by-deletion" in {one.property for one in proof.violations}) != guarded
    deployed.start(outputs["TaskArn"])
    [job] = wait_until(deployed.running_jobs)
    deployed.cdk("destroy", "--app", str(tmp_path), stack.stack_name, "--force")
    described = deployed.client("sagemaker").describe_training_job(TrainingJobName=job)
    assert described["TrainingJobStatus"] == ("Stopped" if guarded else "InProgress")


def stoppers(deployed: Deployed) -> list[dict[str, Any]]:
    """The executions of the guard that run."""
    states = deployed.client("stepfunctions")
    guards = [one for one in states.list_state_machines()["stateMachines"] if "Stopper" in one["name"]]
    return [
        one
        for guard in guards
        for one in states.list_executions(stateMachineArn=guard["stateMachineArn"], statusFilter="RUNNING")[
            "executions"
        ]
    ]
