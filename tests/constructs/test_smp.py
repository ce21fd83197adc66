from typing import Any

import aws_cdk as cdk
import pytest
from stacks import message_of, reads

from cdk_sagemaker_training import InstanceGroup, ModelParallelJob, SmpV1, SmpV2, TrainingImage
from training_jobs.facts.smp_v1 import smp_v1_parameters

V1 = smp_v1_parameters()
NUMBERS_OF_V2 = (
    "hybrid_shard_degree",
    "activation_loading_horizon",
    "tensor_parallel_degree",
    "context_parallel_degree",
    "expert_parallel_degree",
    "random_seed",
)
SWITCHES_OF_V2 = ("sm_activation_offloading", "fsdp_cache_flush_warnings", "allow_empty_shards")
P4D = InstanceGroup("ml.p4d.24xlarge", 2)


@pytest.mark.parametrize("name", NUMBERS_OF_V2)
def test_a_number_of_version_2_out_of_its_range_is_refused(name: str) -> None:
    assert message_of(lambda: SmpV2(**{name: -1})).startswith(f"{name} must be a whole number of at least ")


@pytest.mark.parametrize("name", SWITCHES_OF_V2)
@pytest.mark.parametrize("value", [1, 0, "True"])
def test_a_switch_of_version_2_that_is_neither_on_nor_off_is_refused(name: str, value: Any) -> None:
    assert reads(message_of(lambda: SmpV2(**{name: value})), f"{name} must be True or False ... got {value!r}")


# By the type of a parameter: values that it refuses, and the rule.
WRONG = {
    "whole": ([-1, 0.5, True, "2"], "be a whole number"),
    "number": ([-1, True, "2"], "be a number"),
    "switch": ([1, 0, "True"], "be True or False"),
    "choice": (["other", 1], "be one of"),
}


@pytest.mark.parametrize(("name", "row"), V1.items())
def test_a_parameter_of_version_1_takes_what_its_row_of_the_table_says(name: str, row: Any) -> None:
    values, rule = WRONG[row["type"]]
    beside = {"pipeline_parallel_degree": 2}
    for value in values:
        message = message_of(lambda value=value: SmpV1({**beside, name: value}))
        assert message.startswith(f"{name} must {rule}"), message
        assert message.endswith(f"got {value!r}"), message
    assert row["docs"]
    assert isinstance(row["default"], bool) == (row["type"] == "switch")


@pytest.mark.parametrize("name", [name for name, row in V1.items() if "least" in row])
def test_a_number_of_version_1_is_within_the_bounds_of_its_row(name: str) -> None:
    least, most = V1[name]["least"], V1[name].get("most")
    assert f"of at least {least}" in message_of(lambda: SmpV1({"partitions": 2, name: least - 1}))
    if most is not None:
        assert f"at most {most}" in message_of(lambda: SmpV1({"partitions": 2, "ddp": True, name: most + 1}))
        SmpV1({"partitions": 2, "ddp": True, name: most})


def test_a_parameter_that_is_none_is_left_out() -> None:
    [request] = ModelParallelJob(P4D, SmpV1({"partitions": 2, "microbatches": None, "ddp": None})).requests()
    assert request.hyperparameters["mp_parameters"] == '{"partitions": 2}'


@pytest.mark.parametrize(
    ("given", "prop"),
    [
        ({}, "pipeline_parallel_degree must be set"),
        (
            {"pipeline_parallel_degree": 2, "partitions": 2},
            "partitions must be left out with pipeline_parallel_degree",
        ),
        ({"partitions": 2, "auto_partition": False}, "default_partition must be set with auto_partition=False"),
        ({"partitions": 2, "default_partition": 2}, "default_partition must be less than 2"),
        ({"partitions": 2, "ddp": True, "horovod": True}, "horovod must be left out with ddp"),
        ({"partitions": 2, "tensor_parallel_degree": 2}, "ddp must be True with tensor_parallel_degree"),
        ({"partitions": 2, "ddp_port": 8888}, "ddp must be True with"),
        ({"partitions": 2, "fp16": True, "bf16": True}, "bf16 must be left out with fp16"),
        ({"partitions": 2, "sharded_data_parallel_degree": 2}, "pipeline_parallel_degree must be 1"),
        (
            {"sharded_data_parallel_degree": 2, "shard_optimizer_state": True},
            "shard_optimizer_state must be left out with sharded_data_parallel_degree",
        ),
    ],
)
def test_parameters_of_version_1_that_exclude_or_need_each_other_are_refused(given: dict[str, Any], prop: str) -> None:
    assert message_of(lambda: SmpV1(given)).startswith(prop)


@pytest.mark.parametrize(
    ("make", "got"),
    [
        (
            lambda: SmpV1({"partitions": 2, "hybrid_shard_degree": 8}),
            "'hybrid_shard_degree', which is one of SMP v2: it has",
        ),
        (lambda: SmpV2.from_parameters({"partitions": 2}), "'partitions', which is one of SMP v1: it has"),
        (lambda: SmpV1({"microbatch": 1}), "'microbatch', did you mean 'microbatches'?: it has"),
        (lambda: SmpV2.from_parameters({"foo": 1}), "'foo': it has"),
    ],
)
def test_a_parameter_that_a_version_lacks_is_answered_with_what_was_meant(make: Any, got: str) -> None:
    assert f"got {got}" in message_of(make)


def test_the_dict_of_awss_documentation_makes_the_same_value() -> None:
    parameters = {"hybrid_shard_degree": 8, "tensor_parallel_degree": 2}
    assert SmpV2.from_parameters(parameters) == SmpV2(hybrid_shard_degree=8, tensor_parallel_degree=2)


def test_a_context_degree_above_the_shard_degree_is_refused() -> None:
    assert reads(
        message_of(lambda: SmpV2(hybrid_shard_degree=4, context_parallel_degree=8)),
        "context_parallel_degree must be at most hybrid_shard_degree ... got 8 with 4",
    )


def test_degrees_of_version_2_whose_product_does_not_divide_the_gpus_are_refused_with_every_factor() -> None:
    parallelism = SmpV2(hybrid_shard_degree=4, tensor_parallel_degree=8)
    assert reads(
        message_of(lambda: ModelParallelJob(P4D, parallelism)),
        "parallelism must have degrees whose product divides 16 processes (instance_count 2 x 8 accelerators "
        "of ml.p4d.24xlarge) ... got tensor_parallel_degree 8 x hybrid_shard_degree 4 = 32",
    )


@pytest.mark.parametrize("parallelism", [SmpV1({"pipeline_parallel_degree": 2}), SmpV2(hybrid_shard_degree=2)])
@pytest.mark.parametrize("instance_type", ["ml.g5.48xlarge", "ml.c5.xlarge", "ml.trn1.32xlarge"])
def test_a_machine_type_that_smp_does_not_support_is_refused(parallelism: Any, instance_type: str) -> None:
    message = message_of(lambda: ModelParallelJob(InstanceGroup(instance_type, 2), parallelism))
    assert message.startswith("instance_type must be one that SMP v")
    assert message.endswith(f"got {instance_type!r}")


def test_version_1_with_one_microbatch_leaves_its_stages_idle() -> None:
    [request] = ModelParallelJob(P4D, SmpV1({"pipeline_parallel_degree": 4, "ddp": True})).requests()
    assert [advice.id for advice in request.advice] == ["cdk-sagemaker-training:idle-pipeline-stages"]


def test_a_container_is_what_an_image_is_made_from() -> None:
    stack = cdk.Stack()
    image = TrainingImage.from_dlc(stack, "Image", **SmpV2.image("eu-west-1"))
    assert "658645717510.dkr.ecr." in str(stack.resolve(image.image_uri))
    assert str(stack.resolve(image.image_uri)).count("smdistributed-modelparallel:2.5.1-gpu-py311-cu124")
