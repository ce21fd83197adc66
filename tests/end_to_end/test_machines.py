"""The machines of a job, as SageMaker's toolkit and torchrun find them in its hosts."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest
from deployed import wait_until
from running_account import Running

from sagemaker_local_account.account import LocalAccount

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.13-cpu-amzn2023-sagemaker"
# Without PyTorch, which dozens of processes would import at once.
SCRIPT = """
import os
gpus, neurons, rank, world = (os.environ.get(name) for name in ("SM_NUM_GPUS", "SM_NUM_NEURONS", "RANK", "WORLD_SIZE"))
os.write(1, f"gpus {gpus} neurons {neurons}\\nrank {rank} of {world}\\n".encode())  # at once: ranks print all together
"""
SCALED = "ml.p4de.24xlarge"


class Toolkit:
    """Runs the script under the toolkit, on a machine of some type."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._sagemaker, self._s3 = running.client("sagemaker"), running.client("s3")
        self._role = running.role("Jobs", "sagemaker.amazonaws.com", may_do_all=True)
        self._s3.create_bucket(Bucket="scripts")
        with io.BytesIO() as file:
            with tarfile.open(fileobj=file, mode="w:gz") as tar:
                about = tarfile.TarInfo("script.py")
                about.size = len(SCRIPT)
                tar.addfile(about, io.BytesIO(SCRIPT.encode()))
            self._s3.put_object(Bucket="scripts", Key="sourcedir.tar.gz", Body=file.getvalue())

    def said(self, instance_type: str) -> set[str]:
        name = f"machines-{instance_type.replace('.', '-')}"
        self._sagemaker.create_training_job(
            TrainingJobName=name,
            AlgorithmSpecification={"TrainingImage": IMAGE, "TrainingInputMode": "File"},
            RoleArn=self._role,
            OutputDataConfig={"S3OutputPath": "s3://scripts/models"},
            ResourceConfig={"InstanceType": instance_type, "InstanceCount": 1, "VolumeSizeInGB": 1},
            StoppingCondition={"MaxRuntimeInSeconds": 600},
            HyperParameters={
                "sagemaker_program": "script.py",
                "sagemaker_submit_directory": "s3://scripts/sourcedir.tar.gz",
                "sagemaker_torch_distributed_enabled": "true",
            },
        )

        def ended() -> dict[str, Any] | None:
            job: dict[str, Any] = self._sagemaker.describe_training_job(TrainingJobName=name)
            return None if job["TrainingJobStatus"] == "InProgress" else job

        job = wait_until(ended)
        assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
        events = self._running.client("logs").filter_log_events(
            logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=f"{name}/"
        )["events"]
        return {event["message"] for event in events if event["message"].startswith(("gpus", "rank"))}


@pytest.fixture(scope="module")
def toolkit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toolkit]:
    with LocalAccount(state=tmp_path_factory.mktemp("account"), devices={SCALED: 2}) as account:
        yield Toolkit(Running(account))


def ranks(count: int) -> set[str]:
    return {f"rank {rank} of {count}" for rank in range(count)}


@pytest.mark.soak  # as trn1.32xlarge, of another number
def test_torchrun_starts_a_rank_for_each_gpu_of_a_p4d(toolkit: Toolkit) -> None:
    assert toolkit.said("ml.p4d.24xlarge") == {"gpus 8 neurons 0", *ranks(8)}


@pytest.mark.soak  # 32 processes; test_devices.py has the numbers of devices
def test_torchrun_starts_a_rank_for_each_core_of_a_trn1(toolkit: Toolkit) -> None:
    assert toolkit.said("ml.trn1.32xlarge") == {"gpus 0 neurons 32", *ranks(32)}


@pytest.mark.soak  # as the first
def test_torchrun_starts_as_many_ranks_as_the_devices_were_scaled_down_to(toolkit: Toolkit) -> None:
    assert toolkit.said(SCALED) == {"gpus 2 neurons 0", *ranks(2)}
