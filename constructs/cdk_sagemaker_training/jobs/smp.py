"""Versions 1 and 2 of SageMaker's model parallelism library (SMP), as values."""

# ran: `SmpV1()` | request: test_smp | no | no | no
# ran: `SmpV2()` | request: test_smp | no | no | no

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from cdk_sagemaker_training.core.checks import at_least
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import check_listed
from cdk_sagemaker_training.facts.smp_images import SmpImage, smp_v1_image, smp_v2_image
from cdk_sagemaker_training.jobs.advice import Advice, unlisted_advice
from cdk_sagemaker_training.jobs.instance_group import InstanceGroup
from cdk_sagemaker_training.jobs.launchers import Mpi, MpiOptions, Torchrun
from cdk_sagemaker_training.jobs.parallelism import check_degrees, idle_stages_advice, processes_of
from cdk_sagemaker_training.props.prop import IN_JSON, Prop
from cdk_sagemaker_training.props.prop_types import Value, check_fields, check_props_of, table_of

# AWS's archived page "Supported frameworks and AWS Regions" of SMP v1.
_TYPES_OF_V1 = ("ml.g4dn.12xlarge", "ml.p3.16xlarge", "ml.p3dn.24xlarge", "ml.p4d.24xlarge", "ml.p4de.24xlarge")
# AWS's page "Supported frameworks and AWS Regions" of SMP v2 recommends P4 and P5; those with eight GPUs.
_TYPES_OF_V2 = ("ml.p4d.24xlarge", "ml.p4de.24xlarge", "ml.p5.48xlarge", "ml.p5e.48xlarge", "ml.p5en.48xlarge")
# `_distribution_configuration` of estimator.py in the SageMaker Python SDK, version 2: a group is for mpi and SMDDP only.
_NO_GROUPS = "SMP v2 is started by torchrun, with which SageMaker's SDK refuses instance groups for it"


class Parameter(Prop):
    """The record of a parameter of the library.

    Args:
        default: The library's default; text if it depends on other parameters.
        least: The minimum of a number.
        most: The maximum of a number; None if there is none.
        whole: Whether a number must be whole.
    """

    def __init__(
        self, default: Any, *, least: float | None = None, most: float | None = None, whole: bool = True
    ) -> None:
        """Declare a parameter."""
        number = 0.5 if most == 1 else 2 if isinstance(default, str) or default == 0 else default
        super().__init__(
            known=None if isinstance(default, bool) else IN_JSON,
            rule=None if least is None else at_least(least, most, whole=whole),
            example="" if least is None else repr(number),
            listed="smp-parameters",
        )
        self.default = default


_On = Annotated[bool | None, Parameter(True)]
_Off = Annotated[bool | None, Parameter(False)]
_Degree = Annotated[int | None, Parameter(1, least=1)]
_More = Annotated[Mapping[str, Any] | None, IN_JSON]


class _Smp(Value, ABC):
    """What both versions share. Their fields are the library's parameters, but ``more`` and ``custom_mpi_options``."""

    _version: ClassVar[int]
    _types: ClassVar[tuple[str, ...]]

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> Self:
        """Create the value from the ``parameters`` of an SDK estimator's ``distribution``, as in AWS's documentation.

        Args:
            parameters: Values by the parameters' names.

        Raises:
            ValueError: The version has no such parameter, or a value is not allowed.
        """
        _check_names(cls, parameters)
        more = {name: value for name, value in parameters.items() if name not in parameters_of(cls)}
        listed = {name: value for name, value in parameters.items() if name not in more}
        return cls(**listed, **({"more": more} if more else {}))

    def environment(self) -> Mapping[str, str]:
        """Return no environment variables: the library reads hyperparameters."""
        return {}

    def hyperparameters(self, group: InstanceGroup, processes_per_host: int | None) -> Mapping[str, str]:
        """Return the hyperparameters that start the processes.

        Args:
            group: The machines.
            processes_per_host: Number of processes on each host; None for one for each accelerator.

        Raises:
            ValueError: The library does not support the machines, or the degrees do not fit them.
        """
        rule = f"be one that SMP v{self._version} supports"
        example = f"{self._types[0]!r} of {', '.join(self._types)}"
        listed = group.instance_type in self._types
        check_listed("smp-types", group.instance_type, listed, "instance_type", rule, example)
        for degrees in self._products():
            check_degrees(degrees, group, processes_per_host, exactly=False)
        given = self._given()
        machines = {
            "sagemaker_distributed_dataparallel_enabled": "false",
            "sagemaker_instance_type": json.dumps(group.instance_type),
        }
        launched = self._launched(group, processes_per_host, machines)
        return {**({"mp_parameters": json.dumps(given)} if given else {}), **launched}

    def advice(self, group: InstanceGroup, processes_per_host: int | None) -> tuple[Advice, ...]:
        """Return warnings about the layout on these machines.

        Args:
            group: The machines.
            processes_per_host: Number of processes on each host; None for one for each accelerator.
        """
        idle = idle_stages_advice(getattr(self, "microbatches", None) or 1, self._stages)
        return (*idle, *unlisted_advice(self._given()))

    def _check(self) -> None:
        check_fields(self)
        more = getattr(self, "more", None) or {}
        _check_names(type(self), more)
        check_props_of(type(self), more)

    def _given(self) -> dict[str, Any]:
        """The parameters that are not None, in their order."""
        values = {**vars(self)}
        values.pop("custom_mpi_options", None)
        values |= values.pop("more") or {}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def _stages(self) -> int:
        """The number of pipeline stages."""
        return 1

    @abstractmethod
    def _products(self) -> Iterator[Mapping[str, int]]:
        """The degrees whose product divides the number of processes, by name."""

    @abstractmethod
    def _launched(
        self, group: InstanceGroup, processes_per_host: int | None, machines: Mapping[str, str]
    ) -> Mapping[str, str]:
        """The hyperparameters of the launcher, and those about the machines."""


@dataclass(frozen=True)
class SmpV2(_Smp):
    """Version 2 of SMP: PyTorch FSDP with shards of any size, and tensor, context and expert parallelism on top of it.

    Needs AWS's containers for it: ``SmpV2.image``. None leaves a parameter out of the request, so that the library's default
    applies. Sources: AWS's pages "The SageMaker model parallel library v2 reference" and "Use the SageMaker model parallelism
    library v2".

    Args:
        hybrid_shard_degree: Ranks that shard one replica; 1 does not shard. The library's default, 0, uses the script's own
            FSDP strategy, or the largest degree beside tensor parallelism.
        sm_activation_offloading: Whether activation offloading uses SMP's implementation, not PyTorch's; default True.
        activation_loading_horizon: Maximum number of checkpointed or offloaded layers whose inputs are in GPU memory at a time,
            at least 1; default 2.
        fsdp_cache_flush_warnings: Whether to warn of cache flushes in PyTorch's memory manager; default True.
        allow_empty_shards: Whether shards may be empty if a tensor is not divisible; default False.
        tensor_parallel_degree: Ranks of tensor parallelism; default 1.
        context_parallel_degree: Ranks that shard a sequence, at most ``hybrid_shard_degree``; default 1.
        expert_parallel_degree: Ranks that share the experts of a mixture-of-experts model; default 1.
        random_seed: Seed of random operations in SMP's distributed modules; default 12345.
        more: Other parameters, each name ``unlisted``.

    Raises:
        ValueError: A value is not allowed, or a name in ``more`` is not ``unlisted``.
    """

    hybrid_shard_degree: Annotated[int | None, Parameter(0, least=0)] = None
    sm_activation_offloading: _On = None
    activation_loading_horizon: Annotated[int | None, Parameter(2, least=1)] = None
    fsdp_cache_flush_warnings: _On = None
    allow_empty_shards: _Off = None
    tensor_parallel_degree: _Degree = None
    context_parallel_degree: _Degree = None
    expert_parallel_degree: _Degree = None
    random_seed: Annotated[int | None, Parameter(12345, least=0)] = None
    more: _More = None
    alone_because = _NO_GROUPS
    _version, _types = 2, _TYPES_OF_V2

    def __post_init__(self) -> None:
        self._check()
        shard, context = self.hybrid_shard_degree, self.context_parallel_degree
        if shard and context and not is_unresolved(shard) and not is_unresolved(context) and context > shard:
            raise must(
                "context_parallel_degree", "be at most hybrid_shard_degree", f"{shard}", f"{context} with {shard}"
            )

    @staticmethod
    def image(region: str, *, pytorch_version: str = "2.5.1", instance_type: str | None = None) -> SmpImage:
        """Return AWS's container with the library, for ``TrainingImage.from_dlc(self, "Image", **SmpV2.image("us-east-1"))``.

        Args:
            region: The region of the job.
            pytorch_version: Version of PyTorch.
            instance_type: The type of the machines; PyTorch 2.0.1 has a separate image for P5.

        Returns:
            Repository, tag and account, as the arguments of ``TrainingImage.from_dlc``.

        Raises:
            ValueError: AWS has no such container.
        """
        return smp_v2_image(region, pytorch_version, instance_type)

    @property
    def sharding(self) -> int | None:
        """Ranks that shard one replica; None where the script's own FSDP strategy or experts decide."""
        shard, tensor = self.hybrid_shard_degree, self.tensor_parallel_degree or 1
        if not shard or self.expert_parallel_degree or is_unresolved(shard) or is_unresolved(tensor):
            return None
        return shard * tensor

    def _products(self) -> Iterator[Mapping[str, int]]:
        for sharing in ("hybrid_shard_degree", "context_parallel_degree", "expert_parallel_degree"):
            yield {name: getattr(self, name) or 1 for name in ("tensor_parallel_degree", sharing)}

    def _launched(
        self, group: InstanceGroup, processes_per_host: int | None, machines: Mapping[str, str]
    ) -> Mapping[str, str]:
        return {**machines, **Torchrun(processes_per_host).hyperparameters(group)}


@dataclass(frozen=True)
class SmpV1(_Smp):
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

    pipeline_parallel_degree: _Degree = None
    partitions: _Degree = None
    microbatches: Annotated[int | None, Parameter(1, least=1)] = None
    pipeline: Annotated[Literal["interleaved", "simple", "_only_forward"] | None, Parameter("interleaved")] = None
    optimize: Annotated[Literal["memory", "speed"] | None, Parameter("memory")] = None
    placement_strategy: Annotated[
        Literal["cluster", "spread", "DPT", "DTP", "PDT", "PTD", "TDP", "TPD"] | None, Parameter("cluster")
    ] = None
    auto_partition: _On = None
    default_partition: Annotated[int | None, Parameter(0, least=0)] = None
    contiguous: _On = None
    horovod: _Off = None
    memory_weight: Annotated[
        float | None, Parameter("0.2 with optimize='speed', else 0.8", least=0, most=1, whole=False)
    ] = None
    ddp: _Off = None
    ddp_port: Annotated[int | None, Parameter("chosen by the library", least=0, most=65_535)] = None
    ddp_dist_backend: Annotated[Literal["auto", "nccl"] | None, Parameter("auto")] = None
    active_microbatches: Annotated[int | None, Parameter("the degree of the pipeline + 2", least=1)] = None
    deterministic_server: _Off = None
    offload_activations: _Off = None
    activation_loading_horizon: Annotated[int | None, Parameter(4, least=1)] = None
    tensor_parallel_degree: _Degree = None
    fp16: _Off = None
    fp16_params: _Off = None
    bf16: _Off = None
    delayed_parameter_initialization: _Off = None
    shard_optimizer_state: _Off = None
    prescaled_batch: _Off = None
    skip_tracing: _Off = None
    sharded_data_parallel_degree: _Degree = None
    sdp_reduce_bucket_size: Annotated[float | None, Parameter(500_000_000, least=1, whole=False)] = None
    sdp_param_persistence_threshold: Annotated[float | None, Parameter(1_000_000, least=0, whole=False)] = None
    sdp_max_live_parameters: Annotated[float | None, Parameter(1_000_000_000, least=1, whole=False)] = None
    sdp_hierarchical_allgather: _On = None
    sdp_gradient_clipping: Annotated[float | None, Parameter(1.0, least=0, whole=False)] = None
    custom_mpi_options: MpiOptions = "--mca btl_vader_single_copy_mechanism none"
    more: _More = None
    alone_because = ""
    _version, _types = 1, _TYPES_OF_V1

    def __post_init__(self) -> None:
        self._check()
        shown = ", ".join(f"{name}={value!r}" for name, value in self._given().items()) or "no parameters"
        for broken, prop, rule, example in self._rules():
            if broken:
                raise must(prop, rule, example, shown)

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

    def _products(self) -> Iterator[Mapping[str, int]]:
        tensor = {"tensor_parallel_degree": self.tensor_parallel_degree or 1}
        yield {"pipeline_parallel_degree": self._stages, **tensor}
        yield {"sharded_data_parallel_degree": self.sharded_data_parallel_degree or 1, **tensor}

    def _launched(
        self, group: InstanceGroup, processes_per_host: int | None, machines: Mapping[str, str]
    ) -> Mapping[str, str]:
        mpi = Mpi(processes_of(group, processes_per_host), self.custom_mpi_options)
        return {**mpi.hyperparameters(group), **machines}

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
        ddp_and_horovod, both_precisions = bool(self.ddp and self.horovod), bool(self.fp16 and self.bf16)
        sharded_twice = sharded and bool(self.shard_optimizer_state)
        needing_ddp = "tensor_parallel_degree, ddp_port and ddp_dist_backend"
        shards_too = "be left out with sharded_data_parallel_degree, which shards it too"
        return [
            (both, "partitions", "be left out with pipeline_parallel_degree, its other name", "partitions=None"),
            (not has_stages and not sharded, "pipeline_parallel_degree", "be set", "pipeline_parallel_degree=2"),
            (no_default, "default_partition", "be set with auto_partition=False", "default_partition=0"),
            ((self.default_partition or 0) >= stages, "default_partition", f"be less than {stages}, the stages", "0"),
            (ddp_and_horovod, "horovod", "be left out with ddp, which reduces gradients too", "horovod=None"),
            (needs_ddp and not self.ddp, "ddp", f"be True with {needing_ddp}", "ddp=True"),
            (both_precisions, "bf16", "be left out with fp16, the other precision", "bf16=None"),
            (sharded and stages > 1, "pipeline_parallel_degree", "be 1 with sharded_data_parallel_degree", "1"),
            (sharded_twice, "shard_optimizer_state", shards_too, "shard_optimizer_state=None"),
        ]


def parameters_of(version: Any) -> Mapping[str, Parameter]:
    """Return the table of a version's parameters, by name.

    The defaults and ranges of version 2 are those of AWS's page "The SageMaker model parallel library v2 reference", section
    "core feature configuration parameters"; of version 1 those of smd_model_parallel_general.rst of the SageMaker Python SDK
    2.199.0, and for parameters that are newer than its tables, AWS's archived pages on SMP v1: sharded data parallelism, FP16
    training, delayed parameter initialization.
    """
    return {name: record for name, record in table_of(version).items() if isinstance(record, Parameter)}


def _check_names(version: type[_Smp], names: Mapping[str, Any]) -> None:
    """Check that a version has the parameters; ``unlisted`` names pass."""
    table, other = parameters_of(version), parameters_of(SmpV2 if version is SmpV1 else SmpV1)
    rule, example, has = f"be those of SMP v{version._version}", f"{{{next(iter(table))!r}: 2}}", ", ".join(table)
    for name in names:
        if name in other and name not in table:
            got = f"{name!r}, which is one of SMP v{3 - version._version}: it has {has}"
            raise must("parameters", rule, example, got)
        check_listed("smp-parameters", name, name in table, "parameters", rule, example, f"{name!r}: it has {has}")
