"""``fits=Model(...)``: layouts whose state exceeds the accelerators' memory."""

from __future__ import annotations

import pytest

from cdk_sagemaker_training import InstanceGroup, Model, ModelParallelJob, NativeParallelism, SmpV1, SmpV2

LLAMA_8B, LLAMA_70B = Model(8_030_261_248), Model(70_553_706_496)
P4D, P5 = InstanceGroup("ml.p4d.24xlarge"), InstanceGroup("ml.p5.48xlarge", 2)


def warnings(job: ModelParallelJob) -> list[str]:
    return [advice.text for request in job.requests() for advice in request.advice if "memory-left" in advice.id]


def test_a_model_that_fits_gets_no_warning() -> None:
    assert not warnings(ModelParallelJob(P4D, NativeParallelism(data_shard=8), fits=LLAMA_8B))


def test_a_model_that_exceeds_the_accelerators_memory_is_refused_with_the_ranks_that_hold_it() -> None:
    with pytest.raises(ValueError, match="fits must be a model") as refused:
        ModelParallelJob(P4D, NativeParallelism(data_shard=8), fits=LLAMA_70B)
    # 70,553,706,496 x 16 / 8 / 2^30 = 131.4; 32 ranks have 32.9 each.
    assert "131.4 GiB of the 40 GiB that a rank has of ml.p4d.24xlarge" in str(refused.value)
    assert "like NativeParallelism(data_shard=32)" in str(refused.value)


def test_a_model_that_takes_nine_tenths_of_the_memory_gets_a_warning() -> None:
    (text,) = warnings(ModelParallelJob(P5, NativeParallelism(data_shard=16), fits=Model(78 * 2**30)))
    assert "78.0 GiB of the 80 GiB" in text


@pytest.mark.parametrize(
    "parallelism",
    [NativeParallelism(tensor=8), NativeParallelism(pipeline=8), NativeParallelism(data_shard=2, tensor=2, pipeline=2)],
    ids=["tensor", "pipeline", "all three"],
)
def test_every_degree_that_divides_the_model_counts(parallelism: NativeParallelism) -> None:
    ModelParallelJob(P4D, parallelism, fits=LLAMA_8B)


def test_replicas_do_not_divide_the_model() -> None:
    with pytest.raises(ValueError, match=r"16 bytes / 1 ranks are 119\.7 GiB"):
        ModelParallelJob(P4D, NativeParallelism(data_replicate=8), fits=LLAMA_8B)


def test_bytes_of_another_optimizer_or_precision_are_the_users() -> None:
    layout = NativeParallelism(data_shard=2, data_replicate=4)
    with pytest.raises(ValueError, match=r"59\.8 GiB"):
        ModelParallelJob(P4D, layout, fits=LLAMA_8B)
    ModelParallelJob(P4D, layout, fits=Model(LLAMA_8B.parameters, bytes_per_parameter=8))


def test_processes_that_share_an_accelerator_share_its_memory() -> None:
    with pytest.raises(ValueError, match="4 GiB that a rank has"):
        ModelParallelJob(P4D, NativeParallelism(data_shard=80), processes_per_host=80, fits=LLAMA_70B)


def test_a_process_of_fewer_than_the_accelerators_has_the_memory_of_one() -> None:
    with pytest.raises(ValueError, match=r"59\.8 GiB of the 40 GiB that a rank has"):
        ModelParallelJob(P4D, NativeParallelism(data_shard=2), processes_per_host=2, fits=LLAMA_8B)


def test_smp_v2_is_checked_where_its_degrees_are_given() -> None:
    with pytest.raises(ValueError, match="70,553,706,496 parameters x 16 bytes / 8 ranks"):
        ModelParallelJob(P4D, SmpV2(hybrid_shard_degree=8), fits=LLAMA_70B)
    ModelParallelJob(P4D, SmpV2(), fits=LLAMA_70B)


@pytest.mark.parametrize(
    ("group", "parallelism"),
    [
        (P4D, NativeParallelism(data_shard=8, cpu_offload=True)),
        (InstanceGroup("ml.p3.16xlarge"), SmpV1({"pipeline_parallel_degree": 8})),
        (InstanceGroup("ml.c5.18xlarge", 2), NativeParallelism(data_shard=2)),
    ],
    ids=["state in host memory", "version 1 of SMP", "no accelerators"],
)
def test_what_the_degrees_alone_do_not_tell_is_not_checked(
    group: InstanceGroup, parallelism: NativeParallelism | SmpV1
) -> None:
    ModelParallelJob(group, parallelism, fits=LLAMA_70B)


@pytest.mark.parametrize("name", ["parameters", "bytes_per_parameter"])
def test_numbers_below_1_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be .* at least 1.* got 0$"):
        Model(**{"parameters": 8, name: 0})
