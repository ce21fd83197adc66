"""The parameters of SageMaker's model parallelism library (SMP): allowed values and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import check_listed, is_unlisted

_PLACEMENTS = ("cluster", "spread", *("".join(letters) for letters in permutations("DPT")))


@dataclass(frozen=True)
class Parameter:
    """The allowed values of a parameter: ``choices``, or a number from ``least`` to ``most``.

    Attributes:
        default: The library's default; text if it depends on other parameters.
        choices: The allowed values; ``(True, False)`` for a flag.
        least: The minimum of a number; None for a parameter with ``choices``.
        most: The maximum of a number; None if there is none.
        whole: Whether a number must be whole.
    """

    default: Any
    choices: tuple[Any, ...] = ()
    least: float | None = None
    most: float | None = None
    whole: bool = True

    @property
    def is_flag(self) -> bool:
        """Whether the parameter is True or False."""
        return True in self.choices

    def check(self, name: str, value: Any) -> None:
        """Check a value of the parameter; tokens and ``unlisted`` values pass.

        Args:
            name: Name of the parameter, for the message.
            value: The value.

        Raises:
            ValueError: The value is not allowed.
        """
        if is_unresolved(value) or is_unlisted(value):
            return
        if self.least is None:
            if value not in self.choices:
                must = f"{name} must be one of {', '.join(map(repr, self.choices))}"
                if self.is_flag:
                    raise ValueError(f"{must}, got {value!r}")
                check_listed("smp-parameters", value, False, must)
            return
        if value < self.least or (self.most is not None and value > self.most):
            kind = "a whole number" if self.whole else "a number"
            most = "" if self.most is None else f" and at most {self.most:g}"
            raise ValueError(
                f"{name} must be {kind} of at least {self.least:g}{most}, like {self._example()!r}, got {value!r}"
            )

    def _example(self) -> Any:
        if self.most == 1:
            return 0.5
        return 2 if isinstance(self.default, str) or self.default == 0 else self.default


def _flag(default: bool) -> Parameter:
    return Parameter(default, choices=(True, False))


def _degree(default: Any = 1) -> Parameter:
    return Parameter(default, least=1)


# AWS's page "The SageMaker model parallel library v2 reference", section "core feature configuration parameters".
V2: Mapping[str, Parameter] = {
    "hybrid_shard_degree": Parameter(0, least=0),
    "sm_activation_offloading": _flag(True),
    "activation_loading_horizon": Parameter(2, least=1),
    "fsdp_cache_flush_warnings": _flag(True),
    "allow_empty_shards": _flag(False),
    "tensor_parallel_degree": _degree(),
    "context_parallel_degree": _degree(),
    "expert_parallel_degree": _degree(),
    "random_seed": Parameter(12345, least=0),
}

# smd_model_parallel_general.rst of the SageMaker Python SDK 2.199.0; for parameters that are newer than its tables, AWS's
# archived pages on SMP v1: sharded data parallelism, FP16 training, delayed parameter initialization.
V1: Mapping[str, Parameter] = {
    "pipeline_parallel_degree": _degree(),
    "partitions": _degree(),
    "microbatches": Parameter(1, least=1),
    "pipeline": Parameter("interleaved", choices=("interleaved", "simple", "_only_forward")),
    "optimize": Parameter("memory", choices=("memory", "speed")),
    "placement_strategy": Parameter("cluster", choices=_PLACEMENTS),
    "auto_partition": _flag(True),
    "default_partition": Parameter(0, least=0),
    "contiguous": _flag(True),
    "horovod": _flag(False),
    "memory_weight": Parameter("0.2 with optimize='speed', else 0.8", least=0, most=1, whole=False),
    "ddp": _flag(False),
    "ddp_port": Parameter("chosen by the library", least=0, most=65_535),
    "ddp_dist_backend": Parameter("auto", choices=("auto", "nccl")),
    "active_microbatches": Parameter("the degree of the pipeline + 2", least=1),
    "deterministic_server": _flag(False),
    "offload_activations": _flag(False),
    "activation_loading_horizon": Parameter(4, least=1),
    "tensor_parallel_degree": _degree(),
    "fp16": _flag(False),
    "fp16_params": _flag(False),
    "bf16": _flag(False),
    "delayed_parameter_initialization": _flag(False),
    "shard_optimizer_state": _flag(False),
    "prescaled_batch": _flag(False),
    "skip_tracing": _flag(False),
    "sharded_data_parallel_degree": _degree(),
    "sdp_reduce_bucket_size": Parameter(500_000_000, least=1, whole=False),
    "sdp_param_persistence_threshold": Parameter(1_000_000, least=0, whole=False),
    "sdp_max_live_parameters": Parameter(1_000_000_000, least=1, whole=False),
    "sdp_hierarchical_allgather": _flag(True),
    "sdp_gradient_clipping": Parameter(1.0, least=0, whole=False),
}


def check_parameters(table: Mapping[str, Parameter], values: Mapping[str, Any]) -> None:
    """Check the values of parameters.

    Args:
        table: ``V1`` or ``V2``.
        values: Values by the parameters' names; names that the table lacks are skipped.

    Raises:
        ValueError: A value is not allowed.
    """
    for name, value in values.items():
        if name in table:
            table[name].check(name, value)


def check_names(version: int, names: Mapping[str, Any]) -> None:
    """Check that a version of the library has the parameters.

    Args:
        version: 1 or 2.
        names: The parameters' names; ``unlisted`` names pass.

    Raises:
        ValueError: The version does not have a parameter.
    """
    table, other = (V1, V2) if version == 1 else (V2, V1)
    for name in names:
        example = "pipeline_parallel_degree" if version == 1 else "hybrid_shard_degree"
        must, has = f"parameters must be those of SMP v{version}, like {{{example!r}: 2}}", ", ".join(table)
        if name in other and name not in table:
            raise ValueError(f"{must}, got {name!r}, which is one of SMP v{3 - version}: it has {has}")
        check_listed("smp-parameters", name, name in table, must, f"{name!r}: it has {has}")
