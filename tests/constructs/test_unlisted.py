"""Each list of ours that a refusal rests on has the one way out, which its message names and which is warned of at synth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_kms as kms
from aws_cdk.assertions import Annotations, Match
from stacks import UserStack
from whole_requests import ON_CPUS, ON_GROUPS

from cdk_sagemaker_training import (
    CompiledJob,
    DataParallelJob,
    InstanceGroup,
    ModelParallelJob,
    NativeParallelism,
    Neuron,
    Profiler,
    S3Channel,
    SmDdp,
    SmpV1,
    SmpV2,
    TorchCompile,
    Torchrun,
    TrainingCompiler,
    TrainingImage,
    TrainingNetwork,
    TrainingWorkflow,
    UltraServers,
    efa_environment,
    unlisted,
)
from cdk_sagemaker_training.core.unlisted import LISTS, WARNING
from cdk_sagemaker_training.docs_generator import page

G5, P4D = "ml.g5.48xlarge", "ml.p4d.24xlarge"


class Stack(UserStack):
    def __init__(self) -> None:
        super().__init__()
        self.key = kms.Key.from_key_arn(self, "Key", "arn:aws:kms:us-east-1:123456789012:key/1234")

    def workflow(self, job: Any = ON_CPUS, **props: Any) -> TrainingWorkflow:  # type: ignore[override]
        return super().workflow(job=job, **props)

    def unlisted_values(self) -> list[str]:
        """The warnings of values that no list is held against: their ids are all the same."""
        found = Annotations.from_stack(self).find_warning("*", Match.string_like_regexp(f".*{WARNING}.*"))
        return [str(one.entry.data) for one in found]


def on(instance_type: Any, count: int = 1) -> InstanceGroup:
    return InstanceGroup(instance_type, count)


def compiled(instance_type: Any = G5) -> CompiledJob:
    return CompiledJob(on(instance_type), compiler=TrainingCompiler())


def compiler_image(stack: Stack, version: Any) -> TrainingImage:
    return TrainingImage.from_training_compiler(stack, "Own", "pytorch", version)


def smp_image(stack: Stack, **said: Any) -> TrainingImage:
    return TrainingImage.from_dlc(stack, "Own", **SmpV2.image(**{"region": "us-east-1", **said}))


def smp_v1_image(stack: Stack, **said: Any) -> TrainingImage:
    return TrainingImage.from_dlc(stack, "Own", **SmpV1.image(**{"region": "us-east-1", **said}))


def smp_parameters(kind: Any, parameters: dict[str, Any]) -> ModelParallelJob:
    return ModelParallelJob(on(P4D), (SmpV2.from_parameters if kind is SmpV2 else SmpV1)(parameters))


# By the list: what it refuses, and a function that makes it of a value, plain or unlisted.
Use = Callable[[Stack, Any], Any]
REFUSED: list[tuple[str, Any, Use]] = [
    ("training-types", "ml.p9e.48xlarge", lambda stack, it: stack.workflow(DataParallelJob(on(it)))),
    (
        "instance-facts",
        G5,
        lambda stack, it: stack.workflow(CompiledJob(on(it), Torchrun(), Neuron(stack.place("c/")))),
    ),
    (
        "instance-facts",
        "ml.trn1.32xlarge",
        lambda stack, it: stack.workflow(CompiledJob(on(it), compiler=TorchCompile())),
    ),
    ("instance-facts", G5, lambda stack, it: stack.workflow(DataParallelJob(on(it)), volume_key=stack.key)),
    ("instance-facts", "ml.g5.xlarge", lambda stack, it: stack.workflow(environment=efa_environment(it))),
    ("service-values", "New", lambda stack, it: stack.workflow(channels={"a": S3Channel(stack.bucket, input_mode=it)})),
    ("service-values", "ZSTD", lambda stack, it: stack.workflow(output_compression=it)),
    ("smddp-types", G5, lambda stack, it: stack.workflow(DataParallelJob(on(it), SmDdp()))),
    ("smp-types", G5, lambda stack, it: stack.workflow(ModelParallelJob(on(it), SmpV2(hybrid_shard_degree=8)))),
    (
        "smp-types",
        G5,
        lambda stack, it: stack.workflow(ModelParallelJob(on(it), SmpV1({"pipeline_parallel_degree": 2}))),
    ),
    ("smp-parameters", "new_degree", lambda stack, it: stack.workflow(smp_parameters(SmpV2, {it: 2}))),
    ("smp-parameters", "newer", lambda stack, it: stack.workflow(smp_parameters(SmpV1, {"partitions": 2, it: 1}))),
    (
        "smp-parameters",
        "zb1p",
        lambda stack, it: stack.workflow(smp_parameters(SmpV1, {"partitions": 2, "pipeline": it})),
    ),
    (
        "smp-images",
        "2.9.0-gpu-py312-cu130",
        lambda stack, it: stack.workflow(image=smp_image(stack, pytorch_version=it)),
    ),
    (
        "container-repositories",
        "pytorch-next",
        lambda stack, it: stack.workflow(image=TrainingImage.from_dlc(stack, "Own", it, "3.0")),
    ),
    (
        "image-contents",
        "2.31-gpu-py312",
        lambda stack, it: stack.workflow(image=TrainingImage.from_dlc(stack, "Own", "pytorch-training", it)),
    ),
    ("smp-images", "eu-south-2", lambda stack, it: stack.workflow(image=smp_image(stack, region=it))),
    ("smp-images", "2.1.0-gpu-py310", lambda stack, it: stack.workflow(image=smp_v1_image(stack, version=it))),
    ("smp-images", "eu-west-9", lambda stack, it: stack.workflow(image=smp_v1_image(stack, region=it))),
    ("smp-images", "mxnet-training", lambda stack, it: stack.workflow(image=smp_v1_image(stack, framework=it))),
    (
        "compiler-families",
        "ml.p4de.24xlarge",
        lambda stack, it: stack.workflow(compiled(it), image=compiler_image(stack, "1.13.1")),
    ),
    (
        "compiler-images",
        "2.0.0-gpu-py310",
        lambda stack, it: stack.workflow(compiled(), image=compiler_image(stack, it)),
    ),
    (
        "compiler-images",
        "pytorch-trcomp-training:2.0.0-gpu-py310",
        lambda stack, it: stack.workflow(compiled(), image=stack.image_from("images", base=it)),
    ),
    (
        "torch-compile-modes",
        "max",
        lambda stack, it: stack.workflow(CompiledJob(on(G5), compiler=TorchCompile(mode=it))),
    ),
    (
        "ultraserver-families",
        "ml.trn3.48xlarge",
        lambda stack, it: stack.workflow(DataParallelJob(on(it, 2)), ultra_servers=UltraServers([2])),
    ),
    ("sync-members", "sync", lambda stack, it: stack.workflow(ON_GROUPS, integration=it)),
    ("endpoint-services", "bedrock-runtime", lambda stack, it: TrainingNetwork(stack, "Network", endpoints=[it])),
    ("profiler-intervals", 250, lambda stack, it: stack.workflow(profiler=Profiler(interval_milliseconds=it))),
]
IDS = [f"{name}-{value}-{number}" for number, (name, value, _) in enumerate(REFUSED)]


@pytest.mark.parametrize(("name", "value", "use"), REFUSED, ids=IDS)
def test_a_refusal_that_rests_on_a_list_names_the_way_out(name: str, value: Any, use: Use) -> None:
    with pytest.raises(ValueError) as raised:
        use(Stack(), value)
    shown = "'REPOSITORY:TAG'" if isinstance(value, str) and ":" in value else repr(value)
    assert f"unlisted({shown})" in str(raised.value)


@pytest.mark.parametrize(("name", "value", "use"), REFUSED, ids=IDS)
def test_what_is_unlisted_is_taken_with_a_warning(name: str, value: Any, use: Use) -> None:
    stack = Stack()
    use(stack, unlisted(value))
    warnings = stack.unlisted_values()
    assert warnings
    assert all(" is unlisted: it is not checked against this library's lists" in one for one in warnings)
    assert any(f"{value!r} is unlisted" in one for one in warnings)


def test_a_region_that_a_container_is_not_listed_in_is_taken_with_an_unlisted_version() -> None:
    def stack_of() -> UserStack:
        return UserStack("ap-south-2")

    with pytest.raises(ValueError, match=r"^region must be one that has .*, or unlisted\('1.13.1'\) as the version "):
        TrainingImage.from_training_compiler(stack_of(), "Image", "pytorch", "1.13.1")
    image = TrainingImage.from_training_compiler(stack_of(), "Image", "pytorch", unlisted("1.13.1"))
    assert image.base == "pytorch-trcomp-training:1.13.1-gpu-py39"


def test_every_list_is_walked_and_on_the_page_of_members() -> None:
    assert {name for name, _, _ in REFUSED} == set(LISTS)
    assert all(f"| {text} |" in page() for text in LISTS.values())


def test_an_unlisted_type_is_sent_as_it_stands() -> None:
    stack = Stack()
    stack.workflow(DataParallelJob(on(unlisted("ml.p9e.48xlarge"), 2), SmDdp()))
    request = stack.request()
    assert request["ResourceConfig"]["InstanceType"] == "ml.p9e.48xlarge"
    assert request["HyperParameters"]["sagemaker_instance_type"] == '"ml.p9e.48xlarge"'


def test_what_is_listed_is_not_warned_of() -> None:
    stack = Stack()
    stack.workflow(DataParallelJob(on(P4D), SmDdp()))
    assert stack.unlisted_values() == []


def test_the_warning_can_be_acknowledged() -> None:
    stack = Stack()
    stack.workflow(DataParallelJob(on(unlisted("ml.p9e.48xlarge"))))
    cdk.Annotations.of(stack).acknowledge_warning(WARNING, "in our account since Monday")
    assert stack.unlisted_values() == []


@pytest.mark.parametrize("instance_type", ["ml.p7.48xlarge", unlisted("ml.p9e.48xlarge")])
def test_degrees_are_not_held_against_a_type_of_which_nothing_is_known(instance_type: Any) -> None:
    [request] = ModelParallelJob(on(instance_type), NativeParallelism(data_shard=8)).requests()
    assert request.resource_config["InstanceType"] == instance_type


@pytest.mark.parametrize("value", [None, True, 1.5, ["ml.p5.48xlarge"]])
def test_only_text_and_whole_numbers_are_in_lists(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^value must be text or a whole number"):
        unlisted(value)
