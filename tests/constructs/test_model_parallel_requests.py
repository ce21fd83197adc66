"""Our requests of jobs on several accelerators beside those of AWS's SDK, which tests/sdk_requests/cases_parallel.py makes."""

from types import SimpleNamespace
from typing import Any

import pytest
from sdk_recordings import canonical, cases_of, recorded
from whole_requests import image_at, request_of

from cdk_sagemaker_training import (
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    ModelParallelJob,
    Mpi,
    MultiWorkerMirrored,
    ParameterServer,
    Profiler,
    PyTorchDdp,
    S3Channel,
    S3Prefix,
    SmDdp,
    SmpV1,
    SmpV2,
    Torchrun,
    TrainingJob,
)

BUCKET: Any = SimpleNamespace(bucket_name="bucket")
# Where our requests differ on purpose, each with a test of its own below.
DIFFERENT = {
    "torchrun_groups": "the SDK drops the group to launch in, so torchrun would start in every group",
    "smddp_groups": "the SDK sends null for the type of the machines",
    "smp_v1_groups": "the SDK sends null for the type of the machines",
    "torchrun_refused_processor": "the SDK refuses torchrun on CPUs, which the toolkit starts",
    "smp_v1_refused_permutation": "the SDK refuses a placement strategy that AWS's documentation has",
    "smp_refused_groups_v1": "the SDK refuses a group for SMP v1 without mpi, which is never left out here",
    "smp_v1_refused_default_partition": "the SDK looks for the stages by TensorFlow's name only",
}


def asked_by_us(job: TrainingJob, case: str, **hyperparameters: Any) -> dict[str, Any]:
    """Our request, of the image that the SDK chooses, which has a test of its own below."""
    request = request_of(
        job,
        image=image_at(recorded(case)["request"]["AlgorithmSpecification"]["TrainingImage"]),
        channels={"training": S3Channel(BUCKET, "training/")},
        hyperparameters={"epochs": 3, **hyperparameters},
        max_runtime=86_400,
        profiler=Profiler(disable=True),
    )
    return canonical(request)


def asked_by_sdk(case: str) -> dict[str, Any]:
    request = canonical(recorded(case)["request"])
    # The SDK asks for time series of metrics with AWS's images; here metrics are what the user asks for.
    request["AlgorithmSpecification"].pop("EnableSageMakerMetricsTimeSeries", None)
    return request


def on(instance_type: str, count: int) -> InstanceGroup:
    return InstanceGroup(instance_type, count)


def beside_data(train: TrainingJob) -> HeterogeneousJob:
    return HeterogeneousJob(groups={"data_group": on("ml.c5.xlarge", 2)}, train=train, train_group="dnn_group")


P4D, P4D_GROUP = on("ml.p4d.24xlarge", 2), on("ml.p4d.24xlarge", 1)
P5 = on("ml.p5.48xlarge", 4)

EQUAL: dict[str, TrainingJob] = {
    "mpi_pytorch": DataParallelJob(P4D, Mpi(8, "-x HOROVOD_FUSION_THRESHOLD=67108864 --NCCL_DEBUG WARN")),
    "mpi_tensorflow": DataParallelJob(on("ml.g5.12xlarge", 2), Mpi()),
    "mpi_groups": beside_data(DataParallelJob(P4D_GROUP, Mpi(8))),
    "multi_worker_mirrored": DataParallelJob(on("ml.g5.12xlarge", 2), MultiWorkerMirrored()),
    "parameter_server": DataParallelJob(on("ml.c5.xlarge", 2), ParameterServer()),
    "pytorchddp_hugging_face": DataParallelJob(P4D, PyTorchDdp()),
    "smddp_pytorch": DataParallelJob(P4D, SmDdp()),
    "smddp_options": DataParallelJob(on("ml.p3.16xlarge", 2), SmDdp(custom_mpi_options="-x NCCL_DEBUG=VERSION")),
    "smddp_tensorflow": DataParallelJob(P4D_GROUP, SmDdp()),
    "smddp_torchrun": DataParallelJob(on("ml.p5.48xlarge", 2), SmDdp(launch_by="torchrun")),
    "smp_v1_pipeline": ModelParallelJob(
        P4D,
        SmpV1(
            {
                "pipeline_parallel_degree": 2,
                "microbatches": 4,
                "placement_strategy": "spread",
                "optimize": "speed",
                "ddp": True,
            }
        ),
    ),
    "smp_v1_tensor": ModelParallelJob(
        P4D,
        SmpV1(
            {
                "pipeline_parallel_degree": 2,
                "microbatches": 4,
                "tensor_parallel_degree": 4,
                "ddp": True,
                "fp16": True,
                "shard_optimizer_state": True,
                "prescaled_batch": True,
                "offload_activations": True,
                "activation_loading_horizon": 2,
            }
        ),
    ),
    "smp_v1_sharded": ModelParallelJob(
        P4D,
        SmpV1(
            {
                "sharded_data_parallel_degree": 16,
                "ddp": True,
                "bf16": True,
                "sdp_reduce_bucket_size": 500_000_000,
                "sdp_gradient_clipping": 1.0,
            }
        ),
    ),
    "smp_v1_own_cut": ModelParallelJob(
        on("ml.g4dn.12xlarge", 1),
        SmpV1(
            {
                "partitions": 4,
                "microbatches": 8,
                "auto_partition": False,
                "default_partition": 1,
                "ddp": True,
            }
        ),
    ),
    "smp_v1_tensorflow": ModelParallelJob(
        on("ml.p3.16xlarge", 2), SmpV1({"partitions": 2, "microbatches": 4, "contiguous": False, "horovod": True})
    ),
    "smp_v2_shard": ModelParallelJob(P5, SmpV2(hybrid_shard_degree=8)),
    "smp_v2_tensor": ModelParallelJob(P5, SmpV2(hybrid_shard_degree=4, tensor_parallel_degree=8, random_seed=12345)),
    "smp_v2_context": ModelParallelJob(
        P5, SmpV2(hybrid_shard_degree=16, context_parallel_degree=8, sm_activation_offloading=False)
    ),
    "smp_v2_expert": ModelParallelJob(
        on("ml.p4d.24xlarge", 4),
        SmpV2(
            hybrid_shard_degree=8,
            expert_parallel_degree=4,
            activation_loading_horizon=1,
            fsdp_cache_flush_warnings=False,
            allow_empty_shards=True,
        ),
    ),
    "smp_v2_defaults": ModelParallelJob(on("ml.p4de.24xlarge", 1), SmpV2()),
}


@pytest.mark.parametrize("case", EQUAL)
def test_the_request_is_that_of_awss_sdk(case: str) -> None:
    assert asked_by_us(EQUAL[case], case) == asked_by_sdk(case)


def test_the_model_dir_of_tensorflow_is_a_place_in_s3_as_the_sdk_sends_it() -> None:
    job = DataParallelJob(on("ml.g5.12xlarge", 1))
    assert asked_by_us(job, "model_dir", model_dir=S3Prefix(BUCKET, "tf/")) == asked_by_sdk("model_dir")


TORCHRUN = {
    "torchrun_one_machine": DataParallelJob(on("ml.g5.12xlarge", 1), Torchrun()),
    "torchrun_two_machines": DataParallelJob(P4D, Torchrun()),
}


@pytest.mark.parametrize("case", TORCHRUN)
def test_torchrun_is_not_told_the_type_which_the_toolkit_reads_from_the_hosts_own_file(case: str) -> None:
    theirs = asked_by_sdk(case)
    instance_type = theirs["HyperParameters"].pop("sagemaker_instance_type")
    assert instance_type == theirs["ResourceConfig"]["InstanceType"]
    assert asked_by_us(TORCHRUN[case], case) == theirs


def test_torchrun_beside_other_groups_is_confined_to_the_one_that_trains_which_the_sdk_drops() -> None:
    ours = asked_by_us(beside_data(DataParallelJob(P4D_GROUP, Torchrun())), "torchrun_groups")
    theirs = asked_by_sdk("torchrun_groups")
    assert ours["HyperParameters"].pop("sagemaker_distribution_instance_groups") == ["dnn_group"]
    assert ours == theirs


def test_smddp_beside_other_groups_names_the_type_that_trains_where_the_sdk_sends_null() -> None:
    ours = asked_by_us(beside_data(DataParallelJob(P4D_GROUP, SmDdp())), "smddp_groups")
    theirs = asked_by_sdk("smddp_groups")
    assert ours["HyperParameters"].pop("sagemaker_instance_type") == "ml.p4d.24xlarge"
    assert theirs["HyperParameters"].pop("sagemaker_instance_type") is None
    assert ours == theirs


def test_smp_v1_starts_by_mpi_in_one_group_as_the_sdk_has_it_and_names_the_type_where_the_sdk_sends_null() -> None:
    parallelism = SmpV1({"pipeline_parallel_degree": 2, "microbatches": 4, "ddp": True})
    ours = asked_by_us(beside_data(ModelParallelJob(P4D_GROUP, parallelism)), "smp_v1_groups")
    theirs = asked_by_sdk("smp_v1_groups")
    assert ours["HyperParameters"].pop("sagemaker_instance_type") == "ml.p4d.24xlarge"
    assert theirs["HyperParameters"].pop("sagemaker_instance_type") is None
    assert ours == theirs


def test_smp_v1_without_mpi_cannot_be_said_here_which_the_sdk_refuses_beside_groups() -> None:
    assert "no distribution strategies" in recorded("smp_refused_groups_v1")["refused"]
    [request] = ModelParallelJob(P4D, SmpV1({"pipeline_parallel_degree": 2, "ddp": True})).requests()
    assert request.hyperparameters["sagemaker_mpi_enabled"] == "true"


def test_torchrun_starts_processes_on_cpus_which_the_sdk_refuses_and_the_toolkit_does() -> None:
    assert "only for GPU and Trainium" in recorded("torchrun_refused_processor")["refused"]
    ours = asked_by_us(DataParallelJob(on("ml.c5.xlarge", 2), Torchrun(2)), "torchrun_groups")
    assert ours["HyperParameters"]["sagemaker_mpi_num_of_processes_per_host"] == 2


def test_a_permutation_of_dpt_is_sent_as_awss_documentation_has_it_and_the_sdk_refuses() -> None:
    assert "must be a value in: ['spread', 'cluster']" in recorded("smp_v1_refused_permutation")["refused"]
    parallelism = SmpV1({"pipeline_parallel_degree": 2, "microbatches": 4, "placement_strategy": "TDP", "ddp": True})
    ours = asked_by_us(ModelParallelJob(P4D, parallelism), "smp_v1_pipeline")
    assert ours["HyperParameters"]["mp_parameters"]["placement_strategy"] == "TDP"


def test_a_default_partition_goes_with_pytorchs_name_of_the_stages_where_the_sdk_fails() -> None:
    assert recorded("smp_v1_refused_default_partition")["refused"] == "KeyError: 'partitions'"
    ours = asked_by_us(
        ModelParallelJob(P4D, SmpV1({"pipeline_parallel_degree": 2, "default_partition": 1, "ddp": True})),
        "smp_v1_pipeline",
    )
    assert ours["HyperParameters"]["mp_parameters"]["default_partition"] == 1


REFUSED_BY_BOTH = {
    "multi_worker_mirrored_refused_groups": (
        "train",
        lambda: beside_data(DataParallelJob(P4D_GROUP, MultiWorkerMirrored())),
    ),
    "parameter_server_refused_groups": ("train", lambda: beside_data(DataParallelJob(P4D_GROUP, ParameterServer()))),
    "smddp_refused_p5": ("launcher", lambda: DataParallelJob(on("ml.p5.48xlarge", 2), SmDdp())),
    "smp_refused_groups": ("train", lambda: beside_data(ModelParallelJob(P4D_GROUP, SmpV2(hybrid_shard_degree=8)))),
    "smp_v1_refused_pipeline": ("pipeline", lambda: SmpV1({"pipeline_parallel_degree": 2, "pipeline": "zero-bubble"})),
    "smp_v1_refused_no_default_partition": (
        "default_partition",
        lambda: SmpV1({"pipeline_parallel_degree": 2, "auto_partition": False}),
    ),
    "smp_v1_refused_ddp_and_horovod": (
        "horovod",
        lambda: SmpV1({"pipeline_parallel_degree": 2, "ddp": True, "horovod": True}),
    ),
    "smp_v1_refused_memory_weight": (
        "memory_weight",
        lambda: SmpV1({"pipeline_parallel_degree": 2, "memory_weight": 1.5}),
    ),
    "smp_v1_refused_ddp_port": ("ddp", lambda: SmpV1({"pipeline_parallel_degree": 2, "ddp_port": 8888})),
}


@pytest.mark.parametrize("case", REFUSED_BY_BOTH)
def test_what_awss_sdk_refuses_is_refused_here_too(case: str) -> None:
    assert "refused" in recorded(case)
    prop, make = REFUSED_BY_BOTH[case]
    with pytest.raises(ValueError, match=rf"^{prop} must "):
        make()


REFUSED_HERE_ONLY = {
    "smddp_other_type": ("launcher", lambda: DataParallelJob(on("ml.g5.48xlarge", 2), SmDdp())),
    "smp_v1_zero_tensor": (
        "tensor_parallel_degree",
        lambda: SmpV1({"pipeline_parallel_degree": 2, "tensor_parallel_degree": 0}),
    ),
    "smp_v1_other_version": (
        "parameters",
        lambda: SmpV1({"pipeline_parallel_degree": 2, "hybrid_shard_degree": 8}),
    ),
    "smp_v1_product": (
        "parallelism",
        lambda: ModelParallelJob(P4D, SmpV1({"pipeline_parallel_degree": 3, "microbatches": 3, "ddp": True})),
    ),
    "smp_v1_other_type": (
        "instance_type",
        lambda: ModelParallelJob(on("ml.g5.48xlarge", 2), SmpV1({"pipeline_parallel_degree": 2})),
    ),
    "smp_v2_negative": ("hybrid_shard_degree", lambda: SmpV2(hybrid_shard_degree=-3)),
    "smp_v2_unknown": ("parameters", lambda: SmpV2.from_parameters({"foo": 1})),
    "smp_v2_other_version": ("parameters", lambda: SmpV2.from_parameters({"pipeline_parallel_degree": 2})),
    "smp_v2_product": ("parallelism", lambda: ModelParallelJob(P5, SmpV2(hybrid_shard_degree=5))),
    "smp_v2_other_type": (
        "instance_type",
        lambda: ModelParallelJob(on("ml.g5.12xlarge", 4), SmpV2(hybrid_shard_degree=4)),
    ),
    "smp_v2_library_version": ("pytorch_version", lambda: SmpV2.image("us-east-1", pytorch_version="2.8.0")),
}


@pytest.mark.parametrize("case", REFUSED_HERE_ONLY)
def test_what_awss_sdk_would_let_fail_on_the_machines_is_refused_at_synth(case: str) -> None:
    assert "request" in recorded(case)
    prop, make = REFUSED_HERE_ONLY[case]
    with pytest.raises(ValueError, match=rf"^{prop} must "):
        make()


IMAGES = {
    "smp_v2_2.0.1": SmpV2.image("us-east-1", pytorch_version="2.0.1"),
    "smp_v2_2.0.1_p5": SmpV2.image("us-east-1", pytorch_version="2.0.1", instance_type="ml.p5.48xlarge"),
    "smp_v2_defaults": SmpV2.image("us-east-1", pytorch_version="2.1.2"),
    "smp_v2_2.2.0": SmpV2.image("us-east-1", pytorch_version="2.2.0"),
    "smp_v2_2.3.1": SmpV2.image("us-east-1", pytorch_version="2.3.1"),
    "smp_v2_shard": SmpV2.image("us-east-1", pytorch_version="2.4.1"),
    "smp_v2_expert": SmpV2.image("us-east-1"),
    "smp_v1_pipeline": SmpV1.image("us-east-1"),
    "smp_v1_tensorflow": SmpV1.image("us-east-1", framework="tensorflow", version="2.6.0"),
}


@pytest.mark.parametrize("case", IMAGES)
def test_the_container_is_the_one_that_awss_sdk_chooses(case: str) -> None:
    image = IMAGES[case]
    uri = f"{image['account_id']}.dkr.ecr.us-east-1.amazonaws.com/{image['repository']}:{image['tag']}"
    assert recorded(case)["request"]["AlgorithmSpecification"]["TrainingImage"] == uri


def test_each_recording_is_compared() -> None:
    compared = {*EQUAL, *TORCHRUN, *DIFFERENT, *REFUSED_BY_BOTH, *REFUSED_HERE_ONLY, *IMAGES, "model_dir"}
    assert cases_of("cases_parallel") == compared
