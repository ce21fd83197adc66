"""What runs in which of AWS's containers, on which machines: 22 combinations that run, and 42 that fail on AWS.

Sources: the Dockerfiles and release notes of aws/deep-learning-containers, AWS's example notebooks, and the developer guide.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from stacks import IMAGE_URI, UserStack, message_of

from cdk_sagemaker_training import (
    CompiledJob,
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    ModelParallelJob,
    Mpi,
    MultiWorkerMirrored,
    NativeParallelism,
    ParameterServer,
    PyTorchDdp,
    PyTorchXla,
    SmDdp,
    SmpV1,
    SmpV2,
    TensorFlowXla,
    TorchCompile,
    Torchrun,
    TorchXla,
    TrainingCode,
    TrainingCompiler,
    TrainingImage,
    TrainingNetwork,
    unlisted,
)

CODE = Path(__file__).parents[2] / "training_code"
PT_213 = "pytorch:2.13-cu133-amzn2023-sagemaker"
PT_213_CPU = "pytorch:2.13-cpu-amzn2023-sagemaker"
PT_26 = "pytorch-training:2.6.0-gpu-py312"
TF_219 = "tensorflow-training:2.19.0-gpu-py312-cu125-ubuntu22.04-sagemaker"
TF_212 = "tensorflow-training:2.12.0-gpu-py310"
NEURONX = "pytorch-training-neuronx:2.9.0-neuronx-py312-sdk2.29.1-ubuntu24.04"
HF_29 = "huggingface-pytorch-training:2.9.0-transformers5.3.0-gpu-py312-cu130-ubuntu22.04"
HF_110 = "huggingface-pytorch-training:1.10.2-transformers4.17.0-gpu-py38-cu113-ubuntu20.04"
HF_TF = "huggingface-tensorflow-training:2.6.3-transformers4.17.0-gpu-py38-cu112-ubuntu20.04"
SMP_25 = "smdistributed-modelparallel:2.5.1-gpu-py311-cu124"
TRCOMP = "huggingface-pytorch-trcomp-training:1.11.0-transformers4.21.1-gpu-py38-cu113-ubuntu20.04"
A10G, V100, T4, A100, H100 = "ml.g5.12xlarge", "ml.p3.16xlarge", "ml.g4dn.12xlarge", "ml.p4d.24xlarge", "ml.p5.48xlarge"


def parallel(launcher: Any = None, type: str = A10G, count: int = 1) -> DataParallelJob:
    return DataParallelJob(InstanceGroup(type, count), launcher=launcher)


def groups(launcher: Any = None, type: str = A10G) -> HeterogeneousJob:
    return HeterogeneousJob({"data_group": InstanceGroup("ml.c5.xlarge")}, parallel(launcher, type), "dnn_group")


def compiled(compiler: Any, launcher: Any = None, type: str = "ml.g5.xlarge") -> CompiledJob:
    return CompiledJob(InstanceGroup(type), launcher=launcher, compiler=compiler)


def model(parallelism: Any, type: str = A100) -> ModelParallelJob:
    return ModelParallelJob(InstanceGroup(type), parallelism)


V1, V2 = SmpV1({"pipeline_parallel_degree": 2}), SmpV2(hybrid_shard_degree=8)

RIGHT: list[tuple[str, Any]] = [
    (PT_213, parallel(Torchrun())),
    (PT_213, parallel(Torchrun(), H100)),
    (PT_213, parallel(Torchrun(), T4)),
    (PT_213, parallel(Mpi())),  # Open MPI and an SSH server are in it
    (PT_213, compiled(TorchCompile())),
    (PT_213, groups(Torchrun())),
    (PT_213, model(NativeParallelism(data_shard=8, precision="bf16"))),
    (PT_26, parallel(Torchrun(), V100)),
    ("pytorch-training:2.7.1-gpu-py312-cu126", parallel(Torchrun(), V100)),
    ("pytorch-training:2.8.0-gpu-py312", parallel(Torchrun(), V100)),
    ("pytorch-training:2.7.1-gpu-py312", compiled(TorchXla(), Torchrun())),
    ("pytorch-training:2.2.0-gpu-py310", parallel(SmDdp(), A100, 2)),
    ("pytorch-training:2.5.1-gpu-py311", parallel(SmDdp(launch_by="torchrun"), A100, 2)),
    ("pytorch-training:2.0.0-gpu-py310", model(V1)),
    ("pytorch-training:1.10.2-gpu-py38", groups(Mpi())),
    (SMP_25, model(V2, H100)),
    (HF_29, parallel(Torchrun())),
    (HF_110, parallel(PyTorchDdp(), V100)),
    (TF_219, parallel(MultiWorkerMirrored())),
    ("tensorflow-training:2.9.1-gpu-py39-cu112-ubuntu20.04-sagemaker", groups(Mpi(), A100)),
    (TF_219, compiled(TensorFlowXla())),
    ("huggingface-pytorch-trcomp-training:1.11-transformers4.21-gpu-py38", compiled(TrainingCompiler(), PyTorchXla())),
]

# The image, the job, and what the message begins with and contains.
WRONG: list[tuple[str, Any, str]] = [
    (PT_213, model(V1), "have smp-v1 for SmpV1(...)"),
    (PT_213, model(V2), "have smp-v2 for SmpV2(...)"),
    (PT_213, parallel(SmDdp(), A100), "have smddp for SmDdp()"),
    (PT_213, parallel(SmDdp(launch_by="torchrun"), A100), "have smddp for SmDdp()"),
    (PT_213, parallel(MultiWorkerMirrored()), "have tensorflow 2.9 or later for MultiWorkerMirrored()"),
    (PT_213, parallel(ParameterServer()), "have tensorflow for ParameterServer()"),
    (PT_213, compiled(TensorFlowXla()), "have tensorflow for TensorFlowXla()"),
    (PT_213, parallel(Torchrun(), V100), "to know the NVIDIA V100 of ml.p3.16xlarge"),
    (PT_213, parallel(None, "ml.p3.2xlarge"), "be built for CUDA 12.9 or older"),
    (PT_213, compiled(TorchCompile(), type="ml.p3.2xlarge"), "be built for CUDA 12.9 or older"),
    (PT_213, parallel(Torchrun(), "ml.p3dn.24xlarge"), "to know the NVIDIA V100 of ml.p3dn.24xlarge"),
    ("pytorch-training:2.9.0-gpu-py312", parallel(Torchrun(), V100), "be built for CUDA 12.9 or older"),
    ("pytorch-training:2.10-gpu-py313", parallel(Torchrun(), V100), "be built for CUDA 12.9 or older"),
    (HF_29, parallel(Torchrun(), V100), "be built for CUDA 12.9 or older"),
    (
        "pytorch-training:2.7.1-gpu-py312",
        parallel(Torchrun(), V100),
        "have a build of its framework for compute capability 7.0",
    ),
    (
        "pytorch-training:2.7.1-gpu-py312-cu128",
        parallel(Torchrun(), V100),
        "for compute capability 7.0, that of the GPUs of ml.p3.16",
    ),
    ("pytorch-training:2.1.0-gpu-py310", parallel(None, "ml.p2.xlarge"), "be built for CUDA 11.8 or older"),
    (PT_26, parallel(SmDdp(), A100), "have smddp for SmDdp()"),
    (PT_26, model(V1), "have smp-v1 for SmpV1(...)"),
    ("pytorch-training:2.1.0-gpu-py310", model(V1), "have smp-v1 for SmpV1(...)"),
    ("pytorch-training:2.5.1-gpu-py311", model(V2), "have smp-v2 for SmpV2(...)"),
    ("pytorch-training:2.0.1-gpu-py310-cu121-ubuntu20.04-sagemaker", parallel(SmDdp(), A100), "have smddp"),
    ("pytorch-training:1.6.0-gpu-py36-cu101-ubuntu16.04", parallel(SmDdp(), A100), "have smddp for SmDdp()"),
    (SMP_25, model(V1), "have smp-v1 for SmpV1(...)"),
    (PT_213_CPU, parallel(SmDdp(), A100), "have smddp for SmDdp()"),
    ("pytorch-training:1.12.1-gpu-py38", parallel(Torchrun()), "have pytorch 1.13 or later"),
    (HF_110, parallel(Torchrun()), "have pytorch 1.13 or later or neuron for Torchrun()"),
    ("pytorch-training:1.13.1-gpu-py39", compiled(TorchCompile()), "have pytorch 2.0 or later for TorchCompile()"),
    ("pytorch-training:1.9.1-gpu-py38", groups(Mpi()), "have pytorch 1.10 or later or tensorflow 2.6 or later"),
    ("pytorch-training:1.9-cpu-py38", groups(), "for instance groups"),
    ("pytorch-training:1.9.0-gpu-py38", parallel(PyTorchDdp()), "have pytorch 1.10 or later for PyTorchDdp()"),
    (TF_219, parallel(Torchrun()), "have pytorch 1.13 or later or neuron for Torchrun()"),
    (TF_219, compiled(TorchCompile()), "have pytorch 2.0 or later for TorchCompile()"),
    (TF_219, compiled(TorchXla(), Torchrun()), "have pytorch"),
    (TF_219, model(NativeParallelism(data_shard=8)), "have pytorch 1.13 or later or neuron for Torchrun()"),
    (TF_212, parallel(SmDdp(), A100), "have smddp for SmDdp()"),
    ("tensorflow-training:2.7.1-gpu-py38", model(V1), "have smp-v1 for SmpV1(...)"),
    ("tensorflow-training:2.8.0-gpu-py39", parallel(MultiWorkerMirrored()), "have tensorflow 2.9 or later"),
    (HF_TF, parallel(MultiWorkerMirrored()), "have tensorflow 2.9 or later for MultiWorkerMirrored()"),
    ("tensorflow-training:2.5.1-gpu-py37", groups(Mpi()), "tensorflow 2.6 or later for instance groups"),
    (NEURONX, parallel(MultiWorkerMirrored()), "have tensorflow 2.9 or later for MultiWorkerMirrored()"),
    (HF_110, compiled(TensorFlowXla()), "have tensorflow for TensorFlowXla()"),
]


def image(stack: UserStack, container: str) -> TrainingImage:
    repository, _, tag = container.partition(":")
    account = "658645717510" if repository.startswith("smd") else None
    return TrainingImage.from_dlc(stack, f"Dlc{container}", repository, tag, account_id=account)


def workflow(container: str, job: Any) -> UserStack:
    stack = UserStack()
    stack.workflow(image=image(stack, container), job=job, container_entrypoint=["train"])
    return stack


def test_there_are_22_combinations_that_run_and_42_that_do_not() -> None:
    assert (len(RIGHT), len(WRONG)) == (22, 42)


@pytest.mark.parametrize(("container", "job"), RIGHT, ids=[f"{number}" for number in range(len(RIGHT))])
def test_what_runs_is_accepted(container: str, job: Any) -> None:
    assert "gpu-newer-than-cuda" not in workflow(container, job).warned()


@pytest.mark.parametrize(("container", "job", "rule"), WRONG, ids=[f"{number}" for number in range(len(WRONG))])
def test_what_fails_on_aws_is_refused_with_what_the_image_has(container: str, job: Any, rule: str) -> None:
    message = message_of(lambda: workflow(container, job))
    assert message.startswith("image must ")
    assert rule in message
    assert container in message
    assert "provides=" in message


def test_what_an_unlisted_tag_has_is_not_known() -> None:
    stack = UserStack()
    taken = TrainingImage.from_dlc(stack, "Dlc", "pytorch", unlisted("2.13-cu133-amzn2023-sagemaker"))
    stack.task(image=taken, job=model(V1))
    assert "unlisted" in stack.warned()


# The repository, a tag that AWS never had in it, and one that the message suggests.
NEVER = [
    ("pytorch-training", "2.31-gpu-py312", "2.10.0-gpu-py313"),
    ("pytorch-training", "2.6.0-gpu-py310", "2.6.0-gpu-py312"),
    ("pytorch-training", "2.13-gpu-py312", "2.10.0-gpu-py313"),
    ("pytorch", "2.13-cu126-amzn2023-sagemaker", "2.13.0-cu133-amzn2023-sagemaker"),
    ("tensorflow-training", "2.15.0-gpu-py310", "2.14.1-gpu-py310"),
    (
        "huggingface-pytorch-training",
        "1.4-transformers9-gpu-py312",
        "2.9.0-transformers5.3.0-gpu-py312-cu130-ubuntu22.04",
    ),
]


@pytest.mark.parametrize(("repository", "tag", "instead"), NEVER)
def test_a_tag_that_aws_never_had_is_refused_with_one_that_it_had(repository: str, tag: str, instead: str) -> None:
    message = message_of(lambda: TrainingImage.from_dlc(UserStack(), "Dlc", repository, tag))
    assert message.startswith(
        f"tag must be of a version, CUDA and Python that AWS has in {repository}, like {instead!r}"
    )
    assert message.endswith(f"got {tag!r}")


@pytest.mark.parametrize("tag", ["2.14-cu133-amzn2023-sagemaker", "latest", "sha256:" + "0" * 64])
def test_a_newer_tag_and_one_that_says_nothing_are_accepted_with_nothing_known(tag: str) -> None:
    taken = TrainingImage.from_dlc(UserStack(), "Dlc", "pytorch", tag)
    assert taken.contents() is None


def test_a_tag_that_aws_never_had_is_refused_in_a_uri_and_in_a_dockerfile(tmp_path: Path) -> None:
    uri = "public.ecr.aws/deep-learning-containers/pytorch:2.31-cu133-amzn2023-sagemaker"
    (tmp_path / "Dockerfile").write_text(f"FROM {uri}\n")
    in_uri = message_of(lambda: TrainingImage.from_uri(UserStack(), "Uri", uri))
    assert in_uri.startswith("image_uri must be of a version, CUDA and Python that AWS has in pytorch")
    in_file = message_of(lambda: TrainingImage.from_asset(UserStack(), "Built", str(tmp_path)))
    assert in_file.startswith("each FROM of file 'Dockerfile' must be of a version, CUDA and Python that AWS has in")


def built(stack: UserStack, folder: Path, base: str, **props: Any) -> TrainingImage:
    (folder / "Dockerfile").write_text(f'FROM {base}\nENTRYPOINT ["run-training"]\n')
    return TrainingImage.from_asset(stack, "Built", str(folder), **props)


@pytest.mark.parametrize(
    ("base", "job", "rule"),
    [
        (f"public.ecr.aws/deep-learning-containers/{PT_213}", model(V1), "have smp-v1"),
        ("pytorch/pytorch:2.9.1-cuda13.0-cudnn9-runtime", parallel(None, V100), "be built for CUDA 12.9 or older"),
        ("pytorch/pytorch:2.9.1-cuda13.0-cudnn9-runtime", parallel(MultiWorkerMirrored()), "have tensorflow 2.9"),
        ("pytorch/pytorch:2.11.0-cuda12.8-cudnn9-runtime", parallel(None, V100), "for compute capability 7.0"),
        ("nvidia/cuda:13.0.1-devel-ubuntu24.04", parallel(None, V100), "be built for CUDA 12.9 or older"),
        ("tensorflow/tensorflow:2.19.0-gpu", parallel(Torchrun()), "have pytorch 1.13"),
    ],
)
def test_an_image_that_is_built_has_what_its_base_has(base: str, job: Any, rule: str, tmp_path: Path) -> None:
    stack = UserStack()
    taken = built(stack, tmp_path, base)
    assert rule in message_of(lambda: stack.task(image=taken, job=job))


PACKAGED = sorted(
    str(file.relative_to(CODE)) for file in CODE.rglob("Dockerfile") if "pytorch:2.13" in file.read_text()
)


@pytest.mark.parametrize("file", PACKAGED)
def test_a_packaged_dockerfile_has_a_base_for_volta_which_its_error_names(file: str) -> None:
    def workflow_of(**build_args: str) -> None:
        stack = UserStack()
        image = TrainingImage.from_asset(stack, "Built", str(CODE), file=file, build_args=build_args)
        stack.task(image=image, job=parallel(Torchrun(), V100))

    assert len(PACKAGED) == 7
    assert "build_args={'GPU': 'volta'} of a packaged Dockerfile" in message_of(workflow_of)
    workflow_of(GPU="volta")


@pytest.mark.parametrize(
    ("base", "job"),
    [
        ("python:3.11", model(V2)),
        ("nvidia/cuda:12.6.3-devel-ubuntu24.04", parallel(SmDdp(), A100)),
        ("pytorch/pytorch:2.9.1-cuda12.6-cudnn9-runtime", parallel(Mpi(), V100)),
        ("pytorch/pytorch:2.10.0-cuda12.8-cudnn9-runtime", parallel(Mpi(), V100)),
        ("pytorch/pytorch:2.11.0-cuda12.6-cudnn9-runtime", parallel(Mpi(), V100)),
    ],
)
def test_what_is_not_known_of_an_image_is_not_checked(base: str, job: Any, tmp_path: Path) -> None:
    stack = UserStack()
    stack.task(image=built(stack, tmp_path, base), job=job)
    assert stack.warned() == []


def test_an_image_provides_more_than_its_base(tmp_path: Path) -> None:
    stack = UserStack()
    base = f"public.ecr.aws/deep-learning-containers/{PT_213}"
    stack.task(image=built(stack, tmp_path, base, provides={"smddp": "2.8"}), job=parallel(SmDdp(), A100))
    assert stack.warned() == []


def test_an_image_of_ones_own_provides_what_it_says_and_no_more() -> None:
    stack = UserStack()
    taken = TrainingImage.from_uri(stack, "Own", IMAGE_URI, provides={"pytorch": "2.9", "cuda": "13.0"})
    stack.task(image=taken, job=parallel(Torchrun()))
    message = message_of(lambda: stack.task("Other", image=taken, job=parallel(Mpi())))
    assert "have open-mpi for Mpi()" in message
    assert message.endswith("got an image with pytorch 2.9, cuda 13.0")


@pytest.mark.parametrize(
    ("provides", "text"),
    [
        ({"pytorhc": "2.6"}, "provides must have names of pytorch, tensorflow, cuda, "),
        ({"pytorch": ">=2.6"}, "provides['pytorch'] must be a version, or empty where it does not matter"),
    ],
)
def test_what_an_image_cannot_provide_is_refused(provides: dict[str, str], text: str) -> None:
    message = message_of(lambda: TrainingImage.from_uri(UserStack(), "Own", IMAGE_URI, provides=provides))
    assert message.startswith(text)


@pytest.mark.parametrize(
    ("container", "job", "warning"),
    [
        (PT_213, parallel(Mpi()), "mpi-without-horovod"),
        ("pytorch-training:2.5.1-gpu-py311", parallel(Torchrun(), "ml.p6-b200.48xlarge"), "gpu-newer-than-cuda"),
        (PT_26, model(NativeParallelism(data_shard=8, precision="bf16"), V100), "bf16-emulated"),
        (PT_26, model(NativeParallelism(data_shard=4, precision="bf16"), T4), "bf16-emulated"),
        (
            "pytorch-training:2.0.0-gpu-py310",
            model(SmpV1({"pipeline_parallel_degree": 2, "bf16": True}), V100),
            "bf16-emulated",
        ),
    ],
)
def test_what_works_otherwise_than_meant_is_warned_of(container: str, job: Any, warning: str) -> None:
    assert warning in workflow(container, job).warned()


@pytest.mark.parametrize(
    ("container", "job"),
    [
        (PT_26, model(NativeParallelism(data_shard=8, precision="fp16"), V100)),
        (TF_212, parallel(Mpi())),
        (PT_213, parallel(Torchrun(), "ml.p6-b200.48xlarge")),
    ],
)
def test_what_works_as_meant_is_not_warned_of(container: str, job: Any) -> None:
    assert not {"mpi-without-horovod", "gpu-newer-than-cuda", "bf16-emulated"} & set(workflow(container, job).warned())


@pytest.mark.parametrize("type", ["ml.p3.2xlarge", "ml.p3.16xlarge"])
def test_machines_that_current_containers_do_not_know_are_not_recommended(type: str) -> None:
    [text] = workflow(PT_26, parallel(Torchrun(), type, 2)).warnings("no-efa")
    assert text.partition(" [ack")[0].endswith("use a type with EFA, like ml.p4d.24xlarge")


@pytest.mark.parametrize(
    ("container", "job", "warned"),
    [
        (PT_26, parallel(None, A100), True),
        (PT_26, groups(None, A100), True),
        (PT_26, parallel(Torchrun(), A100), False),
        (PT_26, parallel(None, "ml.g5.xlarge"), False),
        (TF_219, parallel(None, A100), False),  # MirroredStrategy replicates in one process
    ],
)
def test_gpus_that_no_process_uses_are_warned_of(container: str, job: Any, warned: bool, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    stack = UserStack()
    stack.workflow(image=image(stack, container), job=job, code=TrainingCode(str(tmp_path)))
    texts = stack.warnings("no-launcher")
    assert [text.partition(" of its ")[0] for text in texts] == (
        ["without a launcher one process runs on each ml.p4d.24xlarge, and 7"] if warned else []
    )


def test_a_list_of_subnets_that_is_a_token_is_refused_with_the_way_to_write_it() -> None:
    stack = UserStack()
    ids = cdk.CfnParameter(stack, "Subnets", type="List<AWS::EC2::Subnet::Id>").value_as_list

    def network(id: str, subnets: list[str]) -> TrainingNetwork:
        vpc = ec2.Vpc.from_vpc_attributes(
            stack, f"{id}Vpc", vpc_id="vpc-1", availability_zones=["us-east-1a"], private_subnet_ids=subnets
        )
        return TrainingNetwork(stack, id, vpc=vpc)

    assert message_of(lambda: network("Whole", ids)).startswith("vpc must have subnets whose number is known at synth")
    selected = network("Selected", [cdk.Fn.select(0, ids)])
    stack.task(network=selected)
    assert stack.resolve(selected.vpc_config()["Subnets"]) == [{"Fn::Select": [0, {"Ref": "Subnets"}]}]
