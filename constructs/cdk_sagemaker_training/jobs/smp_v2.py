"""Version 2 of SageMaker's model parallelism library (SMP), as a value."""

# ran: `SmpV2()` | request: test_smp | no | no | no

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.facts.smp_images import SmpImage, smp_v2_image
from cdk_sagemaker_training.facts.smp_parameters import V2, check_names, check_parameters
from cdk_sagemaker_training.jobs.advice import Advice
from cdk_sagemaker_training.jobs.instance_group import InstanceGroup
from cdk_sagemaker_training.jobs.launchers import Torchrun
from cdk_sagemaker_training.jobs.parallelism import check_divides
from cdk_sagemaker_training.jobs.smp_requests import (
    arguments_of,
    check_instance_type,
    mp_parameters,
    set_parameters,
    unlisted_parameters_advice,
)
from cdk_sagemaker_training.props.prop_types import check_fields

# AWS's page "Supported frameworks and AWS Regions" of SMP v2 recommends P4 and P5; those with eight GPUs.
_TYPES = ("ml.p4d.24xlarge", "ml.p4de.24xlarge", "ml.p5.48xlarge", "ml.p5e.48xlarge", "ml.p5en.48xlarge")
# `_distribution_configuration` of estimator.py in the SageMaker Python SDK, version 2: a group is for mpi and SMDDP only.
_NO_GROUPS = "SMP v2 is started by torchrun, with which SageMaker's SDK refuses instance groups for it"


@dataclass(frozen=True)
class SmpV2:
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
    alone_because = _NO_GROUPS

    def __post_init__(self) -> None:
        check_fields(self)
        check_names(2, self.more or {})
        check_parameters(V2, set_parameters(self))
        shard, context = self.hybrid_shard_degree, self.context_parallel_degree
        if shard and context and not is_unresolved(shard) and not is_unresolved(context) and context > shard:
            raise ValueError(
                f"context_parallel_degree must be at most hybrid_shard_degree, like {shard}, got {context} with {shard}"
            )

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> Self:
        """Create the value from the ``parameters`` of an SDK estimator's ``distribution``, as in AWS's documentation.

        Args:
            parameters: Values by the parameters' names.

        Raises:
            ValueError: The version has no such parameter, or a value is not allowed.
        """
        check_names(2, parameters)
        return cls(**arguments_of(V2, parameters))

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

    def hyperparameters(self, group: InstanceGroup, processes_per_host: int | None) -> Mapping[str, str]:
        """Return the hyperparameters that start the processes.

        Args:
            group: The machines.
            processes_per_host: Number of processes on each host; None for one for each accelerator.

        Raises:
            ValueError: The library does not support the machines, or the degrees do not fit them.
        """
        check_instance_type(2, group, _TYPES)
        for sharing in ("hybrid_shard_degree", "context_parallel_degree", "expert_parallel_degree"):
            names = ("tensor_parallel_degree", sharing)
            check_divides({name: getattr(self, name) or 1 for name in names}, group, processes_per_host)
        return {
            **mp_parameters(self),
            "sagemaker_distributed_dataparallel_enabled": "false",
            "sagemaker_instance_type": json.dumps(group.instance_type),
            **Torchrun(processes_per_host).hyperparameters(group),
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
        return unlisted_parameters_advice(self)
