"""Versions 1 and 2 of SageMaker's model parallelism library (SMP), as values."""

# ran: `SmpV1()` | request: test_smp | no | no | no
# ran: `SmpV2()` | request: test_smp | no | no | no

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal

from cdk_sagemaker_training.core.checks import at_least
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import check_listed
from cdk_sagemaker_training.facts.smp_images import smp_v1_image, smp_v2_image
from cdk_sagemaker_training.jobs.advice import Advice, unlisted_advice
from cdk_sagemaker_training.jobs.instance_group import InstanceGroup
from cdk_sagemaker_training.jobs.launchers import Mpi, MpiOptions, Torchrun
from cdk_sagemaker_training.jobs.parallelism import check_degrees, idle_stages_advice, processes_of
from cdk_sagemaker_training.props.prop import IN_JSON, Prop
from cdk_sagemaker_training.props.prop_types import Value, check_fields, check_props_of, did_you_mean
from training_jobs.facts.smp_v1 import smp_v1_parameters

# AWS's archived page "Supported frameworks and AWS Regions" of SMP v1.
_TYPES_OF_V1 = ("ml.g4dn.12xlarge", "ml.p3.16xlarge", "ml.p3dn.24xlarge", "ml.p4d.24xlarge", "ml.p4de.24xlarge")
# AWS's page "Supported frameworks and AWS Regions" of SMP v2 recommends P4 and P5; those with eight GPUs.
_TYPES_OF_V2 = ("ml.p4d.24xlarge", "ml.p4de.24xlarge", "ml.p5.48xlarge", "ml.p5e.48xlarge", "ml.p5en.48xlarge")
# `_distribution_configuration` of estimator.py in the SageMaker Python SDK, version 2: a group is for mpi and SMDDP only.
_NO_GROUPS = "SMP v2 is started by torchrun, with which SageMaker's SDK refuses instance groups for it"


def _number(least: float, most: float | None, example: str, *, whole: bool = True) -> Prop:
    return Prop(known=IN_JSON, rule=at_least(least, most, whole=whole), example=example)


def _annotation(row: Mapping[str, Any]) -> Any:
    """The annotation of a parameter of version 1, from its row of the table."""
    if row["type"] == "switch":
        return bool
    if row["type"] == "choice":
        return Annotated[Literal[tuple(row["choices"])], Prop(known=IN_JSON, listed="smp-parameters")]
    whole, most, default = row["type"] == "whole", row.get("most"), row["default"]
    example = "0.5" if most == 1 else repr(default) if isinstance(default, int | float) and default else "2"
    kind: Any = int if whole else float
    return Annotated[kind, _number(row["least"], most, example, whole=whole)]


# Its annotations are the table's, so that `props` checks the parameters like any prop.
_V1 = type(
    "SmpV1Parameters", (), {"__annotations__": {name: _annotation(row) for name, row in smp_v1_parameters().items()}}
)
_Degree = Annotated[int | None, _number(1, None, "2")]


class _Smp(Value, ABC):
    """What both versions share."""

    _version: ClassVar[int]
    _types: ClassVar[tuple[str, ...]]

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
        """Warn of unlisted parameters.

        Args:
            group: The machines.
            processes_per_host: Number of processes on each host; None for one for each accelerator.
        """
        return tuple(unlisted_advice(self._given()))

    @abstractmethod
    def _given(self) -> Mapping[str, Any]:
        """The parameters that are not None."""

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

    hybrid_shard_degree: Annotated[int | None, _number(0, None, "8")] = None
    sm_activation_offloading: bool | None = None
    activation_loading_horizon: _Degree = None
    fsdp_cache_flush_warnings: bool | None = None
    allow_empty_shards: bool | None = None
    tensor_parallel_degree: _Degree = None
    context_parallel_degree: _Degree = None
    expert_parallel_degree: _Degree = None
    random_seed: Annotated[int | None, _number(0, None, "12345")] = None
    more: Annotated[Mapping[str, Any] | None, IN_JSON] = None
    alone_because = _NO_GROUPS
    image = staticmethod(smp_v2_image)
    _version, _types = 2, _TYPES_OF_V2

    def __post_init__(self) -> None:
        check_fields(self)
        _check_names(SmpV2, self.more or {})
        shard, context = self.hybrid_shard_degree, self.context_parallel_degree
        if shard and context and not is_unresolved(shard) and not is_unresolved(context) and context > shard:
            rule = "be at most hybrid_shard_degree"
            raise must("context_parallel_degree", rule, f"{shard}", f"{context} with {shard}")

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> SmpV2:
        """Create the value from the ``parameters`` of an SDK estimator's ``distribution``, as in AWS's documentation.

        Args:
            parameters: Values by the parameters' names.

        Raises:
            ValueError: The version has no such parameter, or a value is not allowed.
        """
        _check_names(cls, parameters)
        more = {name: value for name, value in parameters.items() if name not in _parameters_of(cls)}
        listed = {name: value for name, value in parameters.items() if name not in more}
        return cls(**listed, more=more or None)

    @property
    def sharding(self) -> int | None:
        """Ranks that shard one replica; None where the script's own FSDP strategy or experts decide."""
        shard, tensor = self.hybrid_shard_degree, self.tensor_parallel_degree or 1
        if not shard or self.expert_parallel_degree or is_unresolved(shard) or is_unresolved(tensor):
            return None
        return shard * tensor

    def _given(self) -> Mapping[str, Any]:
        values = {**vars(self), **(self.more or {}), "more": None}
        return {name: value for name, value in values.items() if value is not None}

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
    GPU. A parameter that is left out, or None, has the library's default. One of ``pipeline_parallel_degree``,
    ``partitions`` and ``sharded_data_parallel_degree`` is required. Sources: smd_model_parallel_general.rst of the SageMaker
    Python SDK 2.199.0; AWS's archived pages on SMP v1.

    Args:
        parameters: Values by the parameters' names, as ``parameters`` of an SDK estimator's ``distribution`` has them, like
            ``{"pipeline_parallel_degree": 2, "ddp": True}``. ``smp_v1_parameters.json`` has the type, range, default and
            source of each; other names are ``unlisted``.
        custom_mpi_options: Options of mpirun, by default those that AWS's documentation recommends.

    Raises:
        ValueError: A value is not allowed, parameters contradict each other, or the library has no such parameter.
    """

    parameters: Annotated[
        Mapping[str, Any], Prop(known=IN_JSON, example="{'pipeline_parallel_degree': 2, 'ddp': True}")
    ]
    custom_mpi_options: MpiOptions = "--mca btl_vader_single_copy_mechanism none"
    alone_because = ""
    image = staticmethod(smp_v1_image)
    _version, _types = 1, _TYPES_OF_V1

    def __post_init__(self) -> None:
        check_fields(self)
        given = self._given()
        _check_names(SmpV1, given)
        check_props_of(_V1, given)
        shown = ", ".join(f"{name}={value!r}" for name, value in given.items()) or "no parameters"
        for broken, prop, rule, example in self._rules():
            if broken:
                raise must(prop, rule, example, shown)

    @property
    def sharding(self) -> int | None:
        """Return None: version 1 may keep optimizer state, and whole parameters, on few of its ranks."""
        return None

    def advice(self, group: InstanceGroup, processes_per_host: int | None) -> tuple[Advice, ...]:
        """Warn of idle pipeline stages and of unlisted parameters."""
        idle = idle_stages_advice(self._given().get("microbatches", 1), self._stages)
        return (*idle, *super().advice(group, processes_per_host))

    def _given(self) -> Mapping[str, Any]:
        return {name: value for name, value in self.parameters.items() if value is not None}

    def _products(self) -> Iterator[Mapping[str, int]]:
        tensor = {"tensor_parallel_degree": self._given().get("tensor_parallel_degree", 1)}
        yield {"pipeline_parallel_degree": self._stages, **tensor}
        yield {"sharded_data_parallel_degree": self._given().get("sharded_data_parallel_degree", 1), **tensor}

    def _launched(
        self, group: InstanceGroup, processes_per_host: int | None, machines: Mapping[str, str]
    ) -> Mapping[str, str]:
        mpi = Mpi(processes_of(group, processes_per_host), self.custom_mpi_options)
        return {**mpi.hyperparameters(group), **machines}

    @property
    def _stages(self) -> int:
        given = self._given()
        return int(given.get("pipeline_parallel_degree") or given.get("partitions") or 1)

    def _rules(self) -> list[tuple[bool, str, str, str]]:
        """Return the rules between parameters: whether it is broken, the prop, the rule and an example.

        From the SDK's validate_mp_config (fw_utils.py) and AWS's archived page "Sharded Data Parallelism", its tips.
        """
        given, stages = self._given(), self._stages
        names_of_stages = {"pipeline_parallel_degree", "partitions"} & {*given}
        sharded = given.get("sharded_data_parallel_degree", 1) > 1
        needs_ddp = {"ddp_port", "ddp_dist_backend"} & {*given} or given.get("tensor_parallel_degree", 1) > 1
        no_default = given.get("auto_partition") is False and "default_partition" not in given
        beyond = given.get("default_partition", 0) >= stages
        ddp, fp16 = bool(given.get("ddp")), bool(given.get("fp16"))
        sharded_twice = sharded and bool(given.get("shard_optimizer_state"))
        needing_ddp = "tensor_parallel_degree, ddp_port and ddp_dist_backend"
        shards_too = "be left out with sharded_data_parallel_degree, which shards it too"
        return [
            (
                len(names_of_stages) == 2,
                "partitions",
                "be left out with pipeline_parallel_degree, its other name",
                "partitions=None",
            ),
            (not names_of_stages and not sharded, "pipeline_parallel_degree", "be set", "pipeline_parallel_degree=2"),
            (no_default, "default_partition", "be set with auto_partition=False", "default_partition=0"),
            (beyond, "default_partition", f"be less than {stages}, the stages", "0"),
            (
                ddp and bool(given.get("horovod")),
                "horovod",
                "be left out with ddp, which reduces gradients too",
                "horovod=None",
            ),
            (bool(needs_ddp) and not ddp, "ddp", f"be True with {needing_ddp}", "ddp=True"),
            (fp16 and bool(given.get("bf16")), "bf16", "be left out with fp16, the other precision", "bf16=None"),
            (sharded and stages > 1, "pipeline_parallel_degree", "be 1 with sharded_data_parallel_degree", "1"),
            (sharded_twice, "shard_optimizer_state", shards_too, "shard_optimizer_state=None"),
        ]


def _parameters_of(version: type[_Smp]) -> tuple[str, ...]:
    if version is SmpV1:
        return tuple(smp_v1_parameters())
    return tuple(field.name for field in fields(SmpV2) if field.name != "more")


def _check_names(version: type[_Smp], names: Mapping[str, Any]) -> None:
    """Check that a version has the parameters; ``unlisted`` names pass."""
    known, other = _parameters_of(version), _parameters_of(SmpV2 if version is SmpV1 else SmpV1)
    rule, example, has = f"be those of SMP v{version._version}", f"{{{known[0]!r}: 2}}", ", ".join(known)
    for name in names:
        if name in other and name not in known:
            got = f"{name!r}, which is one of SMP v{3 - version._version}: it has {has}"
            raise must("parameters", rule, example, got)
        got = f"{name!r}{did_you_mean(name, known)}: it has {has}"
        check_listed("smp-parameters", name, name in known, "parameters", rule, example, got)
