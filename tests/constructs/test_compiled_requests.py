"""Requests for compiled jobs beside those of AWS's SDK, as recorded in tests/sdk_requests."""

from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from rendered import create_requests
from sdk_recordings import canonical, cases_of, recorded
from stacks import UserStack

from cdk_sagemaker_training import (
    CompiledJob,
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    Mpi,
    MultiWorkerMirrored,
    Neuron,
    PyTorchXla,
    S3Channel,
    S3Prefix,
    SmDdp,
    TensorFlowXla,
    Torchrun,
    TorchXla,
    TrainingCompiler,
    TrainingImage,
    training_code_path,
    unlisted,
)


class Stack(UserStack):
    """A stack with a workflow for each case, whose names are those of the recordings."""

    def __init__(self, region: str = "us-east-1") -> None:
        super().__init__(region)
        self.images: dict[str, TrainingImage] = {}
        self.role = iam.Role.from_role_arn(self, "Role", "arn:aws:iam::123456789012:role/Training")

    def aws(self, framework: Any, version: str) -> TrainingImage:
        name = f"{framework}{version}"
        if name not in self.images:
            self.images[name] = TrainingImage.from_training_compiler(self, name, framework, version)
        return self.images[name]

    def own(self, base: str | None = None) -> TrainingImage:
        repository = ecr.Repository.from_repository_name(self, f"{base}Repository", "training")
        return TrainingImage.from_ecr_repository(self, f"{base}Image", repository, "xla", base=base)

    def train(self, name: str, job: Any, image: TrainingImage) -> None:
        self.workflow(
            name,
            job=job,
            image=image,
            channels={"training": S3Channel(self.bucket, "training/")},
            hyperparameters={"batch_size": 64, "learning_rate": 0.0001, "model": "gpt2"},
            role=self.role,
        )


def smtc(instance_type: str = "ml.p3.2xlarge", count: int = 1, launcher: Any = None, **props: Any) -> CompiledJob:
    return CompiledJob(InstanceGroup(instance_type, count), compiler=TrainingCompiler(**props), launcher=launcher)


def neuron(stack: Stack, launcher: Any = Torchrun()) -> CompiledJob:  # noqa: B008
    cache = S3Prefix(stack.bucket, "neuron-cache/")
    return CompiledJob(InstanceGroup("ml.trn1.32xlarge", 2), compiler=Neuron(cache=cache), launcher=launcher)


XLA_ON_GPUS = CompiledJob(InstanceGroup("ml.p4d.24xlarge", 2), compiler=TorchXla(), launcher=Torchrun())
Jobs = dict[str, Callable[[Stack], tuple[Any, TrainingImage]]]

SAME: Jobs = {
    "smtc_pytorch_1.13.1": lambda stack: (smtc(), stack.aws("pytorch", "1.13.1")),
    "smtc_pytorch_1.12.0": lambda stack: (smtc(), stack.aws("pytorch", "1.12.0")),
    "smtc_pytorch_debug": lambda stack: (smtc(debug=True), stack.aws("pytorch", "1.13.1")),
    "smtc_pytorch_profiler": lambda stack: (smtc(profiler=True), stack.aws("pytorch", "1.13.1")),
    "smtc_pytorchxla": lambda stack: (
        smtc("ml.p4d.24xlarge", 2, PyTorchXla()),
        stack.aws("pytorch", "1.13.1"),
    ),
    "smtc_hugging_face_pytorch_1.11.0": lambda stack: (smtc(), stack.aws("huggingface-pytorch", "1.11.0")),
    "smtc_hugging_face_pytorch_1.11.0_xla": lambda stack: (
        smtc("ml.p3dn.24xlarge", launcher=PyTorchXla()),
        stack.aws("huggingface-pytorch", "1.11.0"),
    ),
    "smtc_hugging_face_pytorch_1.10.2": lambda stack: (smtc(), stack.aws("huggingface-pytorch", "1.10.2")),
    "smtc_hugging_face_pytorch_1.9.0": lambda stack: (smtc(), stack.aws("huggingface-pytorch", "1.9.0")),
    "smtc_hugging_face_tensorflow_2.6.3": lambda stack: (smtc(), stack.aws("huggingface-tensorflow", "2.6.3")),
    "smtc_hugging_face_tensorflow_2.5.1": lambda stack: (smtc(), stack.aws("huggingface-tensorflow", "2.5.1")),
    "smtc_tensorflow_2.11": lambda stack: (smtc(), stack.aws("tensorflow", "2.11")),
    "smtc_tensorflow_2.10": lambda stack: (smtc(), stack.aws("tensorflow", "2.10")),
    "smtc_tensorflow_2.9": lambda stack: (smtc(), stack.aws("tensorflow", "2.9")),
    "smtc_tensorflow_own_image": lambda stack: (smtc(), stack.own("tensorflow-training:2.11.0-gpu-py39")),
    "trainium": lambda stack: (neuron(stack), TrainingImage.from_neuron(stack, "Neuron")),
    "xla": lambda stack: (
        XLA_ON_GPUS,
        stack.own("torch_xla"),
    ),
    "xla_tensorflow": lambda stack: (
        CompiledJob(InstanceGroup("ml.p3.2xlarge"), compiler=TensorFlowXla()),
        stack.own("tensorflow"),
    ),
}
# Turning the profiler off is the Training Compiler's advice, so only its jobs do; the SDK was told to in all.
WITHOUT_PROFILER_CONFIG = ("trainium", "trainium_compile_ahead", "xla", "xla_tensorflow")

REFUSED: Jobs = {
    "smtc_refused_family_p5": lambda stack: (smtc("ml.p5.48xlarge"), stack.aws("pytorch", "1.13.1")),
    "smtc_refused_family_p4de": lambda stack: (smtc("ml.p4de.24xlarge"), stack.aws("pytorch", "1.13.1")),
    "smtc_refused_family_g6": lambda stack: (smtc("ml.g6.xlarge"), stack.aws("pytorch", "1.13.1")),
    "smtc_refused_family_c5": lambda stack: (smtc("ml.c5.xlarge"), stack.aws("pytorch", "1.13.1")),
    "smtc_refused_groups": lambda stack: (
        HeterogeneousJob(groups={"data_group": InstanceGroup("ml.c5.xlarge")}, train=smtc(), train_group="dnn_group"),
        stack.aws("pytorch", "1.13.1"),
    ),
    "smtc_refused_smddp": lambda stack: (
        smtc("ml.p4d.24xlarge", launcher=SmDdp()),
        stack.aws("pytorch", "1.13.1"),
    ),
    "smtc_refused_mpi": lambda stack: (
        smtc("ml.p4d.24xlarge", launcher=Mpi()),
        stack.aws("pytorch", "1.13.1"),
    ),
    "smtc_refused_torch_distributed": lambda stack: (
        smtc("ml.p4d.24xlarge", launcher=Torchrun()),
        stack.aws("pytorch", "1.13.1"),
    ),
    "smtc_refused_image": lambda stack: (smtc(), stack.own()),
    "smtc_refused_image_hugging_face": lambda stack: (smtc(launcher=PyTorchXla()), stack.own()),
    "smtc_refused_pytorch_1.11": lambda stack: (smtc(), stack.aws("pytorch", "1.11.0")),
    "smtc_refused_pytorch_2.0": lambda stack: (smtc(), stack.aws("pytorch", "2.0.0")),
    "smtc_refused_tensorflow_2.8": lambda stack: (smtc(), stack.own("tensorflow-training:2.8.0-gpu-py39")),
    "smtc_refused_tensorflow_mirrored": lambda stack: (
        smtc(launcher=MultiWorkerMirrored()),
        stack.aws("tensorflow", "2.11"),
    ),
    "smtc_refused_hugging_face_old_xla": lambda stack: (
        smtc(launcher=PyTorchXla()),
        stack.aws("huggingface-pytorch", "1.10.2"),
    ),
    "pytorchxla_refused_without_compiler": lambda stack: (
        DataParallelJob(InstanceGroup("ml.p4d.24xlarge"), launcher=PyTorchXla()),
        stack.aws("pytorch", "1.13.1"),
    ),
    "trainium_refused_mpi": lambda stack: (
        neuron(stack, launcher=Mpi()),
        TrainingImage.from_neuron(stack, "Neuron"),
    ),
    "smtc_refused_region": lambda _: (smtc(), Stack("cn-north-1").aws("pytorch", "1.13.1")),
}
# The prop that our refusal names, by how a case's name ends.
PROPS = {
    "family_p5": "instance_type",
    "family_p4de": "instance_type",
    "family_g6": "instance_type",
    "family_c5": "instance_type",
    "groups": "train",
    "smddp": "launcher",
    "smtc_refused_mpi": "image",
    "torch_distributed": "launcher",
    "image": "image",
    "image_hugging_face": "image",
    "pytorch_1.11": "version",
    "pytorch_2.0": "version",
    "tensorflow_2.8": "image",
    "tensorflow_mirrored": "launcher",
    "old_xla": "image",
    "without_compiler": "launcher",
    "trainium_refused_mpi": "launcher",
    "region": "region",
}
# The SDK's bugs, each with a test of its own below.
BUGS = {
    "smtc_pytorch_1.13",
    "smtc_refused_tensorflow_2.9.1",
    "smtc_tensorflow_2.12",
    "smtc_tensorflow_xla",
}


@pytest.fixture(scope="module")
def ours() -> dict[str, Any]:
    """The requests of all jobs that the SDK makes too, by the recording's name."""
    stack = Stack()
    ids = {name: f"Job{number}" for number, name in enumerate(SAME)}
    for name, make in SAME.items():
        stack.train(ids[name], *make(stack))
    requests = create_requests(stack.template())
    found = {
        name: {key.split(".")[1]: value for key, value in requests.items() if key.startswith(f"{logical}StateMachine")}
        for name, logical in ids.items()
    }
    return {
        **{name: states["Create"] for name, states in found.items()},
        "trainium_compile_ahead": found["trainium"]["CompileCreate"],
    }


def asked_by_sdk(name: str) -> dict[str, Any]:
    request = canonical(recorded(name)["request"])
    # The SDK asks for time series of metrics with AWS's images; here metrics are what the user asks for.
    request["AlgorithmSpecification"].pop("EnableSageMakerMetricsTimeSeries", None)
    # TensorFlow's old place for models, which the toolkit has a variable for.
    request["HyperParameters"].pop("model_dir", None)
    # The toolkit's torchrun reads the type from resourceconfig.json.
    request["HyperParameters"].pop("sagemaker_instance_type", None)
    return request


@pytest.mark.parametrize("name", [*SAME, "trainium_compile_ahead"])
def test_a_request_is_that_of_the_sdk(name: str, ours: dict[str, Any]) -> None:
    theirs = asked_by_sdk(name)
    if name in WITHOUT_PROFILER_CONFIG:
        assert theirs.pop("ProfilerConfig") == {"DisableProfiler": True}
    assert canonical(ours[name]) == theirs


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_sdk_refuses_is_refused(name: str) -> None:
    assert recorded(name)["refused"].startswith("ValueError: ")
    stack = Stack()
    [prop] = [prop for ending, prop in PROPS.items() if name.endswith(ending)]
    with pytest.raises(ValueError, match=f"^{prop} must be "):
        stack.train("Training", *REFUSED[name](stack))


def test_each_recording_is_compared() -> None:
    assert cases_of("cases_compilers") == {*SAME, *REFUSED, *BUGS, "trainium_compile_ahead"}


def test_a_short_version_is_the_whole_one_of_which_the_sdk_keeps_a_tag_that_the_guide_does_not_list() -> None:
    uri = recorded("smtc_pytorch_1.13")["request"]["AlgorithmSpecification"]["TrainingImage"]
    assert uri.endswith("pytorch-trcomp-training:1.13-gpu-py39")
    assert Stack().aws("pytorch", "1.13").base == "pytorch-trcomp-training:1.13.1-gpu-py39"


def test_tensorflow_2_9_1_is_taken_which_the_guide_lists_and_the_sdk_refuses() -> None:
    assert "Unsupported tensorflow version: 2.9.1" in recorded("smtc_refused_tensorflow_2.9.1")["refused"]
    stack = Stack()
    stack.train("Training", smtc(), stack.own("tensorflow-training:2.9.1-gpu-py39-cu112-ubuntu20.04-sagemaker"))
    assert stack.request()["HyperParameters"]["sagemaker_training_compiler_enabled"] == "true"


def test_tensorflow_2_12_is_refused_which_the_sdk_lets_pass() -> None:
    assert "request" in recorded("smtc_tensorflow_2.12")
    stack = Stack()
    with pytest.raises(ValueError, match="image must be a container with"):
        stack.train("Training", smtc(), stack.own("tensorflow-training:2.12.0-gpu-py310"))


@pytest.mark.parametrize(
    "base",
    [
        "pytorch-training:2.8.0-gpu-py312",
        "pytorch:2.13-cu133-amzn2023-sagemaker",
        "pytorch-training:2.6.0-cpu-py312",
    ],
)
def test_xla_on_gpus_is_refused_with_a_base_image_without_cuda_for_it(base: str) -> None:
    stack = Stack()
    with pytest.raises(ValueError, match=f"image must have PyTorch/XLA with CUDA, so 2.7 or older, .*, got '{base}'"):
        stack.train("Training", XLA_ON_GPUS, stack.own(base))


def test_xla_on_gpus_is_refused_with_requirements_without_cuda_for_it() -> None:
    stack = Stack()
    image = TrainingImage.from_asset(stack, "Xla", directory=training_code_path(), file="compiled/xla/Dockerfile")
    with pytest.raises(ValueError, match=r"got torch_xla==2\.9\.0 in compiled/xla/requirements\.txt$"):
        stack.train("Training", XLA_ON_GPUS, image)


@pytest.mark.parametrize(
    "base", ["pytorch-training:2.7.1-gpu-py312", "torch_xla", unlisted("pytorch-training:2.8.0-gpu")]
)
def test_xla_on_gpus_is_taken_where_nothing_shows_that_cuda_is_absent(base: str) -> None:
    stack = Stack()
    stack.train("Training", XLA_ON_GPUS, stack.own(base))
    assert stack.request()["Environment"]["PJRT_DEVICE"] == "CUDA"


def test_pytorchs_launcher_is_refused_with_tensorflow_which_the_sdk_lets_pass() -> None:
    hyperparameters = recorded("smtc_tensorflow_xla")["request"]["HyperParameters"]
    assert hyperparameters["sagemaker_pytorch_xla_multi_worker_enabled"] == "true"
    stack = Stack()
    with pytest.raises(ValueError, match="image must be a container with"):
        stack.train("Training", smtc(launcher=PyTorchXla()), stack.aws("tensorflow", "2.11"))


def test_an_image_of_ones_own_has_to_say_what_it_is_built_from_which_the_sdk_asks_of_nobody_with_tensorflow() -> None:
    assert "request" in recorded("smtc_tensorflow_own_image")
    stack = Stack()
    with pytest.raises(ValueError, match="image must be a container with"):
        stack.train("Training", smtc(), stack.own())
