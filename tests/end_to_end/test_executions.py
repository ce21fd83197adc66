"""What a training workflow does in an account, by both integrations, with jobs that know nothing of this project."""

from __future__ import annotations

import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any
from unittest import mock

import aws_cdk as cdk
import pytest
from aws_account import STACK_PREFIX
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_stepfunctions as sfn
from deployed import Deployed, a_users_job, wait_until

from cdk_sagemaker_training import (
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    S3Channel,
    S3Prefix,
    Torchrun,
    TrainingCode,
    TrainingImage,
    TrainingWorkflow,
)
from cdk_sagemaker_training.lifecycle import polling
from sagemaker_local_account.faults import Capacity, ScheduledPlan

# By `.sync`, and, since `.sync` is not known to take instance groups, by the loop.
KINDS = {
    "Sync": DataParallelJob(InstanceGroup("ml.m5.xlarge")),
    "Loop": HeterogeneousJob(
        groups={"data_group": InstanceGroup("ml.c5.xlarge")},
        train=DataParallelJob(InstanceGroup("ml.m5.xlarge")),
        train_group="dnn_group",
    ),
}
PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/spring"
ON_A_PLAN = DataParallelJob(InstanceGroup("ml.p4d.24xlarge"))
FOUR_HOSTS = HeterogeneousJob(
    groups={"data_group": InstanceGroup("ml.c5.xlarge", 2)},
    train=DataParallelJob(InstanceGroup("ml.g5.xlarge", 2), launcher=Torchrun()),
    train_group="dnn_group",
)
# As AWS's samples start accelerate and torchrun themselves, by the variables of ModelTrainer.
TORCHRUN = (
    'torchrun --nnodes "$SM_HOST_COUNT" --node_rank "$SM_CURRENT_HOST_RANK" --nproc_per_node 1 '
    '--master_addr "$SM_MASTER_ADDR" --master_port "$SM_MASTER_PORT" probe.py "$@"'
)
ACCELERATE = (
    'accelerate launch --multi_gpu --num_machines "$SM_HOST_COUNT" --machine_rank "$SM_CURRENT_HOST_RANK" --num_processes 2 '
    '--main_process_ip "$SM_MASTER_ADDR" --main_process_port "$SM_MASTER_PORT" probe.py "$@"'
)


class Executions(cdk.Stack):
    """One workflow for each thing that the tests make a job do."""

    def __init__(self, app: cdk.App) -> None:
        super().__init__(app, f"{STACK_PREFIX}Executions")
        self.bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
        with a_users_job() as folder:
            self.image, self.pytorch = (
                TrainingImage.from_asset(self, id, directory=folder, file=file)
                for id, file in (("Image", "Dockerfile"), ("PyTorchImage", "pytorch.Dockerfile"))
            )
            container = TrainingImage.from_dlc(self, "Container", "pytorch", "2.13-cpu-amzn2023-sagemaker")
            code = TrainingCode(folder, "probe.py")
            self.workflow("Fetched", KINDS["Sync"], "report", image=container, code=code)
            self.workflow("Isolated", KINDS["Loop"], "report", image=container, code=code, network_isolation=True)
            on_two = DataParallelJob(InstanceGroup("ml.m5.xlarge", 2))
            for name, command in (("Command", 'python probe.py "$@"'), ("Torchrun", TORCHRUN)):
                self.workflow(name, on_two, "report", image=container, code=TrainingCode(folder, command=command))
        cdk.CfnOutput(self, "BucketName", value=self.bucket.bucket_name)
        # Each execution of the poller polls twice, so that a job of seconds takes several.
        with mock.patch.object(polling, "POLLS", 2):
            for do in ("keep", "wait"):
                self.workflow(f"Planned{do.capitalize()}", ON_A_PLAN, do, training_plan=PLAN)
        for kind, job in KINDS.items():
            for do in ("wait", "keep"):
                self.workflow(f"{kind}{do.capitalize()}", job, do)
            # PyTorch's toolkit writes a script's error to the failure reason, the toolkit alone its exit code.
            self.workflow(f"{kind}Fail", job, "fail", image=self.pytorch)
            self.workflow(f"{kind}TimesOut", job, "wait", timeout=cdk.Duration.seconds(15))
        resumed = self.workflow("Resumed", KINDS["Sync"], "keep", resume_from=sfn.JsonPath.string_at("$.checkpoints"))
        task = resumed.as_task(
            self, "Resume", input=sfn.TaskInput.from_object({"checkpoints": sfn.JsonPath.execution_name})
        )
        outer = sfn.StateMachine(self, "Outer", definition_body=sfn.DefinitionBody.from_chainable(task))
        cdk.CfnOutput(self, "OuterArn", value=outer.state_machine_arn)
        self.workflow(
            "Report",
            FOUR_HOSTS,
            "report",
            image=self.pytorch,
            channels={"letters": S3Channel(self.bucket, "letters/")},
        )
        self.workflow("Listen", KINDS["Loop"], "listen")
        self.workflow(
            "NoScript", KINDS["Sync"], "report", image=self.pytorch, environment={"SAGEMAKER_PROGRAM": "missing.py"}
        )
        self.workflow("NoModel", KINDS["Sync"], "keep", missing_model="fail")
        self.workflow("NoData", KINDS["Sync"], "report", channels={"letters": S3Channel(self.bucket, "nothing/")})

    def workflow(self, name: str, job: Any, do: str, **more: Any) -> TrainingWorkflow:
        workflow = TrainingWorkflow(
            self,
            name,
            job=job,
            **{"image": self.image, **more},
            output=S3Prefix(self.bucket, "models/"),
            checkpoints=S3Prefix(self.bucket, f"checkpoints/{name}/"),
            hyperparameters={"do": do},
            max_runtime=cdk.Duration.minutes(30),
        )
        cdk.CfnOutput(self, f"{name}Arn", value=workflow.state_machine.state_machine_arn)
        return workflow


def on_aws(*, jobs: int) -> pytest.MarkDecorator:
    """Marks a test that can be run in a real account; the machines are those of the larger kind."""
    return pytest.mark.aws(stack=Executions, jobs=jobs, machines={"ml.c5.xlarge": 1, "ml.m5.xlarge": 1}, minutes=30)


@pytest.fixture(scope="module")
def machines(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    outputs = deployed.deploy(Executions(cdk.App(outdir=str(tmp_path_factory.mktemp("assembly")))))
    deployed.client("s3").put_object(Bucket=outputs["BucketName"], Key="letters/a.txt", Body=b"a")
    return outputs


@on_aws(jobs=1)
@pytest.mark.parametrize("kind", KINDS)
def test_an_execution_that_is_stopped_leaves_no_training_job_running(
    deployed: Deployed, machines: dict[str, str], kind: str
) -> None:
    execution, job = stopped(deployed, machines[f"{kind}WaitArn"])
    assert deployed.ended(execution)["status"] == "ABORTED"
    assert ended(deployed, job)["TrainingJobStatus"] == "Stopped"


@pytest.mark.soak
@on_aws(jobs=1)
@pytest.mark.parametrize("kind", KINDS)
def test_an_execution_that_times_out_leaves_no_training_job_running(
    deployed: Deployed, machines: dict[str, str], kind: str
) -> None:
    execution = deployed.start(machines[f"{kind}TimesOutArn"])
    job = deployed.the_job_of(execution)
    assert deployed.ended(execution)["status"] == "TIMED_OUT"
    assert ended(deployed, job)["TrainingJobStatus"] == "Stopped"


@pytest.mark.parametrize("kind", KINDS)
def test_a_create_call_whose_response_is_lost_leaves_one_job(
    deployed: Deployed, machines: dict[str, str], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = deployed.account.jobs
    create, lost = jobs.create, []

    def create_and_lose_the_first_response(request: dict[str, Any]) -> dict[str, Any]:
        response = create(request)
        if not lost:
            lost.append(request["TrainingJobName"])
            raise ConnectionAbortedError("a test loses this response")
        return dict(response)

    monkeypatch.setattr(jobs, "create", create_and_lose_the_first_response)
    execution = deployed.start(machines[f"{kind}KeepArn"])
    assert deployed.ended(execution)["status"] == "SUCCEEDED"
    assert [job["TrainingJobName"] for job in deployed.jobs_of(execution)] == lost


@pytest.mark.soak
@on_aws(jobs=3)
@pytest.mark.parametrize("kind", KINDS)
def test_two_executions_at_once_and_one_after_another_never_read_each_others_checkpoints(
    deployed: Deployed, machines: dict[str, str], kind: str
) -> None:
    machine = machines[f"{kind}KeepArn"]
    at_once = [deployed.start(machine), deployed.start(machine)]
    for execution in at_once:
        deployed.ended(execution)
    afterwards = deployed.start(machine)
    deployed.ended(afterwards)
    for execution in [*at_once, afterwards]:
        job = deployed.the_job_of(execution)
        said = [line for line in deployed.said(job["TrainingJobName"]) if line.startswith("found")]
        own = json.dumps([f"of-{job['TrainingJobName']}"])
        assert said, "the job said nothing of its checkpoints"
        assert set(said) <= {"found []", f"found {own}"}


@on_aws(jobs=1)
# Both have it of the job's FailureReason.
@pytest.mark.parametrize("kind", ["Sync", pytest.param("Loop", marks=pytest.mark.soak)])
def test_the_last_error_of_a_script_reaches_the_failure_reason_and_the_cause(
    deployed: Deployed, machines: dict[str, str], kind: str
) -> None:
    execution = deployed.start(machines[f"{kind}FailArn"])
    described = deployed.ended(execution)
    assert described["status"] == "FAILED"
    assert "the digits are missing" in deployed.the_job_of(execution)["FailureReason"]
    assert "the digits are missing" in described["cause"]


@on_aws(jobs=1)
def test_a_channel_prefix_without_objects_fails_the_job_and_names_the_channel(
    deployed: Deployed, machines: dict[str, str]
) -> None:
    execution = deployed.start(machines["NoDataArn"])
    assert deployed.ended(execution)["status"] == "FAILED"
    reason = deployed.the_job_of(execution)["FailureReason"]
    assert "letters" in reason
    assert f"s3://{machines['BucketName']}/nothing/" in reason


@on_aws(jobs=1)
def test_a_script_that_is_missing_is_named(deployed: Deployed, machines: dict[str, str]) -> None:
    execution = deployed.start(machines["NoScriptArn"])
    described = deployed.ended(execution)
    assert described["status"] == "FAILED"
    assert "missing.py" in deployed.the_job_of(execution)["FailureReason"]
    assert "missing.py" in described["cause"]


@pytest.mark.soak  # starts the toolkit twice; test_image_jobs.py runs code from S3
@on_aws(jobs=2)
def test_a_container_of_awss_runs_code_from_s3_and_without_a_network_from_a_channel(
    deployed: Deployed, machines: dict[str, str]
) -> None:
    executions = [deployed.start(machines[name]) for name in ("FetchedArn", "IsolatedArn")]
    [fetched], isolated = (reports_of(deployed, execution).values() for execution in executions)
    assert fetched["sm"]["SM_MODULE_DIR"].startswith("s3://cdk-")
    assert len(isolated) == 2
    for report in isolated:
        assert report["data"] == [report["sm"]["SM_MODULE_DIR"]]


def test_a_command_finds_the_hyperparameters_and_its_host_among_all(
    deployed: Deployed, machines: dict[str, str]
) -> None:
    reports = reports_of(deployed, deployed.start(machines["CommandArn"]))
    assert sorted(reports) == ["algo-1-plain.json", "algo-2-plain.json"]
    names = ("SM_CURRENT_HOST_RANK", "SM_HOST_COUNT", "SM_MASTER_ADDR", "SM_HP_DO")
    told = [tuple(reports[file]["sm"][name] for name in names) for file in sorted(reports)]
    assert told == [("0", "2", "algo-1", "report"), ("1", "2", "algo-1", "report")]


@pytest.mark.soak  # four processes import PyTorch
def test_a_command_starts_torchrun_on_all_hosts(deployed: Deployed, machines: dict[str, str]) -> None:
    reports = reports_of(deployed, deployed.start(machines["TorchrunArn"]))
    assert sorted(reports) == ["algo-1-0.json", "algo-2-1.json"]
    assert [report["sum over ranks"] for report in reports.values()] == [2, 2]


class Commands(cdk.Stack):
    """Commands on two hosts, with accelerate in the image."""

    def __init__(self, app: cdk.App) -> None:
        super().__init__(app, f"{STACK_PREFIX}Commands")
        bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
        with a_users_job() as folder:
            image = TrainingImage.from_asset(self, "Image", directory=folder, file="accelerate.Dockerfile")
            for name, command in {
                "Accelerate": ACCELERATE,
                "Alone": 'torchrun --standalone probe.py "$@"',
                "Waiting": 'torchrun --nnodes 2 probe.py "$@" # training-jobs: allow command',
            }.items():
                workflow = TrainingWorkflow(
                    self,
                    name,
                    job=DataParallelJob(InstanceGroup("ml.m5.xlarge", 2)),
                    image=image,
                    output=S3Prefix(bucket, "models/"),
                    code=TrainingCode(folder, command=command),
                    max_runtime=cdk.Duration.minutes(1),
                )
                cdk.CfnOutput(self, f"{name}Arn", value=workflow.state_machine.state_machine_arn)


@pytest.mark.soak  # six processes import PyTorch, and two hosts wait for a minute
def test_commands_on_two_hosts_meet_train_alone_or_wait_as_synth_says(deployed: Deployed, tmp_path: Path) -> None:
    """`hosts-alone` and "each waits for the others at its own address" of training_jobs/lint/commands.py."""
    stack = Commands(cdk.App(outdir=str(tmp_path)))
    outputs = deployed.deploy(stack)
    started = {name: deployed.start(outputs[f"{name}Arn"]) for name in ("Accelerate", "Alone", "Waiting")}
    met = reports_of(deployed, started["Accelerate"])
    assert [(file, report["sum over ranks"]) for file, report in met.items()] == [
        ("algo-1-0.json", 2),
        ("algo-2-1.json", 2),
    ]
    alone = reports_of(deployed, started["Alone"])
    assert [(file, report["sum over ranks"]) for file, report in alone.items()] == [
        ("algo-1-0.json", 1),
        ("algo-2-0.json", 1),
    ]
    assert deployed.ended(started["Waiting"])["status"] == "FAILED"
    job = deployed.the_job_of(started["Waiting"])
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")


def test_an_execution_whose_job_leaves_no_model_fails_where_it_must_have_one(
    deployed: Deployed, machines: dict[str, str]
) -> None:
    execution = deployed.start(machines["NoModelArn"])
    described = deployed.ended(execution)
    job = deployed.the_job_of(execution)
    assert job["TrainingJobStatus"] == "Completed"
    assert (described["status"], described["error"]) == ("FAILED", "TrainingJobWithoutModel")
    assert described["cause"].startswith(f"{job['TrainingJobName']}: the job completed without a model")


def executions_of_poller(deployed: Deployed, workflow: str) -> list[dict[str, Any]]:
    states = deployed.client("stepfunctions")
    machines = states.list_state_machines()["stateMachines"]
    [poller] = [it["stateMachineArn"] for it in machines if f"{workflow}Poller" in it["name"]]
    return list(states.list_executions(stateMachineArn=poller)["executions"])


@pytest.mark.soak  # days of the account's clock
def test_a_job_that_waits_for_its_training_plan_is_polled_by_one_execution_after_the_other_until_it_has_run(
    deployed: Deployed, machines: dict[str, str]
) -> None:
    scheduled = deployed.account.faults.add(ScheduledPlan(PLAN, times=None))
    execution = deployed.start(machines["PlannedKeepArn"])
    deployed.the_job_of(execution, until="Pending")
    wait_until(lambda: len(executions_of_poller(deployed, "PlannedKeep")) > 1)
    deployed.account.faults.mend(scheduled)
    described = deployed.ended(execution)
    assert described["status"] == "SUCCEEDED", described.get("cause")
    output = json.loads(described["output"])
    assert output["TrainingJobStatus"] == "Completed"
    # It leaves a checkpoint, and no model.
    [warning] = output["Warnings"]
    assert warning.startswith("the job completed without a model")
    polled = executions_of_poller(deployed, "PlannedKeep")
    assert {it["status"] for it in polled} == {"SUCCEEDED"}


def test_an_execution_that_is_stopped_leaves_neither_its_job_nor_its_poller_running(
    deployed: Deployed, machines: dict[str, str]
) -> None:
    _, job = stopped(deployed, machines["PlannedWaitArn"])
    assert ended(deployed, job)["TrainingJobStatus"] == "Stopped"
    wait_until(
        lambda: {it["status"] for it in executions_of_poller(deployed, "PlannedWait")} <= {"ABORTED", "SUCCEEDED"}
    )


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_an_execution_whose_job_failed_fails_again_when_it_is_redriven_and_starts_no_other_job(
    deployed: Deployed, machines: dict[str, str], kind: str
) -> None:
    execution = deployed.start(machines[f"{kind}FailArn"])
    failed = deployed.ended(execution)
    deployed.client("stepfunctions").redrive_execution(executionArn=execution)
    again = deployed.ended(execution)
    assert (again["status"], again["redriveCount"]) == ("FAILED", 1)
    assert (again["error"], again["cause"]) == (failed["error"], failed["cause"])
    assert len(deployed.jobs_of(execution)) == 1


def test_a_redrive_of_the_machine_that_runs_the_workflow_runs_another_job_on_the_same_checkpoints(
    deployed: Deployed, machines: dict[str, str]
) -> None:
    deployed.account.faults.add(Capacity("ml.m5.xlarge"))
    execution = deployed.start(machines["OuterArn"])
    assert deployed.ended(execution)["status"] == "FAILED"
    deployed.client("stepfunctions").redrive_execution(executionArn=execution)
    described = deployed.ended(execution)
    assert described["status"] == "SUCCEEDED", described.get("cause")
    job = json.loads(described["output"])["Output"]
    assert re.search(rf"/checkpoints/Resumed/[^/]+/{described['name']}/$", job["CheckpointConfig"]["S3Uri"])


@pytest.mark.soak  # test_hosts.py has two jobs on one port
def test_two_jobs_on_the_same_fixed_port_of_all_addresses_do_not_meet(
    deployed: Deployed, machines: dict[str, str]
) -> None:
    executions = [deployed.start(machines["ListenArn"]) for _ in range(2)]
    assert [deployed.ended(execution)["status"] for execution in executions] == ["SUCCEEDED", "SUCCEEDED"]


@pytest.fixture(scope="module")
def reports(deployed: Deployed, machines: dict[str, str]) -> dict[str, dict[str, Any]]:
    return reports_of(deployed, deployed.start(machines["ReportArn"]))


def reports_of(deployed: Deployed, execution: str) -> dict[str, dict[str, Any]]:
    """What each process of the users' script saw, by the file that it wrote beside the model."""
    described = deployed.ended(execution)
    assert described["status"] == "SUCCEEDED", described.get("cause")
    assert "Warnings" not in json.loads(described["output"])
    uri = json.loads(described["output"])["ModelArtifacts"]["S3ModelArtifacts"]
    bucket, key = uri.removeprefix("s3://").split("/", 1)
    body = deployed.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as tar:
        files = [member for member in tar.getmembers() if member.isfile()]
        return {file.name.removeprefix("./"): json.loads(tar.extractfile(file).read()) for file in files}  # type: ignore[union-attr]


@pytest.mark.soak  # four hosts, of which two import PyTorch; test_deploying.py has a job of two groups
class TestAJobOfTwoGroupsOfTwoHosts:
    def test_runs_plainly_in_one_group_and_by_torchrun_in_the_other(self, reports: dict[str, Any]) -> None:
        assert sorted(reports) == ["algo-1-plain.json", "algo-2-plain.json", "algo-3-0.json", "algo-4-1.json"]

    def test_has_a_machines_name_like_awss(self, reports: dict[str, Any]) -> None:
        names = {report["host name"] for report in reports.values()}
        assert len(names) == 4
        assert all(name.startswith("ip-10-0-") for name in names)

    def test_resolves_its_peers_to_addresses_of_their_own(self, reports: dict[str, Any]) -> None:
        for report in reports.values():
            assert list(report["addresses"]) == ["algo-1", "algo-2", "algo-3", "algo-4"]
            assert len(set(report["addresses"].values())) == 4

    def test_finds_its_group(self, reports: dict[str, Any]) -> None:
        groups = {name[:6]: report["resources"]["current_group_name"] for name, report in reports.items()}
        assert groups == {"algo-1": "data_group", "algo-2": "data_group", "algo-3": "dnn_group", "algo-4": "dnn_group"}
        for report in reports.values():
            assert report["sm"]["SM_CURRENT_INSTANCE_GROUP"] == report["resources"]["current_group_name"]

    def test_sees_the_variables_that_sagemaker_documents(self, reports: dict[str, Any]) -> None:
        sm = reports["algo-1-plain.json"]["sm"]
        assert sm["SM_IS_HETERO"] == "true"
        assert json.loads(sm["SM_HOSTS"]) == ["algo-1", "algo-2", "algo-3", "algo-4"]
        assert json.loads(sm["SM_CURRENT_INSTANCE_GROUP_HOSTS"]) == ["algo-1", "algo-2"]
        assert sorted(json.loads(sm["SM_INSTANCE_GROUPS"])) == ["data_group", "dnn_group"]
        assert json.loads(sm["SM_DISTRIBUTION_INSTANCE_GROUPS"]) == ["dnn_group"]
        assert sm["SM_CURRENT_INSTANCE_TYPE"] == "ml.c5.xlarge"
        assert (sm["SM_NUM_GPUS"], reports["algo-3-0.json"]["sm"]["SM_NUM_GPUS"]) == ("0", "1")
        assert sm["SM_HP_DO"] == "report"
        assert sm["SM_MODEL_DIR"] == "/opt/ml/model"

    def test_finds_its_channel_at_the_documented_place(self, reports: dict[str, Any]) -> None:
        for report in reports.values():
            assert report["data"] == ["/opt/ml/input/data/letters/a.txt"]

    def test_adds_up_over_the_ranks_of_the_group_that_trains(self, reports: dict[str, Any]) -> None:
        assert {report["sum over ranks"] for report in reports.values() if "RANK" in report["torchrun"]} == {2.0}


def stopped(deployed: Deployed, machine: str) -> tuple[str, dict[str, Any]]:
    """An execution that is stopped while its job trains, and that job."""
    execution = deployed.start(machine)
    job = deployed.the_job_of(execution, until="Training")
    deployed.client("stepfunctions").stop_execution(executionArn=execution)
    return execution, job


def ended(deployed: Deployed, job: dict[str, Any]) -> dict[str, Any]:
    sagemaker = deployed.client("sagemaker")

    def description() -> dict[str, Any] | None:
        described: dict[str, Any] = sagemaker.describe_training_job(TrainingJobName=job["TrainingJobName"])
        return None if described["TrainingJobStatus"] in ("InProgress", "Stopping") else described

    return wait_until(description)
