"""Model-parallel and data-parallel jobs of several processes, through a deployed state machine: torchrun and MPI."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from deployed import Deployed, wait_until

from cdk_sagemaker_training import (
    DataParallelJob,
    InstanceGroup,
    ModelParallelJob,
    Mpi,
    NativeParallelism,
    S3Channel,
    S3Prefix,
    Spot,
    Torchrun,
    TrainingImage,
    TrainingWorkflow,
    training_code_path,
)
from sagemaker_local_account.faults import Interruption

AN_MPI_JOB = Path(__file__).parent / "an_mpi_job"
TWO_DEVICES = "ml.g7e.12xlarge"
SIZES = {"layers": 2, "width": 32, "heads": 8, "hidden": 64, "context": 16, "batch-size": 8, "log-every": 1}
FIVE_STEPS = {**SIZES, "steps": 5, "checkpoint-every": 0}
EVERY = 5
BEGINS = r"trains .*from step (\d+)"
STOPS = r"rank (\d) on algo-\d stops after step (\d+), with a checkpoint"
ENDLESS = {**SIZES, "steps": 1_000_000, "checkpoint-every": EVERY, "heartbeat-timeout": 5}
TEXT = b"\n\n\n".join(b"def answer_%d():\n    return %s" % (number, b"7" * (number % 9)) for number in range(1000))


class Parallel(cdk.Stack):
    """A workflow for each layout of one model on hosts and ranks, and one that MPI starts."""

    def __init__(self, app: cdk.App) -> None:
        super().__init__(app, "Parallel")
        self.bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
        cdk.CfnOutput(self, "BucketName", value=self.bucket.bucket_name)
        image = TrainingImage.from_asset(
            self, "Image", directory=training_code_path(), file="model_parallel/Dockerfile"
        )
        divided = ModelParallelJob(InstanceGroup(TWO_DEVICES, 2), NativeParallelism(data_shard=2, tensor=2))
        for name, job in {
            "TwoByTwo": divided,
            "OneByTwo": DataParallelJob(InstanceGroup(TWO_DEVICES), launcher=Torchrun()),
            "TwoByOne": DataParallelJob(InstanceGroup("ml.g5.xlarge", 2), launcher=Torchrun()),
        }.items():
            self.workflow(name, job=job, image=image, hyperparameters=FIVE_STEPS)
        self.workflow(
            "Endless",
            job=divided,
            image=image,
            hyperparameters=ENDLESS,
            checkpoints=S3Prefix(self.bucket, "checkpoints/"),
            retries=1,
        )
        self.workflow(
            "Spot",
            job=divided,
            image=image,
            hyperparameters={**SIZES, "steps": 40, "checkpoint-every": 0},
            spot=Spot(S3Prefix(self.bucket, "spot/"), max_wait=cdk.Duration.hours(2)),
        )
        mpi = DataParallelJob(InstanceGroup(TWO_DEVICES), launcher=Mpi())
        mpi_image = TrainingImage.from_asset(self, "MpiImage", directory=str(AN_MPI_JOB))
        self.workflow("Mpi", job=mpi, image=mpi_image)

    def workflow(self, name: str, **props: Any) -> None:
        workflow = TrainingWorkflow(
            self,
            name,
            channels={"text": S3Channel(self.bucket, "text/")},
            output=S3Prefix(self.bucket, "models/"),
            max_runtime=cdk.Duration.hours(1),
            **props,
        )
        cdk.CfnOutput(self, f"{name}Arn", value=workflow.state_machine.state_machine_arn)


@pytest.fixture(scope="module")
def machines(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    outputs = deployed.deploy(Parallel(cdk.App(outdir=str(tmp_path_factory.mktemp("assembly")))))
    deployed.client("s3").put_object(Bucket=outputs["BucketName"], Key="text/answers.py", Body=TEXT)
    return outputs


def completed(deployed: Deployed, machine: str) -> list[str]:
    """What the hosts of an execution's job said; it succeeded."""
    ended = deployed.ended(deployed.start(machine))
    assert ended["status"] == "SUCCEEDED", ended.get("cause")
    [job] = deployed.jobs_of(ended["executionArn"])
    return deployed.said(job["TrainingJobName"])


# An unbuffered print writes its text and its newline one after the other, so that a line may have the text of two ranks.
def found(pattern: str, said: list[str]) -> list[Any]:
    """What matches anywhere in the lines."""
    return re.findall(pattern, "\n".join(said))


def steps(said: list[str]) -> dict[int, float]:
    """The loss after each step."""
    return {int(step): float(loss) for step, loss in found(r"step (\d+) loss ([0-9.]+)", said)}


@pytest.fixture(scope="module")
def interrupted(deployed: Deployed, machines: dict[str, str]) -> list[str]:
    """What a job of two hosts of two ranks said, that was interrupted once."""
    deployed.account.faults.add(Interruption("step 10 ", away=1))
    return completed(deployed, machines["SpotArn"])


@pytest.mark.soak  # tests/training_code/test_model_parallel.py has its layouts, test_executions.py torchrun on two hosts
def test_a_model_is_laid_over_two_hosts_of_two_ranks(deployed: Deployed, machines: dict[str, str]) -> None:
    two_by_two = completed(deployed, machines["TwoByTwoArn"])
    assert list(steps(two_by_two)) == [1, 2, 3, 4, 5]
    held = sorted(set(found(r"(rank \d on algo-\d): stage 0", two_by_two)))
    assert held == ["rank 0 on algo-1", "rank 1 on algo-1", "rank 2 on algo-2", "rank 3 on algo-2"]
    assert any(
        "trains on cpu, 4 ranks" in line and "data_shard=2" in line and "tensor=2" in line for line in two_by_two
    )


@pytest.mark.soak  # tests/training_code/test_model_parallel.py compares layouts, test_executions.py has torchrun on two hosts
@pytest.mark.parametrize("layout", ["OneByTwo", "TwoByOne"])
def test_data_parallel_ranks_on_one_host_and_on_two_train_alike(
    deployed: Deployed, machines: dict[str, str], interrupted: list[str], layout: str
) -> None:
    said = completed(deployed, machines[f"{layout}Arn"])
    assert any("trains on cpu, 2 ranks" in line for line in said)
    losses = steps(interrupted)
    assert steps(said) == pytest.approx({step: losses[step] for step in range(1, 6)}, abs=1e-4)


@pytest.mark.soak  # mpirun starts two ranks; test_launchers.py has its configuration
def test_mpi_starts_a_process_for_each_device_of_a_host(deployed: Deployed, machines: dict[str, str]) -> None:
    """By the toolkit and Open MPI, on one host: on several they go by SSH, which takes a server that no package index has."""
    said = completed(deployed, machines["MpiArn"])
    summed = set(found(r"rank \d of 2: the sum is 3", said))
    assert summed == {"rank 0 of 2: the sum is 3", "rank 1 of 2: the sum is 3"}


@pytest.mark.soak  # four ranks start twice; test_an_interrupted_job... has how they go on, test_model_parallel_run.py a lost rank
def test_a_killed_rank_ends_the_job_which_goes_on_from_its_last_checkpoint(
    deployed: Deployed, machines: dict[str, str]
) -> None:
    execution = deployed.start(machines["EndlessArn"])
    first = deployed.the_job_of(execution, until="Training")["TrainingJobName"]
    deployed.has_said(first, f"step {2 * EVERY + 1} ")
    os.kill(process_of(first, rank=3), signal.SIGKILL)

    second = wait_until(lambda: next((name for name in names(deployed, execution) if name != first), None))
    failed = deployed.client("sagemaker").describe_training_job(TrainingJobName=first)
    assert failed["TrainingJobStatus"] == "Failed"
    assert "rank 3 on algo-2 was lost" in failed["FailureReason"]
    last = max(steps(deployed.said(first)))
    deployed.has_said(second, "step ")
    begins = found(BEGINS, deployed.said(second))
    assert last - EVERY <= int(begins[0]) <= last + 1

    deployed.client("sagemaker").stop_training_job(TrainingJobName=second)
    assert deployed.ended(execution)["error"] == "TrainingJobStopped"
    stops = sorted(found(STOPS, deployed.said(second)))
    assert [rank for rank, _ in stops] == ["0", "1", "2", "3"]
    assert len({step for _, step in stops}) == 1


@pytest.mark.soak  # test_model_parallel_run.py has how ranks stop, tests/training_code/test_model_parallel.py how they go on
def test_an_interrupted_job_goes_on_with_the_step_after_the_one_that_all_ranks_stopped_at(
    interrupted: list[str],
) -> None:
    stopped = {int(step) for _, step in found(STOPS, interrupted)}
    assert len(stopped) == 1
    begins = [int(step) for step in found(BEGINS, interrupted)]
    assert begins == [0, *stopped]
    assert 10 <= begins[1] < 40
    assert list(steps(interrupted)) == list(range(1, 41))


def names(deployed: Deployed, execution: str) -> list[str]:
    return [job["TrainingJobName"] for job in deployed.jobs_of(execution)]


def process_of(job: str, *, rank: int) -> int:
    """The process, as this machine counts them, that is a rank of a job."""
    wanted = {f"RANK={rank}".encode(), f"TRAINING_JOB_NAME={job}".encode()}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = set((folder / "environ").read_bytes().split(b"\0"))
        except OSError:  # it has ended, or is another user's
            continue
        if wanted <= variables:
            return int(folder.name)
    raise AssertionError(f"no process of this machine is rank {rank} of {job}")
