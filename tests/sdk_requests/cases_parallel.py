"""Jobs on several accelerators, data parallel and model parallel, as AWS's SDK makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ROLE = "arn:aws:iam::123456789012:role/Training"
OWN_IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/training:1"


def estimator(
    framework: str,
    version: str,
    python: str,
    instance_type: str,
    count: int,
    distribution: dict[str, Any],
    **props: Any,
) -> Callable[[Any], Any]:
    def make(session: Any) -> Any:
        from sagemaker.huggingface import HuggingFace
        from sagemaker.pytorch import PyTorch
        from sagemaker.tensorflow import TensorFlow

        versions = (
            {"transformers_version": "4.36.0", "pytorch_version": version}
            if framework == "huggingface"
            else {"framework_version": version}
        )
        return {"huggingface": HuggingFace, "pytorch": PyTorch, "tensorflow": TensorFlow}[framework](
            role=ROLE,
            entry_point="train.py",
            source_dir="s3://bucket/job/source/sourcedir.tar.gz",
            **versions,
            py_version=python,
            instance_type=instance_type,
            instance_count=count,
            hyperparameters={"epochs": 3},
            output_path="s3://bucket/models/",
            sagemaker_session=session,
            disable_profiler=True,
            debugger_hook_config=False,
            distribution=distribution,
            **{**({"model_dir": False} if framework == "tensorflow" else {}), **props},
        )

    return make


def on_groups(distribution: dict[str, Any], framework: str = "pytorch") -> Callable[[Any], Any]:
    """On two groups, the second of which is the one that trains."""

    def make(session: Any) -> Any:
        from sagemaker.instance_group import InstanceGroup
        from sagemaker.pytorch import PyTorch
        from sagemaker.tensorflow import TensorFlow

        data, train = InstanceGroup("data_group", "ml.c5.xlarge", 2), InstanceGroup("dnn_group", "ml.p4d.24xlarge", 1)
        return {"pytorch": PyTorch, "tensorflow": TensorFlow}[framework](
            role=ROLE,
            entry_point="train.py",
            source_dir="s3://bucket/job/source/sourcedir.tar.gz",
            **({"framework_version": "2.11", "py_version": "py39"} if framework == "tensorflow" else {}),
            image_uri=OWN_IMAGE,
            instance_groups=[data, train],
            hyperparameters={"epochs": 3},
            output_path="s3://bucket/models/",
            sagemaker_session=session,
            disable_profiler=True,
            debugger_hook_config=False,
            distribution={**distribution, "instance_groups": [train]},
            **({"model_dir": False} if framework == "tensorflow" else {}),
        )

    return make


TORCHRUN: dict[str, Any] = {"torch_distributed": {"enabled": True}}
SMDDP: dict[str, Any] = {"smdistributed": {"dataparallel": {"enabled": True}}}


def mpi(**options: Any) -> dict[str, Any]:
    return {"mpi": {"enabled": True, **options}}


def smp(parameters: dict[str, Any]) -> dict[str, Any]:
    return {"smdistributed": {"modelparallel": {"enabled": True, "parameters": parameters}}}


def smp_v1(parameters: dict[str, Any], **props: Any) -> Callable[[Any], Any]:
    given = {
        "framework": "pytorch",
        "version": "2.0.0",
        "python": "py310",
        "instance_type": "ml.p4d.24xlarge",
        "count": 2,
    }
    options = {"processes_per_host": 8, "custom_mpi_options": "--mca btl_vader_single_copy_mechanism none"}
    if "processes_per_host" in props:
        options["processes_per_host"] = props.pop("processes_per_host")
    return estimator(**{**given, **props}, distribution={**smp(parameters), **mpi(**options)})


def smp_v2(parameters: dict[str, Any], **props: Any) -> Callable[[Any], Any]:
    given = {
        "framework": "pytorch",
        "version": "2.4.1",
        "python": "py311",
        "instance_type": "ml.p5.48xlarge",
        "count": 4,
    }
    return estimator(**{**given, **props}, distribution={**smp(parameters), **TORCHRUN})


CASES: dict[str, Callable[[Any], Any]] = {
    "torchrun_one_machine": estimator("pytorch", "2.3.0", "py311", "ml.g5.12xlarge", 1, TORCHRUN),
    "torchrun_two_machines": estimator("pytorch", "2.3.0", "py311", "ml.p4d.24xlarge", 2, TORCHRUN),
    "torchrun_refused_processor": estimator("pytorch", "2.3.0", "py311", "ml.c5.xlarge", 2, TORCHRUN),
    "torchrun_groups": on_groups(TORCHRUN),
    "mpi_pytorch": estimator(
        "pytorch",
        "2.3.0",
        "py311",
        "ml.p4d.24xlarge",
        2,
        mpi(processes_per_host=8, custom_mpi_options="-x HOROVOD_FUSION_THRESHOLD=67108864 --NCCL_DEBUG WARN"),
    ),
    "mpi_tensorflow": estimator("tensorflow", "2.11", "py39", "ml.g5.12xlarge", 2, mpi()),
    "mpi_groups": on_groups(mpi(processes_per_host=8)),
    "multi_worker_mirrored": estimator(
        "tensorflow", "2.11", "py39", "ml.g5.12xlarge", 2, {"multi_worker_mirrored_strategy": {"enabled": True}}
    ),
    "multi_worker_mirrored_refused_groups": on_groups(
        {"multi_worker_mirrored_strategy": {"enabled": True}}, "tensorflow"
    ),
    "parameter_server": estimator(
        "tensorflow", "2.11", "py39", "ml.c5.xlarge", 2, {"parameter_server": {"enabled": True}}
    ),
    "parameter_server_refused_groups": on_groups({"parameter_server": {"enabled": True}}, "tensorflow"),
    "pytorchddp_hugging_face": estimator(
        "huggingface", "2.1.0", "py310", "ml.p4d.24xlarge", 2, {"pytorchddp": {"enabled": True}}
    ),
    "model_dir": estimator("tensorflow", "2.11", "py39", "ml.g5.12xlarge", 1, {}, model_dir="s3://bucket/tf/"),
    "smddp_pytorch": estimator("pytorch", "2.0.0", "py310", "ml.p4d.24xlarge", 2, SMDDP),
    "smddp_options": estimator(
        "pytorch",
        "2.0.0",
        "py310",
        "ml.p3.16xlarge",
        2,
        {"smdistributed": {"dataparallel": {"enabled": True, "custom_mpi_options": "-x NCCL_DEBUG=VERSION"}}},
    ),
    "smddp_tensorflow": estimator("tensorflow", "2.11", "py39", "ml.p4d.24xlarge", 1, SMDDP),
    "smddp_torchrun": estimator("pytorch", "2.2.0", "py310", "ml.p5.48xlarge", 2, {**SMDDP, **TORCHRUN}),
    "smddp_refused_p5": estimator("pytorch", "2.2.0", "py310", "ml.p5.48xlarge", 2, SMDDP),
    "smddp_other_type": estimator("pytorch", "2.0.0", "py310", "ml.g5.48xlarge", 2, SMDDP),
    "smddp_groups": on_groups(SMDDP),
    "smp_v1_pipeline": smp_v1(
        {
            "pipeline_parallel_degree": 2,
            "microbatches": 4,
            "placement_strategy": "spread",
            "optimize": "speed",
            "ddp": True,
        }
    ),
    "smp_v1_tensor": smp_v1(
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
    "smp_v1_sharded": smp_v1(
        {
            "sharded_data_parallel_degree": 16,
            "ddp": True,
            "bf16": True,
            "sdp_reduce_bucket_size": 500000000,
            "sdp_gradient_clipping": 1.0,
        }
    ),
    "smp_v1_own_cut": smp_v1(
        {"partitions": 4, "microbatches": 8, "auto_partition": False, "default_partition": 1, "ddp": True},
        instance_type="ml.g4dn.12xlarge",
        processes_per_host=4,
        count=1,
    ),
    "smp_v1_tensorflow": smp_v1(
        {"partitions": 2, "microbatches": 4, "contiguous": False, "horovod": True},
        framework="tensorflow",
        version="2.6.0",
        python="py38",
        instance_type="ml.p3.16xlarge",
    ),
    "smp_v1_refused_permutation": smp_v1(
        {"pipeline_parallel_degree": 2, "microbatches": 4, "placement_strategy": "TDP", "ddp": True}
    ),
    "smp_v1_refused_pipeline": smp_v1({"pipeline_parallel_degree": 2, "pipeline": "zero-bubble"}),
    "smp_v1_refused_no_default_partition": smp_v1({"pipeline_parallel_degree": 2, "auto_partition": False}),
    "smp_v1_refused_ddp_and_horovod": smp_v1({"pipeline_parallel_degree": 2, "ddp": True, "horovod": True}),
    "smp_v1_refused_memory_weight": smp_v1({"pipeline_parallel_degree": 2, "memory_weight": 1.5}),
    "smp_v1_refused_ddp_port": smp_v1({"pipeline_parallel_degree": 2, "ddp_port": 8888}),
    "smp_v1_zero_tensor": smp_v1({"pipeline_parallel_degree": 2, "tensor_parallel_degree": 0}),
    "smp_v1_refused_default_partition": smp_v1({"pipeline_parallel_degree": 2, "default_partition": 1}),
    "smp_v1_other_version": smp_v1({"pipeline_parallel_degree": 2, "hybrid_shard_degree": 8}),
    "smp_v1_product": smp_v1({"pipeline_parallel_degree": 3, "microbatches": 3, "ddp": True}),
    "smp_v1_other_type": smp_v1({"pipeline_parallel_degree": 2, "microbatches": 2}, instance_type="ml.g5.48xlarge"),
    "smp_v2_shard": smp_v2({"hybrid_shard_degree": 8}),
    "smp_v2_tensor": smp_v2({"hybrid_shard_degree": 4, "tensor_parallel_degree": 8, "random_seed": 12345}),
    "smp_v2_context": smp_v2(
        {"hybrid_shard_degree": 16, "context_parallel_degree": 8, "sm_activation_offloading": False}
    ),
    "smp_v2_expert": smp_v2(
        {
            "hybrid_shard_degree": 8,
            "expert_parallel_degree": 4,
            "activation_loading_horizon": 1,
            "fsdp_cache_flush_warnings": False,
            "allow_empty_shards": True,
        },
        version="2.5.1",
        instance_type="ml.p4d.24xlarge",
    ),
    "smp_v2_defaults": smp_v2({}, version="2.1.2", python="py310", instance_type="ml.p4de.24xlarge", count=1),
    "smp_v2_2.0.1": smp_v2(
        {"hybrid_shard_degree": 8}, version="2.0.1", python="py310", instance_type="ml.p4d.24xlarge"
    ),
    "smp_v2_2.0.1_p5": smp_v2({"hybrid_shard_degree": 8}, version="2.0.1", python="py310"),
    "smp_v2_2.2.0": smp_v2({"hybrid_shard_degree": 8}, version="2.2.0", python="py310"),
    "smp_v2_2.3.1": smp_v2({"hybrid_shard_degree": 8}, version="2.3.1"),
    "smp_v2_library_version": smp_v2({"hybrid_shard_degree": 8}, version="2.8.0"),
    "smp_v2_negative": smp_v2({"hybrid_shard_degree": -3}),
    "smp_v2_unknown": smp_v2({"foo": 1}),
    "smp_v2_other_version": smp_v2({"pipeline_parallel_degree": 2}),
    "smp_v2_product": smp_v2({"hybrid_shard_degree": 5}),
    "smp_v2_other_type": smp_v2({"hybrid_shard_degree": 4}, instance_type="ml.g5.12xlarge"),
    # Beside mpi, which starts SMP v1, the SDK sends a group to start it in.
    "smp_v1_groups": on_groups(
        {
            **smp({"pipeline_parallel_degree": 2, "microbatches": 4, "ddp": True}),
            **mpi(processes_per_host=8, custom_mpi_options="--mca btl_vader_single_copy_mechanism none"),
        }
    ),
    "smp_refused_groups": on_groups({**smp({"hybrid_shard_degree": 8}), **TORCHRUN}),
    "smp_refused_groups_v1": on_groups(smp({"pipeline_parallel_degree": 2})),
}
