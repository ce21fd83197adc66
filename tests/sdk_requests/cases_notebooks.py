"""The estimators of AWS's own notebooks, with their types, counts, versions and distributions.

From amazon-sagemaker-examples at 2d519b52: each notebook's path is beside it, below ``build_and_train_models/`` where it does not
begin with another folder. Left out are data, VPC and the hyperparameters of the script but a few.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ROLE = "arn:aws:iam::123456789012:role/Training"
SMP_OPTIONS = (
    "-x NCCL_DEBUG=WARN -x SMDEBUG_LOG_LEVEL=ERROR -x SMP_DISABLE_D2D=1 -x SMP_D2D_GPU_BUFFER_SIZE_BYTES=1 "
    "-x SMP_NCCL_THROTTLE_LIMIT=1 -x FI_EFA_USE_DEVICE_RDMA=1 -x FI_PROVIDER=efa -x RDMAV_FORK_SAFE=1"
)


def estimator(framework: str, version: str, python: str, **props: Any) -> Callable[[Any], Any]:
    def make(session: Any) -> Any:
        from sagemaker.instance_group import InstanceGroup
        from sagemaker.pytorch import PyTorch, TrainingCompilerConfig
        from sagemaker.tensorflow import TensorFlow

        own = dict(props)
        if own.pop("compiled", False):
            own["compiler_config"] = TrainingCompilerConfig()
        if groups := own.pop("groups", None):
            own["instance_groups"] = [InstanceGroup(*group) for group in groups]
        return {"pytorch": PyTorch, "tensorflow": TensorFlow}[framework](
            **{
                "role": ROLE,
                "entry_point": "train.py",
                "source_dir": "s3://bucket/job/source/sourcedir.tar.gz",
                "framework_version": version,
                "py_version": python,
                "output_path": "s3://bucket/models/",
                "sagemaker_session": session,
                "disable_profiler": True,
                "debugger_hook_config": False,
                **({"model_dir": False} if framework == "tensorflow" else {}),
                **own,
            }
        )

    return make


def smp(parameters: dict[str, Any]) -> dict[str, Any]:
    return {"smdistributed": {"modelparallel": {"enabled": True, "parameters": parameters}}}


def smp_v2(version: str, count: int = 1, instance_type: str = "ml.p4d.24xlarge", **parameters: Any) -> Any:
    distribution = {"torch_distributed": {"enabled": True}, **smp(parameters)}
    props = {"volume_size": 400, "max_run": 86_400, "disable_profiler": None}
    machines = {"instance_type": instance_type, "instance_count": count}
    return estimator("pytorch", version, "py311", distribution=distribution, **machines, **props)


def sharded(version: str, python: str, count: int, degree: int) -> Any:
    """The SMP v1 notebooks with sharded data parallelism."""
    parameters = {
        "ddp": True,
        "skip_tracing": True,
        "delayed_parameter_initialization": True,
        "offload_activations": False,
        "activation_loading_horizon": 4,
        "sharded_data_parallel_degree": degree,
        "fp16": False,
        "bf16": True,
        "partitions": 1,
    }
    return smp_v1("pytorch", version, python, "ml.p4d.24xlarge", count, 8, SMP_OPTIONS, parameters)


def smp_v1(
    framework: str,
    version: str,
    python: str,
    instance_type: str,
    count: int,
    processes: int,
    options: str,
    parameters: Any,
) -> Any:
    mpi = {"enabled": True, "processes_per_host": processes, "custom_mpi_options": options}
    machines = {"instance_type": instance_type, "instance_count": count}
    return estimator(framework, version, python, distribution={"mpi": mpi, **smp(parameters)}, **machines)


CASES: dict[str, Callable[[Any], Any]] = {
    # sm-training_compliler_single_node_single_gpu_bert
    "notebook_compiler_bert": estimator(
        "pytorch",
        "1.13.1",
        "py39",
        compiled=True,
        instance_type="ml.p3.2xlarge",
        instance_count=1,
        volume_size=68,
        hyperparameters={
            "epochs": 4,
            "train_batch_size": 36,
            "model_name": "bert-base-cased",
            "learning_rate": 5e-5 / 32 * 36,
        },
    ),
    # sm-training_compiler_language_modeling_multi_gpu_multi_node
    "notebook_compiler_language_modeling": estimator(
        "pytorch",
        "1.13.1",
        "py39",
        compiled=True,
        instance_type="ml.p4d.24xlarge",
        instance_count=2,
        distribution={"pytorchxla": {"enabled": True}},
        hyperparameters={"per_device_train_batch_size": 42, "dataloader_drop_last": True, "logging_strategy": "epoch"},
    ),
    # sm-distributed_model_parallel
    "notebook_smp_v1_tensorflow": smp_v1(
        "tensorflow",
        "2.3.1",
        "py37",
        "ml.p3.16xlarge",
        1,
        2,
        "-verbose -x orte_base_help_aggregate=0 ",
        {"microbatches": 2, "partitions": 2, "pipeline": "interleaved", "optimize": "memory"},
    ),
    # archived/falcon, archived/smp-gpt-sharded-data-parallel, archived/smp-train-t5-sharded-data-parallel
    "notebook_smp_v1_falcon": sharded("2.0", "py310", 2, 16),
    "notebook_smp_v1_gpt": sharded("1.13", "py39", 16, 32),
    "notebook_smp_v1_t5": sharded("1.13", "py39", 2, 16),
    # archived/smp-train-gptj-sharded-data-parallel-tp
    "notebook_smp_v1_gptj": smp_v1(
        "pytorch",
        "1.13",
        "py39",
        "ml.p4d.24xlarge",
        1,
        8,
        SMP_OPTIONS,
        {
            "ddp": True,
            "tensor_parallel_degree": 4,
            "partitions": 1,
            "shard_optimizer_state": False,
            "prescaled_batch": True,
            "optimize": "speed",
            "skip_tracing": True,
            "delayed_parameter_initialization": True,
            "offload_activations": False,
            "sharded_data_parallel_degree": 2,
            "fp16": False,
            "bf16": True,
        },
    ),
    # sm-distributed_model_parallel_v2/gpt-neox
    "notebook_smp_v2_gpt_neox": smp_v2(
        "2.4.1",
        activation_loading_horizon=2,
        hybrid_shard_degree=4,
        sm_activation_offloading=True,
        tensor_parallel_degree=2,
    ),
    # sm-distributed_model_parallel_v2/llama_v2_v3, with context parallelism
    "notebook_smp_v2_llama_context": smp_v2(
        "2.4.1",
        activation_loading_horizon=2,
        context_parallel_degree=2,
        hybrid_shard_degree=4,
        sm_activation_offloading=False,
        tensor_parallel_degree=2,
    ),
    # sm-distributed_model_parallel_v2/mixtral
    "notebook_smp_v2_mixtral": smp_v2(
        "2.4.1",
        8,
        activation_loading_horizon=2,
        hybrid_shard_degree=32,
        sm_activation_offloading=False,
        expert_parallel_degree=2,
    ),
    # generative_ai/sm-fsdp_training_of_llama_v2_with_fp8_on_p5
    "notebook_smp_v2_llama_fp8": smp_v2(
        "2.3.1",
        1,
        "ml.p5.48xlarge",
        activation_loading_horizon=2,
        hybrid_shard_degree=4,
        sm_activation_offloading=False,
        tensor_parallel_degree=2,
    ),
    # sm-heterogeneous_clusters_for_model_training
    "notebook_groups_pytorch": estimator(
        "pytorch",
        "1.11.0",
        "py38",
        groups=[("data_group", "ml.c5.9xlarge", 1), ("dnn_group", "ml.p3.2xlarge", 1)],
        volume_size=10,
        max_run=4800,
        hyperparameters={"batch-size": 8192, "num-data-workers": 4, "grpc-workers": 4, "pin-memory": True},
    ),
    # sm-heterogeneous_clusters_training
    "notebook_groups_tensorflow": estimator(
        "tensorflow",
        "2.9",
        "py39",
        groups=[("data_group", "ml.c5.xlarge", 1), ("dnn_group", "ml.m4.xlarge", 1)],
        volume_size=10,
        max_run=3600,
    ),
}
