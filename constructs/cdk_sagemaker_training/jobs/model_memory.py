"""``Model``: the size of a model, by which a layout that cannot fit its GPUs is refused at synthesis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cdk_sagemaker_training.core.checks import at_least
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.facts.instance_facts import InstanceFacts, instance_facts
from cdk_sagemaker_training.jobs.advice import Advice, advice
from cdk_sagemaker_training.jobs.instance_group import InstanceGroup
from cdk_sagemaker_training.props.prop import Known, Prop, kind
from cdk_sagemaker_training.props.prop_types import check_fields

ADAMW_BYTES = 16
CLOSE = 0.9  # of an accelerator's memory
_GIB = 2**30
_KNOWN = Known("synth", "since it is compared with the accelerators' memory")


@kind("Model(parameters=8_030_261_248)")
@dataclass(frozen=True)
class Model:
    """The size of a model, for ``ModelParallelJob(fits=)``.

    What is checked is a lower bound: the parameters, gradients and optimizer state of a replica, divided by the ranks that shard
    it. Activations, gathered parameters and the context of the GPU come on top; ``training-jobs fits`` predicts these too, and
    needs torch.

    Args:
        parameters: Number of parameters, like ``8_030_261_248`` of Llama 3 8B.
        bytes_per_parameter: Bytes of a parameter, its gradient and its optimizer state. The default, 16, is AdamW's: 4 of the
            parameter, 4 of the gradient and 8 of two moments in fp32, which FSDP2 keeps in fp32 with bf16 too (PyTorch's page
            "torch.distributed.fsdp.fully_shard": the optimizer step uses the sharded parameter in the original dtype). Mixed
            precision with a bf16 copy has as many (Rajbhandari et al., "ZeRO", 2020, section 3.1: 2 + 2 + 12); AdamW with all in
            bf16 has 8, SGD without momentum in fp32 8.

    Raises:
        ValueError: A number is not above 0.
    """

    parameters: Annotated[int, Prop(known=_KNOWN, rule=at_least(1), example="8_030_261_248")]
    bytes_per_parameter: Annotated[int, Prop(known=_KNOWN, rule=at_least(1), example="16")] = ADAMW_BYTES

    def __post_init__(self) -> None:
        check_fields(self)

    def gib(self, ranks: int) -> float:
        """Return what each of so many ranks holds at least, in GiB.

        Args:
            ranks: Ranks that shard the model.
        """
        return self.parameters * self.bytes_per_parameter / ranks / _GIB


def memory_advice(
    model: Model, sharding: int | None, group: InstanceGroup, processes_per_host: int | None
) -> tuple[Advice, ...]:
    """Return a warning where a model leaves little of its accelerators' memory.

    Args:
        model: The model.
        sharding: Ranks that shard one replica; None if it is not known, which is not checked.
        group: The machines; those without accelerators and types without facts are not checked.
        processes_per_host: Number of processes on each host; None for one for each accelerator.

    Raises:
        ValueError: The model does not fit.
    """
    facts = instance_facts(group.instance_type)
    if facts is None or not facts.devices or sharding is None or is_unresolved(processes_per_host):
        return ()
    memory = _memory_of_rank(facts, processes_per_host)
    taken = model.gib(sharding)
    most = (
        f"{model.parameters:,} parameters x {model.bytes_per_parameter} bytes / {sharding} ranks are {taken:.1f} GiB of the "
        f"{memory:g} GiB that a rank has of {group.instance_type}"
    )
    if taken > memory:
        least = _least_ranks(model, memory)
        raise must(
            "fits",
            "be a model whose parameters, gradients and optimizer state the accelerators hold",
            f"NativeParallelism(data_shard={least}), since at least {least} of these ranks hold it, or bytes_per_parameter=8 "
            "of another optimizer or precision",
            f"{model}: {most}",
        )
    if taken <= CLOSE * memory:
        return ()
    return advice(
        "little-memory-left",
        f"{most}, before activations and gathered parameters: shard the model over more ranks, or see what a step takes by "
        "`training-jobs fits`",
    )


def _memory_of_rank(facts: InstanceFacts, processes_per_host: int | None) -> float:
    """GiB; several processes of one accelerator share its memory, as the cores of a Trainium chip do."""
    processes = processes_per_host or facts.processes
    return facts.memory_gib * facts.devices / max(facts.devices, processes)


def _least_ranks(model: Model, memory: float) -> int:
    """The least power of two of ranks that hold the model."""
    ranks = 1
    while model.gib(ranks) > memory:
        ranks *= 2
    return ranks
