"""``NativeParallelism``: a model layout with PyTorch's own FSDP2, tensor parallelism and pipeline stages."""

# ran: `NativeParallelism()` | request: test_model_parallel_requests | test_model_parallel | one H100, one H200, one rank | no

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Annotated, Literal

from cdk_sagemaker_training.core.checks import at_least
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.facts.instance_facts import instance_facts
from cdk_sagemaker_training.jobs.advice import Advice, advice
from cdk_sagemaker_training.jobs.instance_group import InstanceGroup
from cdk_sagemaker_training.jobs.launchers import Torchrun
from cdk_sagemaker_training.props.prop import IN_JSON, SHAPING, Prop
from cdk_sagemaker_training.props.prop_types import Value, check_fields

Schedule = Literal["gpipe", "1f1b", "interleaved"]
Precision = Literal["fp32", "bf16", "fp16"]
_Count = Annotated[int, Prop(known=IN_JSON, rule=at_least(1))]


@dataclass(frozen=True)
class NativeParallelism(Value):
    """A layout with PyTorch's own FSDP2, tensor parallelism and pipeline stages, each by its degree.

    The product of the four degrees must be the number of processes of the job. The script reads the layout from the environment
    variable ``TRAINING_PARALLELISM``, a JSON object with a key for each argument.

    Args:
        data_shard: Ranks that shard the parameters, gradients and optimizer state of one replica (``fully_shard``).
        data_replicate: Replicas, which exchange gradients only; with ``data_shard`` this is hybrid sharding (HSDP).
        tensor: Ranks that shard each matrix. Must divide the number of the model's attention heads, and should divide the
            processes of one machine.
        pipeline: Ranks with one pipeline stage each, or two with ``schedule="interleaved"``.
        microbatches: Number of microbatches of a data-parallel rank's batch; None for as many as ``pipeline``.
        schedule: Pipeline schedule: ``"gpipe"``, ``"1f1b"`` or ``"interleaved"``.
        activation_checkpointing: Whether activations are recomputed in the backward pass.
        activation_offloading: Whether activations are kept in host memory.
        cpu_offload: Whether parameters and optimizer state are kept in host memory.
        precision: ``"fp32"``, ``"bf16"`` or, for GPUs without bf16 such as those of ml.g4dn, ``"fp16"``, of activations and
            gathered parameters; the optimizer works in fp32. With fp16 the script has to scale the loss, as the library's do.

    Raises:
        ValueError: A degree is below 1, or ``microbatches`` does not fit the schedule.
    """

    data_shard: _Count = 1
    data_replicate: _Count = 1
    tensor: _Count = 1
    pipeline: _Count = 1
    microbatches: _Count | None = None
    schedule: Annotated[Schedule, SHAPING] = "1f1b"
    activation_checkpointing: bool = False
    activation_offloading: bool = False
    cpu_offload: bool = False
    precision: Annotated[Precision, Prop(known=SHAPING, example="'bf16'")] = "fp32"

    alone_because = ""

    def __post_init__(self) -> None:
        check_fields(self)
        self._check_microbatches()

    @property
    def sharding(self) -> int | None:
        """Ranks that shard one replica; None with ``cpu_offload``, which keeps its state in host memory, and for tokens."""
        degrees = (self.data_shard, self.pipeline, self.tensor)
        if self.cpu_offload or any(is_unresolved(degree) for degree in degrees):
            return None
        return prod(degrees)

    def hyperparameters(self, group: InstanceGroup, processes_per_host: int | None) -> Mapping[str, str]:
        """Return the hyperparameters that start the processes.

        Args:
            group: The machines.
            processes_per_host: Number of processes on each host; None for one for each accelerator.

        Raises:
            ValueError: The degrees do not fit the machines.
        """
        names = ("data_replicate", "data_shard", "pipeline", "tensor")
        check_degrees({name: getattr(self, name) for name in names}, group, processes_per_host, exactly=True)
        return Torchrun(processes_per_host).hyperparameters(group)

    def environment(self) -> Mapping[str, str]:
        """Return ``TRAINING_PARALLELISM``, with every key."""
        return {
            "TRAINING_PARALLELISM": json.dumps({**asdict(self), "microbatches": self.microbatches or self.pipeline})
        }

    def advice(self, group: InstanceGroup, processes_per_host: int | None) -> tuple[Advice, ...]:
        """Return warnings about the layout on these machines.

        Args:
            group: The machines.
            processes_per_host: Number of processes on each host; None for one for each accelerator.
        """
        per_host = processes_of(group, processes_per_host)
        return (
            *self._tensor_advice(group, per_host),
            *idle_stages_advice(self.microbatches or self.pipeline, self.pipeline),
            *Torchrun(processes_per_host).advice(group),
        )

    def _check_microbatches(self) -> None:
        if self.microbatches is None or self.pipeline == 1:
            return
        if self.schedule == "1f1b" and self.microbatches < self.pipeline:
            # Schedule1F1B of torch.distributed.pipelining raises it on every rank.
            rule = "be at least the number of pipeline stages with schedule='1f1b'"
            raise must("microbatches", rule, f"{self.pipeline}", f"{self.microbatches} for {self.pipeline} stages")
        rounds = max(1, self.microbatches // self.pipeline)
        if self.schedule == "interleaved" and self.microbatches % rounds:
            # ScheduleInterleaved1F1B of the same.
            rule = "divide into microbatches // pipeline rounds with schedule='interleaved'"
            got = f"{self.microbatches} for {rounds} rounds of {self.pipeline} stages"
            raise must("microbatches", rule, f"{rounds * self.pipeline}", got)

    def _tensor_advice(self, group: InstanceGroup, per_host: int | None) -> tuple[Advice, ...]:
        if per_host is None or is_unresolved(self.tensor) or is_unresolved(group.instance_count):
            return ()
        # Ranks are numbered host by host and the tensor dimension of the mesh is the innermost one.
        if self.tensor == 1 or group.instance_count == 1 or per_host % self.tensor == 0:
            return ()
        return advice(
            "tensor-across-machines",
            f"tensor={self.tensor} does not divide the {per_host} processes of a {group.instance_type}, so ranks that share "
            "each matrix are on different machines and exchange activations over the network twice in each layer: use a "
            "degree that divides it, and shard data across machines instead",
        )


def idle_stages_advice(microbatches: int, stages: int) -> tuple[Advice, ...]:
    """Warn of the idle time of pipeline stages (GPipe, section 2.3: the bubble); tokens pass."""
    if is_unresolved(microbatches) or is_unresolved(stages) or microbatches >= stages:
        return ()
    idle = (stages - 1) / (microbatches + stages - 1)
    return advice(
        "idle-pipeline-stages",
        f"microbatches={microbatches} for {stages} pipeline stages leaves each stage idle {idle:.0%} of the time, and "
        f"at most {microbatches} of them busy at once: use at least {stages}, better {4 * stages}",
    )


def processes_of(group: InstanceGroup, processes_per_host: int | None) -> int | None:
    """Return the number of processes on each host; None if it depends on a token or an unknown type."""
    if processes_per_host is not None:
        return None if is_unresolved(processes_per_host) else processes_per_host
    facts = instance_facts(group.instance_type)
    return None if facts is None else facts.processes


def world_size(group: InstanceGroup, processes_per_host: int | None) -> int | None:
    """Return the number of processes on all hosts together; see ``processes_of``."""
    per_host = processes_of(group, processes_per_host)
    if per_host is None or is_unresolved(group.instance_count):
        return None
    return group.instance_count * per_host


def check_degrees(
    degrees: Mapping[str, int], group: InstanceGroup, processes_per_host: int | None, *, exactly: bool
) -> None:
    """Check that the product of the degrees is, or divides, the number of processes of all machines; tokens pass.

    Args:
        degrees: The degrees by their names.
        group: The machines.
        processes_per_host: Number of processes on each host; None for one for each accelerator.
        exactly: Whether the product is that number, rather than a divisor of it.
    """
    world = world_size(group, processes_per_host)
    if world is None or any(is_unresolved(degree) for degree in degrees.values()):
        return
    product = prod(degrees.values())
    got = f"{' x '.join(f'{name} {degree}' for name, degree in degrees.items())} = {product}"
    processes = described(group, processes_per_host)
    if exactly and product != world:
        rule = f"have degrees that multiply to {processes}"
        raise must("parallelism", rule, f"NativeParallelism(data_shard={world})", got)
    if world % product:
        example = f"{max(degrees, key=lambda name: degrees[name])}={processes_of(group, processes_per_host)} alone"
        raise must("parallelism", f"have degrees whose product divides {processes}", example, got)


def described(group: InstanceGroup, processes_per_host: int | None) -> str:
    """Return text like ``4 processes (instance_count 2 x 2 accelerators of ml.g7e.12xlarge)``."""
    facts = instance_facts(group.instance_type)
    explicit = processes_per_host is not None or facts is None or not facts.devices
    each = "processes_per_host" if explicit else "accelerators"
    return (
        f"{world_size(group, processes_per_host)} processes (instance_count {group.instance_count} x "
        f"{processes_of(group, processes_per_host)} {each} of {group.instance_type})"
    )
