"""The training code of heterogeneous jobs, of app.py and with Ray, and of data-parallel ones, as jobs in an account."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from deployed import Deployed

from cdk_sagemaker_training import (
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    Ray,
    S3Prefix,
    Spot,
    Torchrun,
    TrainingImage,
    TrainingWorkflow,
    training_code_path,
)
from sagemaker_local_account.faults import Interruption

# One data host with torchrun, since each imports PyTorch three times; test_destroy.py has the job of app.py with two.
TORCHRUN, RAY = (
    HeterogeneousJob(
        groups={"data_group": InstanceGroup("ml.c5.xlarge", hosts)},
        train=DataParallelJob(InstanceGroup("ml.g5.xlarge"), launcher=launcher),
        train_group="dnn_group",
    )
    for launcher, hosts in ((Torchrun(), 1), (Ray(object_store_memory=cdk.Size.mebibytes(100)), 2))
)
SAMPLES = 1437  # as many digits are trained on
FOREVER = 1_000_000  # epochs
# Ray's own processes on three hosts take most of a minute of two cores; test_ray_cluster.py has what the hosts of one report.
WITH_RAY = pytest.mark.soak


class Trainings(cdk.Stack):
    """Workflows of one kind of job, by name, with the hyperparameters of each."""

    def __init__(
        self, app: cdk.App, id: str, job: HeterogeneousJob | DataParallelJob, file: str, workflows: dict[str, Any]
    ) -> None:
        super().__init__(app, id, env=cdk.Environment(account="123456789012", region="us-east-1"))
        bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
        image = TrainingImage.from_asset(self, "Image", directory=training_code_path(), file=file)
        spot = Spot(S3Prefix(bucket, "checkpoints/"), max_wait=cdk.Duration.days(2))
        for name, hyperparameters in workflows.items():
            workflow = TrainingWorkflow(
                self,
                name,
                job=job,
                image=image,
                output=S3Prefix(bucket, "models/"),
                hyperparameters=hyperparameters,
                spot=spot if name == "Spot" else None,
            )
            cdk.CfnOutput(self, f"{name}Arn", value=workflow.state_machine.state_machine_arn)


@pytest.fixture(scope="module")
def machines(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    workflows = {
        "Endless": {"epochs": FOREVER, "heartbeat-timeout": 90},
        "Broken": {"epochs": 1, "batch-size": -1},
        "Spot": {"epochs": 3},
        "Short": {"epochs": 1},
    }
    app = cdk.App(outdir=str(tmp_path_factory.mktemp("assembly")))
    return deployed.deploy(Trainings(app, "Digits", TORCHRUN, "heterogeneous/Dockerfile", workflows))


@pytest.fixture(scope="module")
def ray_machines(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    workflows = {"Ray": {"epochs": 2, "data-tasks": 2}, "RayEndless": {"epochs": FOREVER, "data-tasks": 2}}
    app = cdk.App(outdir=str(tmp_path_factory.mktemp("assembly")))
    return deployed.deploy(Trainings(app, "DigitsWithRay", RAY, "heterogeneous/ray_data/Dockerfile", workflows))


def training(deployed: Deployed, machine: str) -> tuple[str, str]:
    """Start an execution; returns it and its job's name once the job has taken its first steps."""
    execution = deployed.start(machine)
    name = deployed.the_job_of(execution, until="Training")["TrainingJobName"]
    deployed.has_said(name, "step ")
    return execution, name


def described(deployed: Deployed, name: str) -> dict[str, Any]:
    return dict(deployed.client("sagemaker").describe_training_job(TrainingJobName=name))


# An unbuffered print writes its text and its newline one after the other: where two processes of a host print at once, a line may
# begin with the other's text.
def stopped_at(said: list[str]) -> list[int]:
    """The steps with whose checkpoint the job's processes say that they stopped."""
    return [
        int(found[1])
        for line in said
        if (found := re.search(r"stopped by SIGTERM with the checkpoint of step (\d+)", line))
    ]


def steps_of(said: list[str]) -> list[int]:
    """The steps that the job's logs have, in their order."""
    return [int(found[1]) for line in said if (found := re.search(r"step (\d+) loss", line))]


@pytest.mark.soak
def test_eight_seeds_of_host_numbers_have_the_same_losses(deployed: Deployed, machines: dict[str, str]) -> None:
    losses, training_hosts = [], set()
    in_order = deployed.account.jobs.host_seed
    for seed in range(8):
        deployed.account.jobs.host_seed = seed
        execution = deployed.start(machines["ShortArn"])
        assert deployed.ended(execution)["status"] == "SUCCEEDED"
        said = deployed.said(deployed.the_job_of(execution)["TrainingJobName"])
        losses.append(
            sorted({found[0] for line in said if (found := re.search(r"(step|epoch) \d+ loss [\d.]+", line))})
        )
        training_hosts.update(found[1] for line in said if (found := re.search(r"host (algo-\d) of dnn_group", line)))
    deployed.account.jobs.host_seed = in_order
    assert losses[0]
    assert [other for other in losses if other != losses[0]] == []
    assert training_hosts == {"algo-1", "algo-2"}


@pytest.mark.soak  # test_faults.py has a lost host, test_service_reasons.py what is said of a lost data host
def test_a_lost_data_host_ends_the_job_with_a_reason_that_names_it(
    deployed: Deployed, machines: dict[str, str]
) -> None:
    execution, name = training(deployed, machines["EndlessArn"])
    deployed.account.jobs.lose_host(name, "algo-1")
    assert deployed.ended(execution)["status"] == "FAILED"
    assert "the host algo-1 of data_group was lost" in described(deployed, name)["FailureReason"]


@pytest.mark.soak
def test_a_lost_training_host_ends_every_host(deployed: Deployed, machines: dict[str, str]) -> None:
    execution, name = training(deployed, machines["EndlessArn"])
    deployed.account.jobs.lose_host(name, "algo-2")
    assert deployed.ended(execution)["status"] == "FAILED"
    job = described(deployed, name)
    assert job["TrainingJobStatus"] == "Failed"
    assert "the host algo-2 of dnn_group was lost" in job["FailureReason"]


@pytest.mark.soak  # test_train.py stops ranks, test_executions.py jobs
def test_a_job_that_is_stopped_keeps_the_step_that_it_is_in_and_ends_every_host(
    deployed: Deployed, machines: dict[str, str]
) -> None:
    execution, name = training(deployed, machines["EndlessArn"])
    deployed.client("sagemaker").stop_training_job(TrainingJobName=name)
    ended = deployed.ended(execution)
    assert (ended["status"], ended["error"]) == ("FAILED", "TrainingJobStopped")
    assert described(deployed, name)["TrainingJobStatus"] == "Stopped"
    said = deployed.said(name)
    [kept], last = stopped_at(said), steps_of(said)[-1]
    assert last <= kept < last + 10, said  # each tenth step is printed


@pytest.mark.soak  # test_interruptions.py has this training, test_model_parallel.py such a job
def test_an_interrupted_job_goes_on_with_the_step_after_the_one_that_it_was_in(
    deployed: Deployed, machines: dict[str, str]
) -> None:
    deployed.account.faults.add(Interruption("step 20 ", away=1))
    execution = deployed.start(machines["SpotArn"])
    ended = deployed.ended(execution)
    assert ended["status"] == "SUCCEEDED", ended.get("cause")
    said = deployed.said(deployed.the_job_of(execution)["TrainingJobName"])
    [kept], steps = stopped_at(said), steps_of(said)
    assert 20 <= kept < max(steps)
    # Each tenth step is printed: none was taken twice, and none is missing.
    assert steps == list(range(10, max(steps) + 1, 10))


@pytest.mark.soak  # test_executions.py has a script that fails, test_train.py how one of two hosts ends with the other
def test_a_hyperparameter_that_the_script_refuses_fails_the_job(deployed: Deployed, machines: dict[str, str]) -> None:
    execution = deployed.start(machines["BrokenArn"])
    assert deployed.ended(execution)["status"] == "FAILED"
    assert deployed.the_job_of(execution)["TrainingJobStatus"] == "Failed"


@pytest.mark.soak  # test_interruptions.py has this training, test_executions.py torchrun on two hosts
def test_an_interrupted_job_of_two_data_parallel_hosts_goes_on_with_the_epoch_that_it_was_in(
    deployed: Deployed, tmp_path: Path
) -> None:
    job = DataParallelJob(InstanceGroup("ml.g5.xlarge", 2), launcher=Torchrun())
    workflows = {"Spot": {"epochs": 40, "precision": "bf16"}}
    app = cdk.App(outdir=str(tmp_path))
    machines = deployed.deploy(Trainings(app, "Spirals", job, "data_parallel/Dockerfile", workflows))
    deployed.account.faults.add(Interruption("epoch 4 ", away=1))
    execution = deployed.start(machines["SpotArn"])
    ended = deployed.ended(execution)
    assert ended["status"] == "SUCCEEDED", ended.get("cause")
    said = deployed.said(deployed.the_job_of(execution)["TrainingJobName"])
    assert len(stopped_at(said)) == 1
    epochs = [int(found[1]) for line in said if (found := re.search(r"epoch (\d+) loss", line))]
    assert epochs == list(range(1, 41))
    [accuracy] = [float(found[1]) for line in said if (found := re.search(r"accuracy ([0-9.]+)", line))]
    assert accuracy > 0.95


@pytest.fixture(scope="module")
def said_with_ray(deployed: Deployed, ray_machines: dict[str, str]) -> list[str]:
    """The lines of all hosts of a job with Ray that has succeeded."""
    execution = deployed.start(ray_machines["RayArn"])
    ended = deployed.ended(execution)
    said = deployed.said(deployed.the_job_of(execution)["TrainingJobName"])
    assert ended["status"] == "SUCCEEDED", "\n".join(said)
    return said


@WITH_RAY
def test_every_host_is_a_node_of_ray_and_the_script_runs_once_where_the_head_is(said_with_ray: list[str]) -> None:
    nodes = [line.split()[1:4] for line in said_with_ray if "is a node" in line]
    assert sorted(group for _, _, group in nodes) == ["data_group", "data_group", "dnn_group"]
    [head] = [host for host, _, group in nodes if group == "dnn_group"]
    assert f"ray_cluster: 3 hosts have joined; train.py begins on {head}" in said_with_ray
    assert len([line for line in said_with_ray if line.startswith("accuracy ")]) == 1


@WITH_RAY
def test_ray_data_preprocesses_every_digit_in_the_data_group_and_the_loss_falls(said_with_ray: list[str]) -> None:
    epochs = [re.fullmatch(r"epoch \d loss ([\d.]+), samples by host: (.*)", line) for line in said_with_ray]
    [first, last] = [epoch for epoch in epochs if epoch]
    data_hosts = {line.split()[1] for line in said_with_ray if "of data_group is a node" in line}
    for epoch in (first, last):
        hosts = dict(part.split() for part in epoch[2].split(", "))
        assert {*hosts} <= data_hosts
        assert sum(map(int, hosts.values())) == SAMPLES
    assert float(last[1]) < float(first[1])


@WITH_RAY
def test_the_other_hosts_end_when_the_script_on_rays_head_has_ended(said_with_ray: list[str]) -> None:
    ended = r"ray_cluster: the script has ended on \S+ with exit code 0; (\S+) ends"
    assert len({found[1] for line in said_with_ray if (found := re.fullmatch(ended, line))}) == 2


@WITH_RAY
def test_a_host_whose_raylet_is_killed_fails_the_job_with_a_reason_that_names_it(
    deployed: Deployed, ray_machines: dict[str, str]
) -> None:
    execution, name = training(deployed, ray_machines["RayEndlessArn"])
    [raylet] = raylets(name, "algo-1")
    os.kill(raylet, signal.SIGKILL)
    assert deployed.ended(execution)["status"] == "FAILED"
    assert "algo-1" in described(deployed, name)["FailureReason"]


@WITH_RAY
def test_a_job_with_ray_that_is_stopped_keeps_the_step_that_it_is_in_and_ends_every_host(
    deployed: Deployed, ray_machines: dict[str, str]
) -> None:
    execution, name = training(deployed, ray_machines["RayEndlessArn"])
    deployed.client("sagemaker").stop_training_job(TrainingJobName=name)
    assert deployed.ended(execution)["error"] == "TrainingJobStopped"
    said = deployed.said(name)
    assert len(stopped_at(said)) == 1, said
    assert len([line for line in said if line.endswith("ends") and "with exit code 0" in line]) == 2, said


def raylets(job: str, host: str) -> list[int]:
    """Ray's process on a host of a job, by its number here."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            variables = (folder / "environ").read_text().split("\0")
            if {f"TRAINING_JOB_NAME={job}", f"SM_CURRENT_HOST={host}"} <= {*variables}:
                found += [int(folder.name)] if (folder / "comm").read_text() == "raylet\n" else []
    return found
