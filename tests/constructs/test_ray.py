import shutil
from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from stacks import message_of, reads
from whole_requests import request_of

from cdk_sagemaker_training import (
    CompiledJob,
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    Neuron,
    Ray,
    S3Prefix,
    Torchrun,
    TrainingImage,
    TrainingWorkflow,
    training_code_path,
)


def heterogeneous(name: str) -> HeterogeneousJob:
    train = DataParallelJob(InstanceGroup("ml.g5.xlarge"), launcher=Ray())
    return HeterogeneousJob(groups={name: InstanceGroup("ml.c5.xlarge", 2)}, train=train, train_group="dnn_group")


def test_the_toolkit_starts_the_launcher_on_every_host_in_place_of_the_script() -> None:
    [request] = DataParallelJob(
        InstanceGroup("ml.g5.xlarge", 2), Ray("digits/main.py", cdk.Size.gibibytes(2))
    ).requests()
    assert request.environment == {"SAGEMAKER_PROGRAM": "ray_cluster/ray_cluster.py"}
    assert (Path(training_code_path()) / "ray_cluster/ray_cluster.py").is_file()
    assert request.hyperparameters == {
        "sagemaker_ray_enabled": "true",
        "sagemaker_program": '"ray_cluster/ray_cluster.py"',
        "sagemaker_ray_script": '"digits/main.py"',
        "sagemaker_ray_object_store_memory": "2147483648",
    }


def test_the_head_is_told_the_group_that_trains() -> None:
    [request] = heterogeneous("data_group").requests()
    assert request.hyperparameters["sagemaker_distribution_instance_groups"] == '["dnn_group"]'
    assert request.environment == {"SAGEMAKER_PROGRAM": "ray_cluster/ray_cluster.py"}


def test_an_object_store_that_ray_refuses_is_refused() -> None:
    message = message_of(lambda: Ray(object_store_memory=cdk.Size.mebibytes(74)))
    assert message.startswith("object_store_memory must be at least 75 MiB")
    assert message.endswith("got 74 MiB")
    assert Ray(object_store_memory=cdk.Size.mebibytes(75)).script == "train.py"


@pytest.mark.parametrize("name", ["data,group", "-data", "my data", "a" * 64, "CPU", "object_store_memory"])
def test_a_group_whose_name_is_no_label_or_resource_of_ray_is_refused(name: str) -> None:
    message = message_of(lambda: heterogeneous(name))
    assert message.startswith("groups must have names that Ray takes as labels and resources")
    assert message.endswith(f"got {name!r}")


def test_names_that_ray_does_not_take_remain_to_other_launchers() -> None:
    train = DataParallelJob(InstanceGroup("ml.g5.xlarge"))
    groups = {"data,group": InstanceGroup("ml.c5.xlarge")}
    assert HeterogeneousJob(groups=groups, train=train, train_group="CPU").requests()


@pytest.mark.parametrize("name", ["sagemaker_program", "sagemaker_ray_script"])
def test_the_script_is_said_to_the_launcher_and_not_in_hyperparameters(name: str) -> None:
    message = message_of(lambda: request_of(heterogeneous("data_group"), hyperparameters={name: "other.py"}))
    assert message.startswith(f"hyperparameters must not contain {name!r}, which the job sets")


def test_the_program_is_the_launchers_in_the_environment_too() -> None:
    message = message_of(lambda: request_of(heterogeneous("data_group"), environment={"SAGEMAKER_PROGRAM": "other.py"}))
    assert message.startswith("environment must not contain 'SAGEMAKER_PROGRAM', which the job sets to")


def test_neuron_compiles_under_torchrun_only() -> None:
    cache = S3Prefix(s3.Bucket.from_bucket_name(cdk.Stack(), "Bucket", "bucket"), "neuron-cache/")
    group = InstanceGroup("ml.trn1.32xlarge")
    assert CompiledJob(group, launcher=Torchrun(), compiler=Neuron(cache)).requests()
    message = message_of(lambda: CompiledJob(group, launcher=Ray(), compiler=Neuron(cache)))
    assert message.endswith("got sagemaker_ray_enabled")


@pytest.mark.parametrize(
    "copy",
    [
        "COPY ray_cluster /opt/ml/code/ray_cluster",
        "COPY ray_cluster/*.py /opt/ml/code/ray_cluster/",
        "COPY . /opt/ml/code",
    ],
)
def test_an_image_that_copies_the_launcher_is_taken(copy: str, tmp_path: Path) -> None:
    workflow(directory(tmp_path, copy))


def test_an_image_that_does_not_copy_the_launcher_is_refused(tmp_path: Path) -> None:
    folder = directory(tmp_path, "COPY common/job.py /opt/ml/code/common/")
    assert reads(
        message_of(lambda: workflow(folder)),
        "image must copy ray_cluster/ray_cluster.py of training_code_path(), which the job's launcher starts "
        f"on every host ... got a Dockerfile in {str(folder)!r} that does not",
    )


def directory(folder: Path, copy: str) -> Path:
    for name in ("common", "ray_cluster"):
        shutil.copytree(Path(training_code_path()) / name, folder / name)
    (folder / "Dockerfile").write_text(f"FROM python:3.12\nRUN pip install sagemaker-training\n{copy}\n")
    return folder


def workflow(folder: Path) -> TrainingWorkflow:
    stack = cdk.Stack(cdk.App(), "Stack")
    return TrainingWorkflow(
        stack,
        "Training",
        job=heterogeneous("data_group"),
        image=TrainingImage.from_asset(stack, "Image", directory=str(folder)),
        output=S3Prefix(s3.Bucket(stack, "Bucket"), "models/"),
    )
