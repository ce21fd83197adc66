"""tf.data service in a heterogeneous job of two and two hosts, through a deployed state machine."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
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
    S3Prefix,
    TrainingImage,
    TrainingWorkflow,
    training_code_path,
)

# It installs TensorFlow, which nine processes import: minutes of a core. In `make test`, test_heterogeneous_tensorflow.py of
# training_code has how such a job ends, test_training_code.py the faults of such groups.
pytestmark = pytest.mark.soak
JOB = HeterogeneousJob(
    groups={"data_group": InstanceGroup("ml.c5.xlarge", 2)},
    train=DataParallelJob(InstanceGroup("ml.m5.xlarge", 2)),  # TensorFlow joins them; nothing launches
    train_group="dnn_group",
)
ALONE = DataParallelJob(InstanceGroup("ml.m5.xlarge"))
EPOCHS, BATCH, SAMPLES = 4, 4, 1437  # as many digits are trained on
# Small batches, so that an epoch has hundreds of them and what is killed is killed among them.
LONG, SHORT = {"epochs": EPOCHS, "batch-size": BATCH}, {"epochs": 2}
ENDLESS = {"epochs": 1_000_000, "batch-size": BATCH}


class Digits(cdk.Stack):
    def __init__(self, app: cdk.App) -> None:
        super().__init__(app, "TensorFlowDigits", env=cdk.Environment(account="123456789012", region="us-east-1"))
        bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
        image = TrainingImage.from_asset(
            self,
            "Image",
            directory=training_code_path(),
            file="heterogeneous/tensorflow/Dockerfile",
        )
        for name, job, hyperparameters in (
            ("TwoAndTwo", JOB, LONG),
            ("Endless", JOB, ENDLESS),
            ("Alone", ALONE, SHORT),
        ):
            workflow = TrainingWorkflow(
                self, name, job=job, image=image, output=S3Prefix(bucket, "models/"), hyperparameters=hyperparameters
            )
            cdk.CfnOutput(self, f"{name}Arn", value=workflow.state_machine.state_machine_arn)


@dataclass(frozen=True)
class Ended:
    """A job that is over, and what its hosts said."""

    execution: dict[str, Any]
    job: dict[str, Any]
    said: list[str]

    def epochs(self) -> list[tuple[float, int]]:
        """The mean loss of each epoch, and its samples."""
        lines = (re.match(r"epoch \d+ loss ([\d.]+) .*, (\d+) of \d+ samples", line) for line in self.said)
        return [(float(line[1]), int(line[2])) for line in lines if line]


@pytest.fixture(scope="module")
def machines(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return deployed.deploy(Digits(cdk.App(outdir=str(tmp_path_factory.mktemp("assembly")))))


@pytest.fixture(scope="module")
def killed(deployed: Deployed, machines: dict[str, str]) -> Ended:
    """A job whose dispatcher is killed in its first epoch, and later one of its workers, and that is stopped in the end."""
    execution, name = survived(deployed, machines["EndlessArn"])
    deployed.has_said(name, rf"epoch {EPOCHS - 1} ")
    deployed.client("sagemaker").stop_training_job(TrainingJobName=name)
    return ended(deployed, execution)


def survived(deployed: Deployed, machine: str) -> tuple[str, str]:
    """An execution and its job, whose dispatcher and later one of whose workers were killed."""
    execution = deployed.start(machine)
    name = deployed.the_job_of(execution, until="Training")["TrainingJobName"]
    deployed.has_said(name, r"step \d+ ")
    kill(name, "algo-1", deployed.has_said(name, r"the dispatcher is process (\d+)"))
    deployed.has_said(name, r"epoch 1 ")
    kill(name, "algo-2", deployed.has_said(name, r"the worker of algo-2 is process (\d+)"))
    return execution, name


def processes(job: str) -> Iterator[tuple[str, str, int]]:
    """The processes of a job: each one's host, its number there, and its number here."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            set_to = dict(line.partition("=")[::2] for line in (folder / "environ").read_text().split("\0"))
            numbers = re.search(r"^NSpid:.*\t(\d+)$", (folder / "status").read_text(), re.M)
            if numbers and set_to.get("TRAINING_JOB_NAME") == job and "SM_CURRENT_HOST" in set_to:
                yield set_to["SM_CURRENT_HOST"], numbers[1], int(folder.name)


def kill(job: str, host: str, process: re.Match[str]) -> None:
    [number] = [here for on, there, here in processes(job) if (on, there) == (host, process[1])]
    os.kill(number, signal.SIGKILL)


def ended(deployed: Deployed, execution: str) -> Ended:
    description = deployed.ended(execution)
    job = deployed.the_job_of(execution)
    return Ended(description, job, deployed.said(job["TrainingJobName"]))


def test_a_job_whose_dispatcher_is_killed_goes_on(killed: Ended) -> None:
    assert "the dispatcher ended with -9 and is restarted" in killed.said
    assert len(killed.epochs()) >= EPOCHS


def test_a_job_whose_dispatcher_is_killed_succeeds(deployed: Deployed, machines: dict[str, str]) -> None:
    execution, _ = survived(deployed, machines["TwoAndTwoArn"])
    succeeded = ended(deployed, execution)
    assert succeeded.execution["status"] == "SUCCEEDED", "\n".join(succeeded.said)
    assert "the dispatcher ended with -9 and is restarted" in succeeded.said
    assert len(succeeded.epochs()) == EPOCHS


def test_two_hosts_serve_and_two_train(killed: Ended) -> None:
    assert sum("of data_group runs tf.data service" in line for line in killed.said) == 2
    assert sum("of dnn_group trains on 2 devices of 2 hosts" in line for line in killed.said) == 2


def test_every_host_has_a_worker(killed: Ended) -> None:
    assert {line.split()[3] for line in killed.said if line.startswith("the worker of ")} == {
        f"algo-{number}" for number in range(1, 5)
    }


def test_the_loss_falls(killed: Ended) -> None:
    [(first, _), *_, (last, _)] = killed.epochs()
    assert last < first / 2


def test_a_dispatcher_goes_on_from_its_journal(killed: Ended) -> None:
    # Without one it would give out the epoch again. What it had noted and not yet sent is lost: a batch for each worker.
    counts = [samples for _, samples in killed.epochs()[:2]]
    assert len(counts) == 2
    assert all(SAMPLES - 4 * BATCH <= count <= SAMPLES for count in counts), counts


def test_a_worker_that_is_killed_repeats_no_sample_and_serves_again(killed: Ended) -> None:
    assert "the worker of algo-2 ended with -9 and is restarted" in killed.said
    counts = [samples for _, samples in killed.epochs()]
    assert max(counts) == SAMPLES
    assert counts[EPOCHS - 1] == SAMPLES


def test_no_process_outlives_the_job(killed: Ended) -> None:
    assert not [*processes(killed.job["TrainingJobName"])]


def test_a_job_that_is_stopped_keeps_the_step_that_it_is_in_and_ends_every_host(killed: Ended) -> None:
    assert (killed.execution["error"], killed.job["TrainingJobStatus"]) == ("TrainingJobStopped", "Stopped")
    lines = [line for line in killed.said if line.startswith("stopped by SIGTERM with the checkpoint of step")]
    assert len(lines) == 2, killed.said
    assert len({*lines}) == 1


def test_one_host_without_a_data_group_prepares_its_own_batches(deployed: Deployed, machines: dict[str, str]) -> None:
    alone = ended(deployed, deployed.start(machines["AloneArn"]))
    assert alone.execution["status"] == "SUCCEEDED", "\n".join(alone.said)
    [(first, before), (last, after)] = alone.epochs()
    assert last < first
    assert (before, after) == (SAMPLES, SAMPLES)
