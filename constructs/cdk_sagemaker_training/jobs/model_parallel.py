"""``ModelParallelJob``: one model distributed over several accelerators, and ``Model``, whose size is checked against them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

from cdk_sagemaker_training.core.checks import at_least
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.facts.instance_facts import InstanceFacts, instance_facts
from cdk_sagemaker_training.jobs.advice import Advice, advice, efa_advice, scale_up_advice
from cdk_sagemaker_training.jobs.instance_group import InstanceGroup
from cdk_sagemaker_training.jobs.kinds import Compiler, JobRequest, compiled, on_each_type
from cdk_sagemaker_training.jobs.launchers import ProcessesPerHost
from cdk_sagemaker_training.props.prop import Known, Prop, kind
from cdk_sagemaker_training.props.prop_types import Value, check_fields

ADAMW_BYTES = 16
CLOSE = 0.9  # of an accelerator's memory
_GIB = 2**30
_KNOWN = Known("synth", "since it is compared with the accelerators' memory")


@kind("Model(parameters=8_030_261_248)")
@dataclass(frozen=True)
class Model(Value):
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


@kind("NativeParallelism(data_shard=8)", "a parallelism")
class Parallelism(Protocol):
    """The protocol of model layouts over the processes of a job."""

    @property
    def alone_because(self) -> str:
        """Why such a job cannot run in one of several instance groups; empty if it can."""

    @property
    def sharding(self) -> int | None:
        """Ranks that shard one replica's parameters, gradients and optimizer state on accelerators; None if it is not known."""

    def hyperparameters(self, group: InstanceGroup, processes_per_host: int | None) -> Mapping[str, str]:
        """Return the hyperparameters that start the processes.

        Args:
            group: The machines.
            processes_per_host: Number of processes on each host; None for one for each accelerator.

        Raises:
            ValueError: The degrees do not fit the machines.
        """

    def environment(self) -> Mapping[str, str]:
        """Return environment variables for the script."""

    def advice(self, group: InstanceGroup, processes_per_host: int | None) -> tuple[Advice, ...]:
        """Return warnings about the layout on these machines.

        Args:
            group: The machines.
            processes_per_host: Number of processes on each host; None for one for each accelerator.
        """


@dataclass(frozen=True)
class ModelParallelJob(Value):
    """A job whose processes together hold one or several copies of a model.

    Args:
        group: The machines.
        parallelism: The layout: ``NativeParallelism(...)``, ``SmpV2(...)`` or ``SmpV1(...)``. Its degrees must fit the number of
            processes of all machines.
        processes_per_host: Number of processes on each host; None for one for each accelerator, or 1 without accelerators.
        compiler: The compiler of the training step, like ``TorchCompile()``; None for none.
        fits: The model, like ``Model(parameters=8_030_261_248)``, whose parameters, gradients and optimizer state must fit the
            accelerators' memory; None does not check it.

    Raises:
        ValueError: The degrees do not fit the machines; the message shows every factor. Or the model does not fit.
    """

    group: InstanceGroup
    parallelism: Parallelism
    processes_per_host: ProcessesPerHost = None
    compiler: Compiler | None = None
    fits: Model | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        self.requests()

    def requests(self) -> Sequence[JobRequest]:
        """Return the job's requests in the order in which they run."""
        return on_each_type(self.group, self._requests_on)

    def _requests_on(self, group: InstanceGroup) -> Sequence[JobRequest]:
        memory = (
            ()
            if self.fits is None
            else memory_advice(self.fits, self.parallelism.sharding, group, self.processes_per_host)
        )
        request = JobRequest(
            resource_config=group.resource_config(),
            hyperparameters=self.parallelism.hyperparameters(group, self.processes_per_host),
            environment=self.parallelism.environment(),
            advice=(
                *scale_up_advice(group),
                *efa_advice(group),
                *self.parallelism.advice(group, self.processes_per_host),
                *memory,
            ),
            alone_because=self.parallelism.alone_because,
        )
        return compiled(request, self.compiler)
