"""Version 1 of SageMaker's model parallelism library (SMP), as a value."""

# ran: `SmpV1()` | request: test_smp | no | no | no

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.facts.smp_images import SmpImage, smp_v1_image
from cdk_sagemaker_training.facts.smp_parameters import V1, check_names, check_parameters
from cdk_sagemaker_training.jobs.advice import Advice
from cdk_sagemaker_training.jobs.instance_group import InstanceGroup
from cdk_sagemaker_training.jobs.launchers import Mpi
from cdk_sagemaker_training.jobs.parallelism import check_divides, idle_stages_advice, processes_of
from cdk_sagemaker_training.jobs.smp_requests import (
    arguments_of,
    check_instance_type,
    mp_parameters,
    set_parameters,
    unlisted_parameters_advice,
)
from cdk_sagemaker_training.props.prop_types import check_fields

# AWS's archived page "Supported frameworks and AWS Regions" of SMP v1.
_TYPES = ("ml.g4dn.12xlarge", "ml.p3.16xlarge", "ml.p3dn.24xlarge", "ml.p4d.24xlarge", "ml.p4de.24xlarge")


@dataclass(frozen=True)
class SmpV1:
    """Version 1 of SMP, archived since December 2023: pipeline, tensor and sharded data parallelism for older frameworks.

    Needs AWS's containers of PyTorch up to 2.0.0 or TensorFlow up to 2.6.0: ``SmpV1.image``. mpirun starts one process for each
    GPU. None leaves a parameter out of the request, so that the library's default applies. One of ``pipeline_parallel_degree``,
    ``partitions`` and ``sharded_data_parallel_degree`` is required. Sources: smd_model_parallel_general.rst of the SageMaker
    Python SDK 2.199.0; AWS's archived pages on SMP v1.

    Args:
        pipeline_parallel_degree: Number of pipeline stages (PyTorch); default 1.
        partitions: Number of pipeline stages (TensorFlow's name); default 1.
        microbatches: Number of microbatches of a batch; default 1.
        pipeline: Pipeline schedule: ``"interleaved"`` (default), ``"simple"`` or ``"_only_forward"``.
        optimize: Distribution of tensor-parallel transformer layers: ``"memory"`` (default) stores no redundant activations,
            ``"speed"`` communicates less.
        placement_strategy: Mapping of partitions to devices: ``"cluster"`` (default), ``"spread"`` or a permutation of
            ``"DPT"``.
        auto_partition: Whether the library partitions the model; default True.
        default_partition: Partition of layers without one, below the number of stages; required with ``auto_partition=False``.
        contiguous: Whether partitions are contiguous; default True (TensorFlow).
        horovod: Whether Horovod reduces gradients; default False (TensorFlow). Not with ``ddp``.
        memory_weight: Weight of balanced memory in the automatic partitioning, from 0 to 1; default 0.2 with
            ``optimize="speed"``, else 0.8.
        ddp: Whether DistributedDataParallel reduces gradients; default False (PyTorch). Required with tensor parallelism.
        ddp_port: Port of DistributedDataParallel, 0 to 65535; chosen by the library by default.
        ddp_dist_backend: Backend of DistributedDataParallel: ``"auto"`` (default) or ``"nccl"``.
        active_microbatches: Maximum number of microbatches in the pipeline; default the number of stages + 2.
        deterministic_server: Whether the pipeline runs in a deterministic order; default False.
        offload_activations: Whether checkpointed activations are kept in host memory; default False.
        activation_loading_horizon: Number of tasks ahead of which offloaded activations are loaded, at least 1; default 4.
        tensor_parallel_degree: Ranks of tensor parallelism; default 1.
        fp16: Whether the model trains in fp16; default False. Not with ``bf16``.
        fp16_params: Whether parameters of distributed modules are initialized in fp16; default False.
        bf16: Whether the model trains in bf16; default False. Not with ``fp16``.
        delayed_parameter_initialization: Whether parameters are initialized after partitioning; default False.
        shard_optimizer_state: Whether the optimizer state is sharded; default False. Not with sharded data parallelism.
        prescaled_batch: Whether ranks of tensor parallelism receive the same batch; default False.
        skip_tracing: Whether the initial tracing step is skipped; default False.
        sharded_data_parallel_degree: Ranks that shard the model's state (sharded data parallelism); default 1.
        sdp_reduce_bucket_size: Maximum size of a gradient bucket, in elements; default 5e8.
        sdp_param_persistence_threshold: Size up to which every GPU keeps a parameter whole, in elements; default 1e6.
        sdp_max_live_parameters: Maximum number of gathered parameters at a time, in elements; default 1e9.
        sdp_hierarchical_allgather: Whether the allgather is hierarchical; default True.
        sdp_gradient_clipping: Maximum L2 norm of gradients; default 1.0.
        custom_mpi_options: Options of mpirun, by default those that AWS's documentation recommends.
        more: Other parameters, each name ``unlisted``.

    Raises:
        ValueError: A value is not allowed, parameters contradict each other, or a name in ``more`` is not ``unlisted``.
    """

    pipeline_parallel_degree: int | None = None
    partitions: int | None = None
    microbatches: int | None = None
    pipeline: str | None = None
    optimize: str | None = None
    placement_strategy: str | None = None
    auto_partition: bool | None = None
    default_partition: int | None = None
    contiguous: bool | None = None
    horovod: bool | None = None
    memory_weight: float | None = None
    ddp: bool | None = None
    ddp_port: int | None = None
    ddp_dist_backend: str | None = None
    active_microbatches: int | None = None
    deterministic_server: bool | None = None
    offload_activations: bool | None = None
    activation_loading_horizon: int | None = None
    tensor_parallel_degree: int | None = None
    fp16: bool | None = None
    fp16_params: bool | None = None
    bf16: bool | None = None
    delayed_parameter_initialization: bool | None = None
    shard_optimizer_state: bool | None = None
    prescaled_batch: bool | None = None
    skip_tracing: bool | None = None
    sharded_data_parallel_degree: int | None = None
    sdp_reduce_bucket_size: float | None = None
    sdp_param_persistence_threshold: float | None = None
    sdp_max_live_parameters: float | None = None
    sdp_hierarchical_allgather: bool | None = None
    sdp_gradient_clipping: float | None = None
    custom_mpi_options: str = "--mca btl_vader_single_copy_mechanism none"
    more: Mapping[str, Any] | None = None
    alone_because = ""

    def __post_init__(self) -> None:
        check_fields(self)
        check_names(1, self.more or {})
        check_parameters(V1, set_parameters(self))
        for rule, prop, must, like in self._rules():
            if rule:
                raise ValueError(f"{prop} must {must}, like {like}, got {_shown(self)}")

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> Self:
        """Create the value from the ``parameters`` of an SDK estimator's ``distribution``, as in AWS's documentation.

        Args:
            parameters: Values by the parameters' names.

        Raises:
            ValueError: The version has no such parameter, or a value is not allowed.
        """
        check_names(1, parameters)
        return cls(**arguments_of(V1, parameters))

    @staticmethod
    def image(region: str, *, framework: str = "pytorch", version: str = "2.0.0") -> SmpImage:
        """Return AWS's container with the library, for ``TrainingImage.from_dlc(self, "Image", **SmpV1.image("us-east-1"))``.

        Args:
            region: The region of the job.
            framework: ``"pytorch"`` or ``"tensorflow"``.
            version: Version of the framework.

        Returns:
            Repository, tag and account, as the arguments of ``TrainingImage.from_dlc``.

        Raises:
            ValueError: AWS has no such container.
        """
        return smp_v1_image(region, framework, version)

    @property
    def sharding(self) -> int | None:
        """Return None: version 1 may keep optimizer state, and whole parameters, on few of its ranks."""
        return None

    def hyperparameters(self, group: InstanceGroup, processes_per_host: int | None) -> Mapping[str, str]:
        """Return the hyperparameters that start the processes.

        Args:
            group: The machines.
            processes_per_host: Number of processes on each host; None for one for each accelerator.

        Raises:
            ValueError: The library does not support the machines, or the degrees do not fit them.
        """
        check_instance_type(1, group, _TYPES)
        tensor = {"tensor_parallel_degree": self.tensor_parallel_degree or 1}
        check_divides({"pipeline_parallel_degree": self._stages, **tensor}, group, processes_per_host)
        sharing = {"sharded_data_parallel_degree": self.sharded_data_parallel_degree or 1}
        check_divides({**sharing, **tensor}, group, processes_per_host)
        return {
            **mp_parameters(self),
            **Mpi(processes_of(group, processes_per_host), self.custom_mpi_options).hyperparameters(group),
            "sagemaker_distributed_dataparallel_enabled": "false",
            "sagemaker_instance_type": json.dumps(group.instance_type),
        }

    def environment(self) -> Mapping[str, str]:
        """Return no environment variables: the library reads hyperparameters."""
        return {}

    def advice(self, group: InstanceGroup, processes_per_host: int | None) -> tuple[Advice, ...]:
        """Return warnings about the layout on these machines.

        Args:
            group: The machines.
            processes_per_host: Number of processes on each host; None for one for each accelerator.
        """
        microbatches = self.microbatches or 1
        if is_unresolved(microbatches) or is_unresolved(self._stages) or microbatches >= self._stages:
            return unlisted_parameters_advice(self)
        return (*idle_stages_advice("microbatches", microbatches, self._stages), *unlisted_parameters_advice(self))

    @property
    def _stages(self) -> int:
        return self.pipeline_parallel_degree or self.partitions or 1

    def _rules(self) -> list[tuple[bool, str, str, str]]:
        """Return the rules between parameters: whether it is broken, the prop, the rule and an example.

        From the SDK's validate_mp_config (fw_utils.py) and AWS's archived page "Sharded Data Parallelism", its tips.
        """
        stages, sharded = self._stages, (self.sharded_data_parallel_degree or 1) > 1
        has_stages = self.pipeline_parallel_degree is not None or self.partitions is not None
        both = self.pipeline_parallel_degree is not None and self.partitions is not None
        needs_ddp = (self.ddp_port, self.ddp_dist_backend) != (None, None) or (self.tensor_parallel_degree or 1) > 1
        no_default = self.auto_partition is False and self.default_partition is None
        return [
            (both, "partitions", "be left out with pipeline_parallel_degree, its other name", "partitions=None"),
            (not has_stages and not sharded, "pipeline_parallel_degree", "be set", "pipeline_parallel_degree=2"),
            (no_default, "default_partition", "be set with auto_partition=False", "default_partition=0"),
            ((self.default_partition or 0) >= stages, "default_partition", f"be less than {stages}, the stages", "0"),
            (
                bool(self.ddp and self.horovod),
                "horovod",
                "be left out with ddp, which reduces gradients too",
                "horovod=None",
            ),
            (
                needs_ddp and not self.ddp,
                "ddp",
                "be True with tensor_parallel_degree, ddp_port and ddp_dist_backend",
                "ddp=True",
            ),
            (bool(self.fp16 and self.bf16), "bf16", "be left out with fp16, the other precision", "bf16=None"),
            (sharded and stages > 1, "pipeline_parallel_degree", "be 1 with sharded_data_parallel_degree", "1"),
            (
                sharded and bool(self.shard_optimizer_state),
                "shard_optimizer_state",
                "be left out with sharded_data_parallel_degree, which shards it too",
                "shard_optimizer_state=None",
            ),
        ]


def _shown(parallelism: SmpV1) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in set_parameters(parallelism).items()) or "no parameters"
