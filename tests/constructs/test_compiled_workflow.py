"""Workflows of compiled jobs: the job that compiles ahead, the images that a compiler is in, and what is warned of."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from rendered import lint
from stacks import UserStack, message_of, reads

from cdk_sagemaker_training import (
    CompiledJob,
    DataParallelJob,
    InstanceGroup,
    Neuron,
    PyTorchXla,
    Spot,
    Torchrun,
    TrainingCode,
    TrainingCompiler,
    TrainingImage,
    TrainingWorkflow,
)

COMPILER = TrainingCompiler()
ON_ONE_GPU = CompiledJob(InstanceGroup("ml.g5.4xlarge"), compiler=COMPILER)
ON_MANY = CompiledJob(InstanceGroup("ml.p4d.24xlarge"), compiler=COMPILER, launcher=PyTorchXla())


class Stack(UserStack):
    """A stack whose jobs may be compiled for Trainium."""

    def own_image(self, base: str | None = None) -> TrainingImage:
        return self.image_from("images", base=base) if base else self.image

    def neuron(self, **props: Any) -> TrainingWorkflow:
        job = CompiledJob(
            InstanceGroup("ml.trn1.32xlarge", 2),
            compiler=Neuron(cache=self.place("neuron-cache/"), trial={"steps": 10}),
            launcher=Torchrun(),
        )
        image = TrainingImage.from_neuron(self, "Image")
        return self.workflow(job=job, image=image, hyperparameters={"steps": 5_000, "batch-size": 8}, **props)

    def definition(self) -> dict[str, Any]:
        """The definition of the state machine that creates the jobs."""
        [found] = [one for one in self.machines().values() if any("Create" in name for name in one["States"])]
        return found


@pytest.fixture(scope="module")
def neuron() -> dict[str, Any]:
    stack = Stack()
    stack.neuron(checkpoints=stack.place("checkpoints/"), retries=1)
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
    assert states["CompileCreate"]["Catch"][0]["Next"] == "CompileIsRefused"
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
    assert name == "States.Format('stack-training-04d490aa-{}-{}', States.Hash($$.Execution.Id, 'MD5'), 1)"
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
    one_job.workflow(job=ON_ONE_GPU, image=one_job.own_image("pytorch-trcomp-training:1.13.1-gpu-py39"))
    assert neuron["TimeoutSeconds"] == 4 * one_job.definition()["TimeoutSeconds"]


def test_a_job_may_use_its_compilers_cache() -> None:
    stack = Stack()
    stack.neuron()
    of_cache = [one for one in stack.statements(role=None) if one["Resource"] == "arn:aws:s3:::bucket/neuron-cache/*"]
    assert sorted(str(one["Action"]) for one in of_cache) == [
        "['s3:AbortMultipartUpload', 's3:PutObject']",
        "s3:GetObject",
    ]


def test_a_task_state_runs_one_job() -> None:
    stack = Stack()
    cache = stack.place("neuron-cache/")
    job = CompiledJob(InstanceGroup("ml.trn1.32xlarge"), compiler=Neuron(cache=cache), launcher=Torchrun())
    message = message_of(lambda: stack.task(job=job, image=TrainingImage.from_neuron(stack, "Image")))
    assert message.endswith("got CompiledJob with 2: use TrainingWorkflow(...).as_task(...)")


def test_a_task_state_does_not_take_what_turns_the_profiler_off() -> None:
    stack = Stack()
    image = stack.own_image("pytorch-trcomp-training:1.13.1-gpu-py39")
    message = message_of(lambda: stack.task(job=ON_ONE_GPU, image=image))
    assert message.startswith("job must be what `sagemaker:createTrainingJob.sync` is known to take")
    assert "got ProfilerConfig: use TrainingWorkflow(...).as_task(...), or " in message


@pytest.mark.parametrize("suffixes", [["compile", "check"], ["", ""], ["1", ""], ["Compile", ""]])
def test_jobs_whose_names_could_be_one_are_refused(suffixes: list[str]) -> None:
    class Several:
        def requests(self) -> Any:
            [request] = DataParallelJob(InstanceGroup("ml.m5.xlarge")).requests()
            return [replace(request, name_suffix=suffix) for suffix in suffixes]

    stack = Stack()
    assert reads(
        message_of(lambda: stack.workflow(job=Several(), image=stack.own_image())),
        "name_suffix values of a job's requests must be lower-case letters and digits, with distinct first "
        f"letters, or one empty ... got {suffixes}",
    )


def test_advice_becomes_warnings_that_can_be_acknowledged() -> None:
    stack = Stack()
    job = CompiledJob(InstanceGroup("ml.p3.2xlarge", 2), compiler=TrainingCompiler(debug=True), launcher=PyTorchXla())
    stack.workflow(job=job, image=TrainingImage.from_training_compiler(stack, "Image", "pytorch", "1.13.1"))
    cdk.Annotations.of(stack).acknowledge_warning(
        "cdk-sagemaker-training:training-compiler-end-of-life", "moved to torch.compile next year"
    )
    assert sorted(stack.warned()) == ["no-efa", "scale-up-first", "training-compiler-debug"]


def test_a_cache_that_is_not_among_the_checkpoints_is_told() -> None:
    stack = Stack()
    checkpoints = stack.place("checkpoints/")
    spot = Spot(checkpoints, max_wait=100_000, local_path="/opt/ml/kept")
    stack.workflow(job=CompiledJob(InstanceGroup("ml.g5.xlarge")), image=stack.own_image(), spot=spot)
    [warning] = stack.warnings()
    assert "/opt/ml/checkpoints/compiler-cache is not below /opt/ml/kept" in warning
    assert "TorchCompile(cache_directory='/opt/ml/kept/compiler-cache')" in warning


def test_a_cache_among_the_checkpoints_is_not_told_of() -> None:
    stack = Stack()
    checkpoints = stack.place("checkpoints/")
    stack.workflow(job=CompiledJob(InstanceGroup("ml.g5.xlarge")), image=stack.own_image(), checkpoints=checkpoints)
    assert stack.warnings() == []


def test_a_data_parallel_job_without_a_compiler_on_one_machine_warns_of_nothing() -> None:
    stack = Stack()
    stack.workflow(job=DataParallelJob(InstanceGroup("ml.g5.xlarge")), image=stack.own_image())
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
    message = message_of(lambda: stack.workflow(job=ON_ONE_GPU, image=stack.own_image(base)))
    assert message.startswith("image must be a container with the job's compiler and launcher, or built from one")
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
    assert message_of(lambda: stack.workflow(job=ON_MANY, image=stack.own_image(base))).endswith(f"got {base!r}")


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
    stack.workflow(job=ON_MANY, image=stack.own_image(base))
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
    (tmp_path / "Dockerfile").write_text(f'{dockerfile}ENTRYPOINT ["run-training"]\n')
    stack = Stack()
    args = {"V": "1.13.1"} if "ARG V\n" in dockerfile else None
    image = TrainingImage.from_asset(stack, "Image", directory=str(tmp_path), build_args=args)
    assert image.base is not None
    assert image.base.startswith(f"pytorch-trcomp-training:{base}-gpu-py3")
    workflow = stack.workflow(job=ON_ONE_GPU, image=image)
    assert workflow.image is image


# As AWS's sample mnist_mlp/train_torchrun.py, but for the optimizer's step.
REPLICAS = """
import torch
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch.utils.data import DataLoader, DistributedSampler

torch.manual_seed(0)
sampler = DistributedSampler(data, xr.world_size(), xr.global_ordinal())
for epoch in range(4):
    sampler.set_epoch(epoch)
    for images, labels in DataLoader(data, sampler=sampler, drop_last=True):
        optimizer.zero_grad()
        loss(model(images), labels).backward()
        optimizer.step()
        xm.mark_step()
"""


RIGHT = REPLICAS.replace("optimizer.step()", "xm.optimizer_step(optimizer)")


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        (REPLICAS, ["script-xla-gradients"]),
        (RIGHT, []),
        (RIGHT.replace("xr.global_ordinal()", "xm.get_ordinal()"), ["script-removed"]),  # of PyTorch/XLA until 2.6
    ],
)
def test_a_script_that_trains_apart_on_trainium_or_asks_for_what_its_container_lacks_is_warned_of(
    tmp_path: Path, text: str, warned: list[str]
) -> None:
    (tmp_path / "train.py").write_text(text)
    stack = Stack()
    stack.neuron(code=TrainingCode(str(tmp_path), entry_point="train.py"))
    assert [name for name in stack.warned() if name.startswith("script-")] == warned


@pytest.mark.parametrize(("job", "warned"), [(ON_MANY, ["script-xla-gradients"]), (ON_ONE_GPU, [])])
def test_replicas_of_the_training_compiler_are_those_of_the_machines_gpus(
    tmp_path: Path, job: CompiledJob, warned: list[str]
) -> None:
    old = REPLICAS.replace("xr.world_size()", "xm.xrt_world_size()").replace("xr.global_ordinal()", "xm.get_ordinal()")
    (tmp_path / "train.py").write_text(old)
    stack = Stack()
    image = TrainingImage.from_training_compiler(stack, "Compiler", "pytorch", "1.13.1")
    stack.workflow(job=job, image=image, code=TrainingCode(str(tmp_path), entry_point="train.py"))
    assert [name for name in stack.warned() if name.startswith("script-")] == warned
