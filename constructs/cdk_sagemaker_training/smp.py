"""SageMaker's model parallelism library (SMP), its versions 2 and 1, as values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from cdk_sagemaker_training.advice import Advice
from cdk_sagemaker_training.instance_group import InstanceGroup
from cdk_sagemaker_training.launchers import Mpi, Torchrun
from cdk_sagemaker_training.parallelism import check_divides, idle_stages_advice, processes_of
from cdk_sagemaker_training.prop_types import check_fields
from cdk_sagemaker_training.smp_images import SmpImage, smp_v1_image, smp_v2_image
from cdk_sagemaker_training.smp_parameters import V1, V2, check_names, check_parameters
from cdk_sagemaker_training.tokens import is_unresolved
from cdk_sagemaker_training.unlisted import check_listed, unlisted_values, unlisted_warning

# AWS's page "Supported frameworks and AWS Regions" of SMP v2 recommends P4 and P5; those with eight GPUs.
_V2_TYPES = ("ml.p4d.24xlarge", "ml.p4de.24xlarge", "ml.p5.48xlarge", "ml.p5e.48xlarge", "ml.p5en.48xlarge")
# The archived page of the same name of SMP v1.
_V1_TYPES = ("ml.g4dn.12xlarge", "ml.p3.16xlarge", "ml.p3dn.24xlarge", "ml.p4d.24xlarge", "ml.p4de.24xlarge")
# `_distribution_configuration` of estimator.py in the SageMaker Python SDK, version 2: a group is for mpi and SMDDP only.
_NO_GROUPS = "SMP v2 is started by torchrun, with which SageMaker's SDK refuses instance groups for it"


@dataclass(frozen=True)
class SmpV2:
    """Version 2 of SMP: PyTorch FSDP with shards of any size, and tensor, context and expert parallel on top of it.

    Only what is said is sent; the library's own defaults are in parentheses. ``hybrid_shard_degree`` (0: the script's own FSDP
    strategy, or as much as fits beside tensor parallel; 1 shards nothing), ``sm_activation_offloading`` (True),
    ``activation_loading_horizon`` (2), ``fsdp_cache_flush_warnings`` (True), ``allow_empty_shards`` (False),
    ``tensor_parallel_degree``, ``context_parallel_degree`` (at most the shard degree) and ``expert_parallel_degree`` (1 each),
    ``random_seed`` (of tensor parallel's initial values). ``more`` has parameters that are newer than these, each name
    ``unlisted``. Runs in AWS's containers for it: ``SmpV2.image``.

    Sources: AWS's pages "The SageMaker model parallel library v2 reference" and "Use the SageMaker model parallelism library v2".
    """

    hybrid_shard_degree: int | None = None
    sm_activation_offloading: bool | None = None
    activation_loading_horizon: int | None = None
    fsdp_cache_flush_warnings: bool | None = None
    allow_empty_shards: bool | None = None
    tensor_parallel_degree: int | None = None
    context_parallel_degree: int | None = None
    expert_parallel_degree: int | None = None
    random_seed: int | None = None
    more: Mapping[str, Any] | None = None
    alone_because: ClassVar[str] = _NO_GROUPS

    def __post_init__(self) -> None:
        check_fields(self)
        check_names(2, self.more or {})
        check_parameters(V2, _given(self))
        shard, context = self.hybrid_shard_degree, self.context_parallel_degree
        if shard and context and not is_unresolved(shard) and not is_unresolved(context) and context > shard:
            raise ValueError(
                f"context_parallel_degree must be at most hybrid_shard_degree, like {shard}, got {context} with {shard}"
            )

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> Self:
        """The same from the ``parameters`` of an estimator's ``distribution``, as AWS's documentation writes them."""
        check_names(2, parameters)
        return cls(**_arguments(V2, parameters))

    @staticmethod
    def image(region: str, *, pytorch_version: str = "2.5.1", instance_type: str | None = None) -> SmpImage:
        """AWS's container with the library, for ``TrainingImage.from_dlc(self, "Image", **SmpV2.image("us-east-1"))``."""
        return smp_v2_image(region, pytorch_version, instance_type)

    def hyperparameters(self, group: InstanceGroup, processes_per_host: int | None) -> Mapping[str, str]:
        _check_type(2, group, _V2_TYPES)
        for sharing in ("hybrid_shard_degree", "context_parallel_degree", "expert_parallel_degree"):
            names = ("tensor_parallel_degree", sharing)
            check_divides({name: getattr(self, name) or 1 for name in names}, group, processes_per_host)
        return {
            **_mp_parameters(self),
            "sagemaker_distributed_dataparallel_enabled": "false",
            "sagemaker_instance_type": json.dumps(group.instance_type),
            **Torchrun(processes_per_host).hyperparameters(group),
        }

    def environment(self) -> Mapping[str, str]:
        return {}

    def advice(self, group: InstanceGroup, processes_per_host: int | None) -> tuple[Advice, ...]:
        return _unlisted_advice(self)


@dataclass(frozen=True)
class SmpV1:
    """Version 1 of SMP, which is archived since December 2023: pipelines by the library's own cut, for models in fp16.

    Only what is said is sent; ``more`` has parameters whose names are ``unlisted``. ``smp_parameters.py`` has every parameter
    with its range and the library's default. One of ``pipeline_parallel_degree`` (PyTorch) and ``partitions`` (TensorFlow),
    which mean the same, is needed, or
    ``sharded_data_parallel_degree``. mpirun starts one process for each GPU, of all machines or of one group beside others;
    ``custom_mpi_options`` are options of it, by default the one that AWS's documentation recommends. Runs in AWS's containers of
    PyTorch up to 2.0.0 and TensorFlow up to 2.6.0:
    ``SmpV1.image``.

    Sources: smd_model_parallel_general.rst of the SageMaker Python SDK 2.199.0; AWS's archived pages on SMP v1.
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
    alone_because: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_fields(self)
        check_names(1, self.more or {})
        check_parameters(V1, _given(self))
        for rule, prop, must, like in self._rules():
            if rule:
                raise ValueError(f"{prop} must {must}, like {like}, got {_shown(self)}")

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> Self:
        """The same from the ``parameters`` of an estimator's ``distribution``, as AWS's documentation writes them."""
        check_names(1, parameters)
        return cls(**_arguments(V1, parameters))

    @staticmethod
    def image(region: str, *, framework: str = "pytorch", version: str = "2.0.0") -> SmpImage:
        """AWS's container with the library, for ``TrainingImage.from_dlc(self, "Image", **SmpV1.image("us-east-1"))``."""
        return smp_v1_image(region, framework, version)

    def hyperparameters(self, group: InstanceGroup, processes_per_host: int | None) -> Mapping[str, str]:
        _check_type(1, group, _V1_TYPES)
        tensor = {"tensor_parallel_degree": self.tensor_parallel_degree or 1}
        check_divides({"pipeline_parallel_degree": self._stages, **tensor}, group, processes_per_host)
        sharing = {"sharded_data_parallel_degree": self.sharded_data_parallel_degree or 1}
        check_divides({**sharing, **tensor}, group, processes_per_host)
        return {
            **_mp_parameters(self),
            **Mpi(processes_of(group, processes_per_host), self.custom_mpi_options).hyperparameters(group),
            "sagemaker_distributed_dataparallel_enabled": "false",
            "sagemaker_instance_type": json.dumps(group.instance_type),
        }

    def environment(self) -> Mapping[str, str]:
        return {}

    def advice(self, group: InstanceGroup, processes_per_host: int | None) -> tuple[Advice, ...]:
        microbatches = self.microbatches or 1
        if is_unresolved(microbatches) or is_unresolved(self._stages) or microbatches >= self._stages:
            return _unlisted_advice(self)
        return (*idle_stages_advice("microbatches", microbatches, self._stages), *_unlisted_advice(self))

    @property
    def _stages(self) -> int:
        return self.pipeline_parallel_degree or self.partitions or 1

    def _rules(self) -> list[tuple[bool, str, str, str]]:
        """What parameters demand of each other: whether it is broken, the prop, the rule and an example.

        From the SDK's validate_mp_config (fw_utils.py) and AWS's archived page "Sharded Data Parallelism", its tips.
        """
        stages, sharded = self._stages, (self.sharded_data_parallel_degree or 1) > 1
        has_stages = self.pipeline_parallel_degree is not None or self.partitions is not None
        both = self.pipeline_parallel_degree is not None and self.partitions is not None
        needs_ddp = (self.ddp_port, self.ddp_dist_backend) != (None, None) or (self.tensor_parallel_degree or 1) > 1
        no_default = self.auto_partition is False and self.default_partition is None
        return [
            (both, "partitions", "be left out beside pipeline_parallel_degree, its other name", "partitions=None"),
            (not has_stages and not sharded, "pipeline_parallel_degree", "be said", "pipeline_parallel_degree=2"),
            (no_default, "default_partition", "be said with auto_partition=False", "default_partition=0"),
            ((self.default_partition or 0) >= stages, "default_partition", f"be less than {stages}, the stages", "0"),
            (
                bool(self.ddp and self.horovod),
                "horovod",
                "be left out beside ddp, of which one reduces",
                "horovod=None",
            ),
            (
                needs_ddp and not self.ddp,
                "ddp",
                "be True with tensor_parallel_degree, ddp_port and ddp_dist_backend",
                "ddp=True",
            ),
            (bool(self.fp16 and self.bf16), "bf16", "be left out beside fp16, of which one is used", "bf16=None"),
            (sharded and stages > 1, "pipeline_parallel_degree", "be 1 with sharded_data_parallel_degree", "1"),
            (
                sharded and bool(self.shard_optimizer_state),
                "shard_optimizer_state",
                "be left out with sharded_data_parallel_degree, which shards it too",
                "shard_optimizer_state=None",
            ),
        ]


def _given(parallelism: SmpV1 | SmpV2) -> dict[str, Any]:
    """What was said of the library's parameters, in their order."""
    said = {field.name: getattr(parallelism, field.name) for field in fields(parallelism)}
    said.pop("custom_mpi_options", None)
    said |= said.pop("more") or {}
    return {name: value for name, value in said.items() if value is not None}


def _arguments(table: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as arguments of the value, those that its table lacks among ``more``."""
    listed = {name: value for name, value in parameters.items() if name in table}
    more = {name: value for name, value in parameters.items() if name not in table}
    return {**listed, **({"more": more} if more else {})}


def _unlisted_advice(parallelism: SmpV1 | SmpV2) -> tuple[Advice, ...]:
    return tuple(Advice(*unlisted_warning(one)) for one in unlisted_values(_given(parallelism)))


def _shown(parallelism: SmpV1) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in _given(parallelism).items()) or "no parameters"


def _mp_parameters(parallelism: SmpV1 | SmpV2) -> dict[str, str]:
    given = _given(parallelism)
    return {"mp_parameters": json.dumps(given)} if given else {}


def _check_type(version: int, group: InstanceGroup, supported: tuple[str, ...]) -> None:
    check_listed(
        "smp-types",
        group.instance_type,
        group.instance_type in supported,
        f"instance_type must be one that SMP v{version} supports, like {supported[0]!r} of {', '.join(supported)}",
    )
