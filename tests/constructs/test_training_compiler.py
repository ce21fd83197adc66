from typing import Any

import aws_cdk as cdk
import pytest
from stacks import message_of, reads

from cdk_sagemaker_training import (
    CompiledJob,
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    JobRequest,
    PyTorchXla,
    Torchrun,
    TrainingCompiler,
    TrainingImage,
)

ONE_GPU = InstanceGroup("ml.g5.4xlarge")
EIGHT_GPUS = InstanceGroup("ml.p4d.24xlarge", 2)


def request_of(job: Any) -> JobRequest:
    [request] = job.requests()
    return request  # type: ignore[no-any-return]


def job(group: InstanceGroup = ONE_GPU, launcher: Any = None, **props: Any) -> CompiledJob:
    return CompiledJob(group, compiler=TrainingCompiler(**props), launcher=launcher)


def advice_of(job: Any) -> dict[str, str]:
    prefix = "cdk-sagemaker-training:training-compiler-"
    return {advice.id.removeprefix(prefix): advice.text for advice in request_of(job).advice}


def stack(region: str = "us-east-1") -> cdk.Stack:
    return cdk.Stack(cdk.App(), "Stack", env=cdk.Environment(account="123456789012", region=region))


@pytest.mark.parametrize("instance_type", ["ml.p5.48xlarge", "ml.p4de.24xlarge", "ml.g6.xlarge", "ml.c5.xlarge"])
def test_it_compiles_for_its_own_families_only(instance_type: str) -> None:
    assert reads(
        message_of(lambda: job(InstanceGroup(instance_type))),
        "instance_type must be of a family that TrainingCompiler supports, p3, p3dn, g4dn, p4d, g5 ... got "
        f"{instance_type!r}",
    )


def test_it_is_refused_in_a_heterogeneous_job() -> None:
    message = message_of(
        lambda: HeterogeneousJob(groups={"data": InstanceGroup("ml.c5.xlarge")}, train=job(), train_group="dnn")
    )
    assert message.startswith("train must be a job that can run in one of several groups")
    assert message.endswith(": TrainingCompiler does not support instance groups")


def test_other_launchers_are_refused() -> None:
    assert reads(
        message_of(lambda: job(launcher=Torchrun())),
        "launcher must be one that TrainingCompiler supports ... got sagemaker_torch_distributed_enabled",
    )


def test_it_compiles_for_a_data_parallel_job_too() -> None:
    plain = DataParallelJob(ONE_GPU, compiler=TrainingCompiler())
    assert request_of(plain).hyperparameters["sagemaker_training_compiler_enabled"] == "true"


@pytest.mark.parametrize("prop", ["debug", "profiler"])
def test_a_flag_that_is_neither_true_nor_false_is_refused(prop: str) -> None:
    assert reads(message_of(lambda: TrainingCompiler(**{prop: "yes"})), f"{prop} must be True or False ... got 'yes'")


def test_its_end_of_life_is_told_with_what_to_move_to() -> None:
    advice = advice_of(job())
    assert list(advice) == ["end-of-life"]
    assert "TorchCompile()" in advice["end-of-life"]


def test_the_debug_flag_is_told_with_where_its_logs_are() -> None:
    advice = advice_of(job(debug=True))
    assert "/opt/ml/output/data/compiler/" in advice["debug"]
    assert "output.tar.gz" in advice["debug"]


def test_a_profiler_left_on_is_told() -> None:
    assert list(advice_of(job(profiler=True))) == ["end-of-life", "profiler"]


def test_several_gpus_without_a_launcher_are_told() -> None:
    assert list(advice_of(job(EIGHT_GPUS))) == ["end-of-life", "without-launcher"]
    assert list(advice_of(job(EIGHT_GPUS, launcher=PyTorchXla()))) == ["end-of-life"]


@pytest.mark.parametrize(
    ("framework", "version", "name"),
    [
        ("pytorch", "1.13.1", "pytorch-trcomp-training:1.13.1-gpu-py39"),
        ("pytorch", "1.13", "pytorch-trcomp-training:1.13.1-gpu-py39"),
        ("pytorch", "1.12.0", "pytorch-trcomp-training:1.12.0-gpu-py38"),
        (
            "huggingface-pytorch",
            "1.11.0",
            "huggingface-pytorch-trcomp-training:1.11.0-transformers4.21.1-gpu-py38-cu113-ubuntu20.04",
        ),
        ("tensorflow", "2.11", "tensorflow-training:2.11-gpu-py39"),
    ],
)
def test_a_frameworks_version_has_this_container(framework: Any, version: str, name: str) -> None:
    image = TrainingImage.from_training_compiler(stack(), "Image", framework, version)
    assert image.base == name
    assert image.image_uri.startswith("763104351884.dkr.ecr.us-east-1.")
    assert image.image_uri.endswith(name)


def test_a_region_with_an_account_of_its_own_has_that() -> None:
    image = TrainingImage.from_training_compiler(stack("eu-south-1"), "Image", "pytorch", "1.13.1")
    assert image.image_uri.startswith("692866216735.dkr.ecr.eu-south-1.")


def test_a_region_without_the_container_is_refused() -> None:
    message = message_of(
        lambda: TrainingImage.from_training_compiler(stack("cn-north-1"), "Image", "pytorch", "1.13.1")
    )
    assert message.startswith("region must be one that has pytorch-trcomp-training:1.13.1-gpu-py39")
    assert message.endswith("got 'cn-north-1'")


@pytest.mark.parametrize(
    ("framework", "version", "message"),
    [
        (
            "pytorch",
            "2.0.0",
            "version must be one of pytorch that the Training Compiler has a container for ... got '2.0.0'",
        ),
        (
            "tensorflow",
            "2.12",
            "version must be one of tensorflow that the Training Compiler has a container for ... got '2.12'",
        ),
        (
            "mxnet",
            "1.9",
            "framework must be one of 'pytorch', 'huggingface-pytorch', 'huggingface-tensorflow', 'tensorflow' "
            "... got 'mxnet'",
        ),
    ],
)
def test_a_version_without_a_container_is_refused(framework: Any, version: str, message: str) -> None:
    refusal = message_of(lambda: TrainingImage.from_training_compiler(stack(), "Image", framework, version))
    assert reads(refusal, message)


def test_neurons_container_is_the_last_public_one_for_xla() -> None:
    image = TrainingImage.from_neuron(stack(), "Image")
    assert image.base == "pytorch-training-neuronx:2.9.0-neuronx-py312-sdk2.29.1-ubuntu24.04"
