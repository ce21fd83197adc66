"""Stacks that are updated while a job of theirs trains: the job ends as it would have, its model is there, and nothing is left.

Nineteen stacks of one app are deployed by one command, a job of each is started, and each is updated by the CDK CLI, which either
deploys or is refused before it changes anything. Then the jobs are released.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from deployed import Deployed, wait_until

from cdk_sagemaker_training import (
    Cause,
    DataParallelJob,
    InstanceGroup,
    Retry,
    S3Prefix,
    Silence,
    Spot,
    TrainingCode,
    TrainingImage,
    TrainingPipeline,
    TrainingQueue,
    TrainingWorkflow,
    default_retries,
)
from sagemaker_local_account.account import LocalAccount

PAGE = Path(__file__).parents[2] / "docs" / "upgrading.md"
pytestmark = pytest.mark.timeout(1_800)
RELEASED = Path(__file__).parent / "a_released_job"
FAILS_ONCE = """
import pathlib
checkpoint = pathlib.Path("/opt/ml/checkpoints/checkpoint.txt")
if not checkpoint.exists():
    checkpoint.write_text("a checkpoint")
    raise SystemExit("fails once")
print("trained by the EDITION script")
pathlib.Path("/opt/ml/model/model.txt").write_text("EDITION")
"""
Change = Callable[["Updated"], dict[str, Any]]


@dataclass(frozen=True)
class Update:
    """What of a workflow's props is so before and after, and whether the deployment is refused while a job trains."""

    after: Change
    before: Change = lambda stack: {}
    refused: str = ""


def of(**props: Any) -> Change:
    return lambda stack: props


UPDATES = {
    "Nothing": Update(of()),
    "Hyperparameters": Update(of(hyperparameters={"epochs": 2}, environment={"NAME": "value"})),
    "MaxRuntime": Update(of(max_runtime=14_400)),
    "InstanceType": Update(of(job=DataParallelJob(InstanceGroup("ml.c5.xlarge")))),
    "Image": Update(lambda stack: {"image": stack.image("second")}),
    "Retries": Update(of(retries=default_retries())),
    "NoRetries": Update(of(), of(retries=default_retries())),
    "Rule": Update(of(stop_when=[Silence(cdk.Duration.hours(2))])),
    "Notices": Update(lambda stack: {"notify": [sns.Topic(stack, "Topic")]}),
    "Sync": Update(of(integration="sync"), of(integration="poll")),
    "Retained": Update(of(retain_jobs=True)),
    "NotRetained": Update(of(), of(retain_jobs=True)),
    "Queue": Update(lambda stack: {"queue": TrainingQueue(stack, "Queue", capacity=2)}, refused="DescribeTrainingJob"),
    "Spot": Update(of(spot=Spot(max_wait=14_400))),
    "Output": Update(lambda stack: {"output": S3Prefix(stack.bucket, "results/")}, refused="/models/* is needed by"),
    "Checkpoints": Update(lambda stack: {"checkpoints": S3Prefix(stack.bucket, "kept/")}, refused="/checkpoints/"),
    "Prefix": Update(of(job_name_prefix="another"), refused="is needed by"),
    "Renamed": Update(of(id="Renamed"), refused="the state machine or its guard, which is removed"),
    "Key": Update(
        lambda stack: {"volume_key": kms.Key(stack, "Second", removal_policy=cdk.RemovalPolicy.DESTROY)},
        lambda stack: {"volume_key": kms.Key(stack, "First", removal_policy=cdk.RemovalPolicy.DESTROY)},
    ),
}


class Updated(cdk.Stack):
    """A stack with a workflow whose job trains until it is released."""

    def __init__(self, app: cdk.App, name: str, change: Change) -> None:
        super().__init__(app, name)
        self.bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY, auto_delete_objects=True)
        own: dict[str, Any] = {
            "job": DataParallelJob(InstanceGroup("ml.m5.xlarge")),
            "output": S3Prefix(self.bucket, "models/"),
            "checkpoints": S3Prefix(self.bucket, "checkpoints/"),
            "max_runtime": 10_800,
            **change(self),
        }
        if "image" not in own:
            own["image"] = self.image("first")
        self.workflow = TrainingWorkflow(self, own.pop("id", "Training"), **own)
        cdk.CfnOutput(self, "Arn", value=self.workflow.state_machine.state_machine_arn)
        cdk.CfnOutput(self, "BucketName", value=self.bucket.bucket_name)

    def image(self, edition: str) -> TrainingImage:
        return TrainingImage.from_asset(self, "Image", directory=str(RELEASED), build_args={"EDITION": edition})


def app_of(folder: Path, changes: dict[str, Change]) -> cdk.App:
    app = cdk.App(outdir=str(folder))
    for name, change in changes.items():
        Updated(app, name, change)
    app.synth()
    return app


class Edited(Updated):
    """A stack whose job fails without a checkpoint, and is tried again half an hour later, with a script of an edition."""

    def __init__(self, folder: Path, edition: str) -> None:
        source = folder / f"src-{edition}"
        source.mkdir()
        (source / "train.py").write_text(FAILS_ONCE.replace("EDITION", edition))

        def change(stack: Updated) -> dict[str, Any]:
            return {
                "image": TrainingImage.from_dlc(stack, "Container", "pytorch", "2.13-cpu-amzn2023-sagemaker"),
                "code": TrainingCode(str(source)),
                "retries": {Cause.ALGORITHM_ERROR: Retry(attempts=1, first_wait=cdk.Duration.minutes(30))},
            }

        super().__init__(cdk.App(outdir=str(folder / edition)), "Edited", change)


class Piped(Updated):
    """A stack with a pipeline of the workflow."""

    def __init__(self, folder: Path, id: str) -> None:
        super().__init__(cdk.App(outdir=str(folder / id)), "Piped", of())
        pipeline = TrainingPipeline(self, id, steps=[self.workflow])
        cdk.CfnOutput(self, "PipelineArn", value=pipeline.state_machine.state_machine_arn)


@dataclass
class Ran:
    """An update under a running job, and what became of the job's execution."""

    deployment: Any
    execution: dict[str, Any]
    jobs: list[dict[str, Any]]
    objects: list[str]


@pytest.fixture(scope="module")
def ran(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Ran]]:
    first, second = (str(tmp_path_factory.mktemp(name)) for name in ("first", "second"))
    app_of(Path(first), {name: update.before for name, update in UPDATES.items()})
    app_of(Path(second), {name: update.after for name, update in UPDATES.items()})
    deployed.cdk("deploy", "--all", "--app", first, "--require-approval", "never", "--concurrency", "4")
    outputs = {name: outputs_of(deployed, name) for name in UPDATES}
    executions = {name: deployed.start(outputs[name]["Arn"]) for name in UPDATES}
    jobs = {name: str(deployed.the_job_of(it, until="Training")["TrainingJobName"]) for name, it in executions.items()}
    for job in jobs.values():
        deployed.has_said(job, "waiting")
    arguments = ("--exclusively", "--app", second, "--require-approval", "never")
    deployments = {name: deployed.cdk_called("deploy", name, *arguments) for name in UPDATES}
    found = {}
    for name, execution in executions.items():
        release(deployed.account, jobs[name])
        ended = deployed.ended(execution)
        listed = deployed.client("s3").list_objects_v2(Bucket=outputs[name]["BucketName"]).get("Contents", [])
        found[name] = Ran(deployments[name], ended, deployed.jobs_of(execution), [it["Key"] for it in listed])
    yield found
    deployed.cdk("destroy", "--all", "--force", "--app", second)


def outputs_of(deployed: Deployed, stack: str) -> dict[str, str]:
    [described] = deployed.client("cloudformation").describe_stacks(StackName=stack)["Stacks"]
    return {it["OutputKey"]: it["OutputValue"] for it in described["Outputs"]}


def release(account: LocalAccount, name: str) -> None:
    """Sends SIGUSR1 to the script of a job that still trains."""
    attempt = account.jobs._job(name)._attempt
    if attempt is not None:
        attempt._hosts.signal(signal.SIGUSR1)


def test_the_page_has_each_update_and_what_becomes_of_it() -> None:
    rows = re.findall(r"^\| (.+) \| (deployed|refused) \| `(\w+)` \|$", PAGE.read_text(), re.MULTILINE)
    assert {name: outcome == "refused" for _, outcome, name in rows} == {
        name: bool(update.refused) for name, update in UPDATES.items()
    }


@pytest.mark.soak  # deploys 19 stacks, and each once more
@pytest.mark.parametrize("name", UPDATES)
def test_the_job_ends_as_it_would_have_and_its_model_is_there(ran: dict[str, Ran], name: str) -> None:
    found = ran[name]
    assert found.execution["status"] == "SUCCEEDED", (found.execution.get("cause"), found.deployment.stdout)
    [job] = found.jobs
    assert job["TrainingJobStatus"] == "Completed"
    model = job["ModelArtifacts"]["S3ModelArtifacts"].split("/", 3)[3]
    assert model.startswith("models/")
    assert model in found.objects
    assert any(key.startswith("checkpoints/") and key.endswith("checkpoint.txt") for key in found.objects)


@pytest.mark.soak
@pytest.mark.parametrize("name", UPDATES)
def test_the_update_is_deployed_or_refused_with_what_it_would_take_away(ran: dict[str, Ran], name: str) -> None:
    said = " ".join(ran[name].deployment.stdout.split())
    if UPDATES[name].refused:
        assert ran[name].deployment.returncode != 0
        assert "breaking_updates must be 'stop' or 'allow', or these executions must have ended" in said
        assert UPDATES[name].refused in said
    else:
        assert ran[name].deployment.returncode == 0, said


@pytest.mark.soak
def test_the_next_attempt_of_an_execution_from_before_an_edit_runs_the_script_of_the_first(
    deployed: Deployed, tmp_path: Path
) -> None:
    outputs = deployed.deploy(Edited(tmp_path, "old"))
    execution = deployed.start(outputs["Arn"])
    wait_until(lambda: [job for job in deployed.jobs_of(execution) if job["TrainingJobStatus"] == "Failed"])
    deployed.deploy(Edited(tmp_path, "new"))
    deployed.account.clock.advance(1_800)
    assert deployed.ended(execution)["status"] == "SUCCEEDED"
    names = [job["TrainingJobName"] for job in deployed.jobs_of(execution)]
    assert len(names) == 2
    assert [line for name in names for line in deployed.said(name) if "trained by" in line] == [
        "trained by the old script"
    ]


@pytest.mark.soak
def test_an_update_that_renames_a_pipeline_is_refused_until_its_execution_has_ended(
    deployed: Deployed, tmp_path: Path
) -> None:
    outputs = deployed.deploy(Piped(tmp_path, "Pipeline"))
    execution = deployed.start(outputs["PipelineArn"])
    [job] = wait_until(deployed.running_jobs)
    deployed.has_said(job, "waiting")
    renamed = Piped(tmp_path, "Renamed")
    cdk.App.of(renamed).synth()  # type: ignore[union-attr]
    arguments = ("deploy", "Piped", "--app", str(tmp_path / "Renamed"), "--require-approval", "never")
    refused = deployed.cdk_called(*arguments)
    assert refused.returncode != 0
    assert "the state machine or its guard, which is removed or has another id, is needed by" in " ".join(
        refused.stdout.split()
    )
    release(deployed.account, job)
    assert deployed.ended(execution)["status"] == "SUCCEEDED"
    assert deployed.cdk_called(*arguments).returncode == 0


@pytest.mark.soak
def test_no_job_is_left(ran: dict[str, Ran], deployed: Deployed) -> None:
    wait_until(lambda: not deployed.running_jobs())
