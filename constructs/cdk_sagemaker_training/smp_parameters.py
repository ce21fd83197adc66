"""The parameters of SageMaker's model parallelism library: what each may be, and what it is where nobody says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from cdk_sagemaker_training.tokens import is_unresolved
from cdk_sagemaker_training.unlisted import check_listed, is_unlisted

_PLACEMENTS = ("cluster", "spread", *("".join(letters) for letters in permutations("DPT")))


@dataclass(frozen=True)
class Parameter:
    """What a parameter may be: True or False, one of ``choices``, or a number of at least ``least`` and at most ``most``.

    ``default`` is the library's own: text where it follows from others.
    """

    default: Any
    choices: tuple[Any, ...] = ()
    least: float | None = None
    most: float | None = None
    whole: bool = True

    @property
    def is_flag(self) -> bool:
        return True in self.choices

    def check(self, name: str, value: Any) -> None:
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

# smd_model_parallel_general.rst of the SageMaker Python SDK 2.199.0, and for what came after its tables were written AWS's
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
    """Raise ``ValueError`` with the first parameter that is not what its table allows."""
    for name, value in values.items():
        if name in table:
            table[name].check(name, value)


def check_names(version: int, names: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for a parameter that version 1 or 2 of the library does not have."""
    table, other = (V1, V2) if version == 1 else (V2, V1)
    for name in names:
        example = "pipeline_parallel_degree" if version == 1 else "hybrid_shard_degree"
        must, has = f"parameters must be those of SMP v{version}, like {{{example!r}: 2}}", ", ".join(table)
        if name in other and name not in table:
            raise ValueError(f"{must}, got {name!r}, which is one of SMP v{3 - version}: it has {has}")
        check_listed("smp-parameters", name, name in table, must, f"{name!r}: it has {has}")
