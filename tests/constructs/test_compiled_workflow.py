from dataclasses import replace
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_s3 as s3
from aws_cdk.assertions import Annotations, Template
from rendered import definitions, lint, resolved

from cdk_sagemaker_training import (
    CompiledJob,
    DataParallelJob,
    InstanceGroup,
    Neuron,
    PyTorchXla,
    S3Prefix,
    Spot,
    Torchrun,
    TrainingCompiler,
    TrainingImage,
    TrainingTask,
    TrainingWorkflow,
)

COMPILER = TrainingCompiler()
ON_ONE_GPU = CompiledJob(InstanceGroup("ml.g5.4xlarge"), compiler=COMPILER)
ON_MANY = CompiledJob(InstanceGroup("ml.p4d.24xlarge"), compiler=COMPILER, launcher=PyTorchXla())


class Stack(cdk.Stack):
    """A stack with what a workflow needs beside its job and image."""

    def __init__(self) -> None:
        super().__init__(
            cdk.App(),
            "Stack",
            env=cdk.Environment(account="123456789012", region="us-east-1"),
            analytics_reporting=False,
        )
        self.bucket = s3.Bucket.from_bucket_name(self, "Bucket", "bucket")

    def image(self, base: str | None = None) -> TrainingImage:
        repository = ecr.Repository.from_repository_name(self, "Repository", "images")
        return TrainingImage.from_ecr_repository(self, "Image", repository, "1", base=base)

    def workflow(self, job: Any, image: TrainingImage, **props: Any) -> TrainingWorkflow:
        return TrainingWorkflow(
            self, "Training", job=job, image=image, output=S3Prefix(self.bucket, "models/"), **props
        )

    def neuron(self, **props: Any) -> TrainingWorkflow:
        cache = S3Prefix(self.bucket, "neuron-cache/")
        job = CompiledJob(
            InstanceGroup("ml.trn1.32xlarge", 2),
            compiler=Neuron(cache=cache, trial={"steps": 10}),
            launcher=Torchrun(),
        )
        return self.workflow(
            job,
            TrainingImage.from_neuron(self, "Image"),
            hyperparameters={"steps": 5_000, "batch-size": 8},
            **props,
        )

    def definition(self) -> dict[str, Any]:
        [definition] = [
            one for one in definitions(self.template()).values() if any("Create" in name for name in one["States"])
        ]
        return definition

    def template(self) -> dict[str, Any]:
        return dict(Template.from_stack(self).to_json())

    def warnings(self) -> list[str]:
        found = Annotations.from_stack(self).find_warning("*", cdk.assertions.Match.any_value())
        return [str(one.entry.data) for one in found]


def message_of(make: Any) -> str:
    with pytest.raises(ValueError) as raised:
        make()
    return str(raised.value)


@pytest.fixture(scope="module")
def neuron() -> dict[str, Any]:
    stack = Stack()
    stack.neuron(checkpoints=S3Prefix(stack.bucket, "checkpoints/"), attempts=2)
    return stack.definition()


def test_a_job_that_compiles_ahead_runs_before_the_one_that_trains(neuron: dict[str, Any]) -> None:
    states = neuron["States"]
    assert neuron["StartAt"] == "CompileFirstAttempt"
    assert states["CompileCompleted"] == {"Type": "Pass", "Next": "FirstAttempt"}
    assert states["Completed"]["End"] is True
    assert lint({"Machine": neuron}) == []


def test_every_state_of_a_job_leads_to_its_own_states(neuron: dict[str, Any]) -> None:
    states = neuron["States"]
    assert states["CompileCreate"]["Next"] == "CompileIsOver"
    assert states["CompileCreate"]["Catch"][0]["Next"] == "CompileFind"
    assert {choice["Next"] for choice in states["CompileIsOver"]["Choices"]} == {
        "CompileCompleted",
        "CompileNextAttempt",
        "CompileFailed",
        "CompileStopped",
        "CompileWaitLonger",
    }
    assert states["CompileIsOver"]["Default"] == "CompileWait"


def test_the_jobs_of_an_execution_have_names_of_their_own(neuron: dict[str, Any]) -> None:
    states = neuron["States"]
    name = states["FirstAttempt"]["Parameters"]["JobName.$"]
    assert name == "States.Format('stack-training-{}-{}', States.Hash($$.Execution.Id, 'MD5'), 1)"
    assert states["CompileFirstAttempt"]["Parameters"]["JobName.$"] == name.replace("-{}'", "-c{}'")
    assert "-c{}'" in states["CompileNextAttempt"]["Parameters"]["JobName.$"]


def test_the_job_that_compiles_ahead_differs_in_these_members(neuron: dict[str, Any]) -> None:
    ahead = neuron["States"]["CompileCreate"]["Parameters"]
    training = neuron["States"]["Create"]["Parameters"]
    assert ahead["HyperParameters"] == {**training["HyperParameters"], "steps": "10"}
    assert ahead["Environment"] == {**training["Environment"], "RUN_NEURON_PARALLEL_COMPILE": "1"}
    assert "CheckpointConfig" in training
    assert "CheckpointConfig" not in ahead
    different = {"HyperParameters", "Environment", "CheckpointConfig"}
    assert {key: value for key, value in ahead.items() if key not in different} == {
        key: value for key, value in training.items() if key not in different
    }


def test_the_time_of_an_execution_is_that_of_all_its_jobs(neuron: dict[str, Any]) -> None:
    one_job = Stack()
    one_job.workflow(ON_ONE_GPU, one_job.image("pytorch-trcomp-training:1.13.1-gpu-py39"))
    assert neuron["TimeoutSeconds"] == 4 * one_job.definition()["TimeoutSeconds"]


def test_a_job_may_use_its_compilers_cache() -> None:
    stack = Stack()
    stack.neuron()
    statements = [
        resolved(statement)
        for resource in stack.template()["Resources"].values()
        if resource["Type"] == "AWS::IAM::Policy"
        for statement in resource["Properties"]["PolicyDocument"]["Statement"]
    ]
    of_cache = [one for one in statements if one["Resource"] == "arn:aws:s3:::bucket/neuron-cache/*"]
    assert sorted(str(one["Action"]) for one in of_cache) == [
        "['s3:AbortMultipartUpload', 's3:PutObject']",
        "s3:GetObject",
    ]


def test_a_task_state_runs_one_job() -> None:
    stack = Stack()
    cache = S3Prefix(stack.bucket, "neuron-cache/")
    job = CompiledJob(InstanceGroup("ml.trn1.32xlarge"), compiler=Neuron(cache=cache), launcher=Torchrun())
    message = message_of(
        lambda: TrainingTask(
            stack,
            "Train",
            job=job,
            image=TrainingImage.from_neuron(stack, "Image"),
            output=S3Prefix(stack.bucket, "models/"),
        )
    )
    assert message.endswith("got CompiledJob with 2: use TrainingWorkflow(...).as_task(...)")


def test_a_task_state_does_not_take_what_turns_the_profiler_off() -> None:
    stack = Stack()
    image = stack.image("pytorch-trcomp-training:1.13.1-gpu-py39")
    message = message_of(
        lambda: TrainingTask(stack, "Train", job=ON_ONE_GPU, image=image, output=S3Prefix(stack.bucket, "models/"))
    )
    assert message.startswith("job must be what `sagemaker:createTrainingJob.sync` is known to take")
    assert "got ProfilerConfig: use TrainingWorkflow(...).as_task(...), or " in message


@pytest.mark.parametrize("suffixes", [["compile", "check"], ["", ""], ["1", ""], ["Compile", ""]])
def test_jobs_whose_names_could_be_one_are_refused(suffixes: list[str]) -> None:
    class Several:
        def requests(self) -> Any:
            [request] = DataParallelJob(InstanceGroup("ml.m5.xlarge")).requests()
            return [replace(request, name_suffix=suffix) for suffix in suffixes]

    stack = Stack()
    assert message_of(lambda: stack.workflow(Several(), stack.image())) == (
        "job must make requests whose name_suffix is a word, or nothing, that begins with a letter of its own, "
        f"like ['compile', ''], got {suffixes}"
    )


def test_advice_becomes_warnings_that_can_be_acknowledged() -> None:
    stack = Stack()
    job = CompiledJob(InstanceGroup("ml.p3.2xlarge", 2), compiler=TrainingCompiler(debug=True), launcher=PyTorchXla())
    stack.workflow(job, TrainingImage.from_training_compiler(stack, "Image", "pytorch", "1.13.1"))
    cdk.Validations.of(stack).acknowledge(
        cdk.Acknowledgment(
            id="annotation::cdk-sagemaker-training:training-compiler-end-of-life",
            reason="moved to torch.compile next year",
        )
    )
    ids = [text.rsplit("cdk-sagemaker-training:", 1)[1].rstrip("]") for text in stack.warnings()]
    assert sorted(ids) == ["no-efa", "scale-up-first", "training-compiler-debug"]


def test_a_cache_that_is_not_among_the_checkpoints_is_told() -> None:
    stack = Stack()
    checkpoints = S3Prefix(stack.bucket, "checkpoints/")
    spot = Spot(checkpoints, max_wait=100_000, local_path="/opt/ml/kept")
    stack.workflow(CompiledJob(InstanceGroup("ml.g5.xlarge")), stack.image(), spot=spot)
    [warning] = stack.warnings()
    assert "/opt/ml/checkpoints/compiler-cache does not lie below /opt/ml/kept" in warning
    assert "TorchCompile(cache_directory='/opt/ml/kept/compiler-cache')" in warning


def test_a_cache_among_the_checkpoints_is_not_told_of() -> None:
    stack = Stack()
    checkpoints = S3Prefix(stack.bucket, "checkpoints/")
    stack.workflow(CompiledJob(InstanceGroup("ml.g5.xlarge")), stack.image(), checkpoints=checkpoints)
    assert stack.warnings() == []


def test_a_data_parallel_job_without_a_compiler_on_one_machine_warns_of_nothing() -> None:
    stack = Stack()
    stack.workflow(DataParallelJob(InstanceGroup("ml.g5.xlarge")), stack.image())
    assert stack.warnings() == []


@pytest.mark.parametrize(
    "base",
    [
        None,
        "python:3.11",
        "pytorch-trcomp-training:1.11.0-gpu-py38",
        "pytorch-trcomp-training:2.0.0-gpu-py310",
        "huggingface-pytorch-trcomp-training:1.12.0-transformers4.21.1-gpu-py38-cu113-ubuntu20.04",
        "tensorflow-training:2.12.0-gpu-py310",
        "tensorflow-training:2.8.0-gpu-py39",
        "tensorflow-training:2.11.0-cpu-py39",
    ],
)
def test_an_image_without_a_version_that_it_supports_is_refused(base: str | None) -> None:
    stack = Stack()
    message = message_of(lambda: stack.workflow(ON_ONE_GPU, stack.image(base)))
    assert message.startswith(
        "image must be a container that the job's compiler and launcher are in, or built from one, "
        "like 'pytorch-trcomp-training:1.12[.-]*gpu*' of ["
    )
    assert message.endswith(f"got {base!r}")


@pytest.mark.parametrize(
    "base",
    [
        "tensorflow-training:2.11-gpu-py39",
        "huggingface-tensorflow-trcomp-training:2.6.3-transformers4.17.0-gpu-py38-cu112-ubuntu20.04",
        "huggingface-pytorch-trcomp-training:1.10.2-transformers4.17.0-gpu-py38-cu113-ubuntu20.04",
    ],
)
def test_its_launcher_is_in_newer_pytorch_containers_only(base: str) -> None:
    stack = Stack()
    assert message_of(lambda: stack.workflow(ON_MANY, stack.image(base))).endswith(f"got {base!r}")


@pytest.mark.parametrize(
    "base",
    [
        "pytorch-trcomp-training:1.12-gpu-py38",
        "pytorch-trcomp-training:1.13.1-gpu-py39-cu117-ubuntu20.04-sagemaker",
        "huggingface-pytorch-trcomp-training:1.11.0-transformers4.21.1-gpu-py38-cu113-ubuntu20.04",
    ],
)
def test_an_image_of_ones_own_is_taken_that_was_built_from_a_container_with_it(base: str) -> None:
    stack = Stack()
    stack.workflow(ON_MANY, stack.image(base))
    assert stack.definition()["States"]["Create"]["Parameters"]["ProfilerConfig"] == {"DisableProfiler": True}


@pytest.mark.parametrize(
    ("dockerfile", "base"),
    [
        ("FROM 763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-trcomp-training:1.13.1-gpu-py39\n", "1.13.1"),
        ("ARG V=1.12.0\nFROM x/pytorch-trcomp-training:$V-gpu-py38 AS one\nFROM python:3 AS two\nFROM one\n", "1.12.0"),
        ("ARG V\nFROM x/pytorch-trcomp-training:${V}-gpu-py39\n", "1.13.1"),
    ],
)
def test_an_image_is_known_by_what_its_dockerfile_is_built_from(dockerfile: str, base: str, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(dockerfile)
    stack = Stack()
    args = {"V": "1.13.1"} if "ARG V\n" in dockerfile else None
    image = TrainingImage(stack, "Image", directory=str(tmp_path), build_args=args, builder="docker")
    assert image.base is not None
    assert image.base.startswith(f"pytorch-trcomp-training:{base}-gpu-py3")
    stack.workflow(ON_ONE_GPU, image)
