"""Compiled training jobs through a deployed state machine: inductor, TensorFlow's XLA, PyTorch/XLA, and spot machines."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable, Iterator
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from deployed import Deployed

from cdk_sagemaker_training import (
    CompiledJob,
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    S3Channel,
    S3Prefix,
    Spot,
    TensorFlowXla,
    TorchCompile,
    Torchrun,
    TorchXla,
    TrainingImage,
    TrainingWorkflow,
    training_code_path,
)
from sagemaker_local_account.faults import Interruption

# g++ compiles 18 files for the first job, others install TensorFlow, and each host imports it or PyTorch: minutes of two cores.
# `make test` has no compiled job in an account, but interruptions, kept code, caught shapes and two ranks in
# test_compiled_train.py. The first test of a fixture waits for all of its jobs, which a busy machine makes long.
pytestmark = [pytest.mark.timeout(1_800), pytest.mark.soak]
TYPE = "ml.m5.xlarge"
SMALL = {"batch-size": 4, "sequence": 32, "width": 16, "layers": 1, "heads": 2}
QUICK, FIFTY = {**SMALL, "steps": 20}, {**SMALL, "steps": 50}
LONG = 400  # steps, so that the interruption comes long before the last one
# Kernels without vector code, which g++ compiles in half the time.
PLAIN_KERNELS = {"TORCHINDUCTOR_VEC_ISA_OK": "0", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
DIGITS = {"epochs": 3, "batch-size": 64, "shard": "true", "workers": 1}
TEXT = b"\n\n\n".join(b"def answer_%d():\n    return %s" % (number, b"7" * (number % 9)) for number in range(1000))


ONE, TWO = InstanceGroup(TYPE), InstanceGroup(TYPE, 2)


class Compiled(cdk.Stack):
    """A workflow for each of ``jobs``, by name, in one image; each stack deploys the image that it needs and no other."""

    def __init__(self, app: cdk.App, id: str, jobs: dict[str, dict[str, Any]], **image: Any) -> None:
        super().__init__(app, id)
        bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
        cdk.CfnOutput(self, "BucketName", value=bucket.bucket_name)
        built = TrainingImage.from_asset(self, "Image", directory=training_code_path(), **image)
        for name, props in jobs.items():
            workflow = TrainingWorkflow(
                self,
                name,
                job=props["job"],
                image=built,
                channels={"text": S3Channel(bucket, "text/")},
                output=S3Prefix(bucket, "models/"),
                hyperparameters=props.get("hyperparameters", QUICK),
                environment=props.get("environment"),
                spot=Spot(S3Prefix(bucket, "checkpoints/"), max_wait=cdk.Duration.hours(2))
                if "spot" in props
                else None,
                checkpoints=S3Prefix(bucket, "checkpoints/") if "checkpoints" in props else None,
                max_runtime=cdk.Duration.hours(1),
            )
            cdk.CfnOutput(self, f"{name}Arn", value=workflow.state_machine.state_machine_arn)
            cdk.CfnOutput(self, f"{name}Prefix", value=workflow.job_name_prefix)


@pytest.fixture(scope="module")
def machines(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Deploys a stack, with its text in its bucket; its outputs."""

    def deploy(*arguments: Any, **image: Any) -> dict[str, str]:
        outputs = deployed.deploy(
            Compiled(cdk.App(outdir=str(tmp_path_factory.mktemp("assembly"))), *arguments, **image)
        )
        deployed.client("s3").put_object(Bucket=outputs["BucketName"], Key="text/answers.py", Body=TEXT)
        return outputs

    return deploy


@pytest.fixture(scope="module")
def pytorch(machines: Any) -> dict[str, str]:
    jobs: dict[str, dict[str, Any]] = {
        "Inductor": {"job": CompiledJob(TWO, launcher=Torchrun()), "checkpoints": True},
        "Longest": {"job": CompiledJob(ONE), "hyperparameters": {**QUICK, "pad": "longest"}},
        "Spot": {
            "job": CompiledJob(ONE),
            "hyperparameters": {**SMALL, "steps": LONG, "log-every": 50, "checkpoint-every": 50},
            "spot": True,
        },
        "Endless": {
            "job": CompiledJob(ONE),
            "hyperparameters": {**SMALL, "steps": 1_000_000, "log-every": 10, "checkpoint-every": 1_000_000},
            "checkpoints": True,
        },
    }
    for job in jobs.values():
        job["environment"] = PLAIN_KERNELS
    return dict(machines("CompiledPyTorch", jobs, file="compiled/Dockerfile"))


@pytest.fixture(scope="module")
def interrupted(deployed: Deployed, pytorch: dict[str, str]) -> tuple[str, list[str]]:
    """The name of an execution whose spot job was interrupted once, with its compiled code kept, and what the job said."""
    faults = deployed.account.faults
    faults.add(Interruption("step 50 ", away=1))
    ended = deployed.ended(deployed.start(pytorch["SpotArn"]))
    assert not faults.remaining()
    assert ended["status"] == "SUCCEEDED", ended.get("cause")
    [job] = deployed.jobs_of(ended["executionArn"])
    return ended["name"], deployed.said(job["TrainingJobName"])


@pytest.fixture
def compiled_before(
    deployed: Deployed, pytorch: dict[str, str], interrupted: tuple[str, list[str]]
) -> Callable[[str, str], None]:
    """Puts what the interrupted job compiled where the job of a workflow's execution of that name has its checkpoints."""

    def copy(workflow: str, execution: str) -> None:
        s3, bucket = deployed.client("s3"), pytorch["BucketName"]
        before = f"checkpoints/{pytorch['SpotPrefix']}/{interrupted[0]}/"
        kept = s3.list_objects_v2(Bucket=bucket, Prefix=f"{before}compiler-cache/")["Contents"]
        for key in (entry["Key"] for entry in kept):
            to = f"checkpoints/{pytorch[f'{workflow}Prefix']}/{execution}/{key.removeprefix(before)}"
            s3.copy_object(Bucket=bucket, Key=to, CopySource={"Bucket": bucket, "Key": key})

    return copy


@pytest.fixture(scope="module")
def tensorflow(machines: Any) -> dict[str, str]:
    jobs = {
        "TensorFlow": {
            "job": CompiledJob(TWO, compiler=TensorFlowXla()),
            "hyperparameters": FIFTY,
            "environment": {"XLA_FLAGS": "--xla_dump_to=/opt/ml/output/data/xla"},
        },
        "Uncompiled": {"job": DataParallelJob(TWO), "hyperparameters": FIFTY},
        "TensorFlowSpot": {
            "job": CompiledJob(TWO, compiler=TensorFlowXla()),
            "hyperparameters": {**SMALL, "steps": 4 * LONG, "log-every": 10, "checkpoint-every": LONG},
            "spot": True,
        },
        "TensorFlowLongest": {
            "job": CompiledJob(ONE, compiler=TensorFlowXla()),
            "hyperparameters": {**QUICK, "batch-size": 1, "pad": "longest"},
        },
    }
    return dict(machines("CompiledTensorFlow", jobs, file="compiled/tensorflow/Dockerfile"))


@pytest.fixture(scope="module")
def xla(machines: Any) -> dict[str, str]:
    return dict(
        machines("CompiledXla", {"Xla": {"job": CompiledJob(ONE, compiler=TorchXla())}}, file="compiled/xla/Dockerfile")
    )


@pytest.fixture(scope="module")
def digits(machines: Any) -> dict[str, str]:
    """A heterogeneous job whose training group runs FSDP2 and inductor."""
    job = HeterogeneousJob(
        groups={"data_group": ONE},
        train=DataParallelJob(TWO, launcher=Torchrun(), compiler=TorchCompile()),
        train_group="dnn_group",
    )
    jobs = {"Digits": {"job": job, "hyperparameters": DIGITS, "checkpoints": True, "environment": PLAIN_KERNELS}}
    return dict(machines("CompiledDigits", jobs, file="heterogeneous/Dockerfile"))


@pytest.fixture
def broken(deployed: Deployed) -> Iterator[Any]:
    faults = deployed.account.faults
    yield faults.add
    for name in faults.remaining():
        faults.mend(name)


def completed(deployed: Deployed, machine: str, name: str | None = None) -> list[str]:
    """What the hosts of an execution's job said; it succeeded."""
    ended = deployed.ended(deployed.start(machine, name))
    assert ended["status"] == "SUCCEEDED", ended.get("cause")
    [job] = deployed.jobs_of(ended["executionArn"])
    return deployed.said(job["TrainingJobName"])


def written(deployed: Deployed, bucket: str) -> list[str]:
    """The names of the files below /opt/ml/output/data that the jobs of a bucket left."""
    s3 = deployed.client("s3")
    keys = [one["Key"] for one in s3.list_objects_v2(Bucket=bucket, Prefix="models/")["Contents"]]
    bodies = [s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys if key.endswith("output.tar.gz")]
    return [name for body in bodies for name in tarfile.open(fileobj=io.BytesIO(body)).getnames()]


def numbers(said: list[str], pattern: str) -> list[float]:
    return [float(found[1]) for line in said if (found := re.match(pattern, line))]


def test_inductor_trains_on_two_hosts_by_what_another_job_compiled(
    deployed: Deployed, pytorch: dict[str, str], compiled_before: Callable[[str, str], None]
) -> None:
    compiled_before("Inductor", "two-hosts")
    said = completed(deployed, pytorch["InductorArn"], "two-hosts")
    assert sum("1 of 2 processes, compiler inductor" in line for line in said) == 2
    [first, *_, last] = numbers(said, r"step \d+ loss ([0-9.]+)")
    assert last < first
    assert numbers(said, r"compilations 1, (\d+) graphs from the cache") == [2]  # rank 0 alone says it


def test_tensorflow_trains_on_two_hosts_by_what_xla_compiles(deployed: Deployed, tensorflow: dict[str, str]) -> None:
    said = completed(deployed, tensorflow["TensorFlowArn"])
    assert sum("compiler xla on 2 devices of 2 hosts" in line for line in said) == 2
    # XLA's own dump, since SageMaker's toolkit for TensorFlow has it log warnings and errors only.
    dumped = written(deployed, tensorflow["BucketName"])
    assert any("loss_and_gradients" in name for name in dumped), dumped
    assert numbers(said, r"compilations (\d+)") == [1, 1]
    losses = numbers(said, r"step \d+ loss ([0-9.]+)")
    assert len(losses) == 2 * 6  # both hosts, after steps 1, 10, ... 50
    uncompiled = completed(deployed, tensorflow["UncompiledArn"])
    assert sorted(losses) == pytest.approx(sorted(numbers(uncompiled, r"step \d+ loss ([0-9.]+)")), abs=1e-4)


def test_tensorflows_xla_that_compiles_again_fails_the_job(deployed: Deployed, tensorflow: dict[str, str]) -> None:
    execution = deployed.start(tensorflow["TensorFlowLongestArn"])
    assert deployed.ended(execution)["status"] == "FAILED"
    said = deployed.said(deployed.the_job_of(execution)["TrainingJobName"])
    assert any("compiled again: the batch was" in line for line in said)


def test_an_interrupted_tensorflow_job_goes_on_where_all_hosts_stopped(
    deployed: Deployed, tensorflow: dict[str, str], broken: Any
) -> None:
    broken(Interruption("step 50 ", away=1))
    said = completed(deployed, tensorflow["TensorFlowSpotArn"])
    [stopped, too] = numbers(said, r"stopped by SIGTERM with the checkpoint of step (\d+)")
    assert 50 <= stopped == too < 4 * LONG
    assert numbers(said, r".*from step (\d+)") == [0, 0, stopped, stopped]


def test_pytorch_xla_trains_in_an_environment_of_its_own(deployed: Deployed, xla: dict[str, str]) -> None:
    said = completed(deployed, xla["XlaArn"])
    assert any("trains on XLA, 1 of 1 processes" in line for line in said)
    [first, *_, last] = numbers(said, r"step \d+ loss ([0-9.]+)")
    assert last < first


def test_a_script_that_pads_to_the_longest_fails_the_job(deployed: Deployed, pytorch: dict[str, str]) -> None:
    execution = deployed.start(pytorch["LongestArn"])
    assert deployed.ended(execution)["status"] == "FAILED"
    job = deployed.the_job_of(execution)
    assert job["TrainingJobStatus"] == "Failed"
    said = deployed.said(job["TrainingJobName"])
    assert any("Detected recompile" in line for line in said)
    # The first batch whose longest line is another's; which one that is, the order of the lines decides.
    [failed, *_] = numbers(said, r".*in step (\d+), which has not updated the weights")
    assert all(step < failed for step in numbers(said, r"step (\d+) loss"))


def test_an_interrupted_job_goes_on_with_its_steps_and_its_compiled_code(interrupted: tuple[str, list[str]]) -> None:
    _, said = interrupted
    [first, second] = numbers(said, r".*from step (\d+)")
    assert first == 0
    assert 50 <= second < LONG
    assert numbers(said, r"stopped by SIGTERM with the checkpoint of step (\d+)") == [second]
    steps = numbers(said, r"step (\d+) loss")
    assert steps[-1] == LONG
    assert numbers(said, r"compilations 1, (\d+) graphs from the cache") == [0, 2]
    print("seconds to compile of each start:", numbers(said, r"compile time ([0-9.]+)"))


def test_a_job_that_is_stopped_keeps_the_step_that_it_is_in(
    deployed: Deployed, pytorch: dict[str, str], compiled_before: Callable[[str, str], None]
) -> None:
    compiled_before("Endless", "stopped")
    execution = deployed.start(pytorch["EndlessArn"], "stopped")
    name = deployed.the_job_of(execution, until="Training")["TrainingJobName"]
    deployed.has_said(name, "step 10 ")
    deployed.client("sagemaker").stop_training_job(TrainingJobName=name)
    assert deployed.ended(execution)["error"] == "TrainingJobStopped"
    said = deployed.said(name)
    [kept] = numbers(said, r"stopped by SIGTERM with the checkpoint of step (\d+)")
    last = numbers(said, r"step (\d+) loss")[-1]
    assert last <= kept < last + 10


def test_a_group_that_trains_beside_another_keeps_shares_of_a_compiled_model(
    deployed: Deployed, digits: dict[str, str]
) -> None:
    said = completed(deployed, digits["DigitsArn"])
    assert sum("of dnn_group trains" in line for line in said) == 2
    assert sum("of data_group serves" in line for line in said) == 1
    [first, *_, last] = numbers(said, r"step \d+ loss ([0-9.]+)")
    assert last < first
    kept = deployed.client("s3").list_objects_v2(Bucket=digits["BucketName"], Prefix="checkpoints/")["Contents"]
    assert any("/compiler-cache/" in entry["Key"] for entry in kept)  # what inductor compiled
