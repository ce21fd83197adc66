"""``ModelParallelJob``: one model distributed over several accelerators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cdk_sagemaker_training.jobs.advice import Advice, efa_advice
from cdk_sagemaker_training.jobs.instance_group import InstanceGroup
from cdk_sagemaker_training.jobs.kinds import Compiler, JobRequest, compiled, on_each_type
from cdk_sagemaker_training.jobs.launchers import ProcessesPerHost
from cdk_sagemaker_training.jobs.model_memory import Model, memory_advice
from cdk_sagemaker_training.props.prop import kind
from cdk_sagemaker_training.props.prop_types import check_fields


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
class ModelParallelJob:
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
            advice=(*efa_advice(group), *self.parallelism.advice(group, self.processes_per_host), *memory),
            alone_because=self.parallelism.alone_because,
        )
        return compiled(request, self.compiler)
