"""A model over several accelerators, as a kind of job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cdk_sagemaker_training.advice import Advice, efa_advice
from cdk_sagemaker_training.instance_group import InstanceGroup
from cdk_sagemaker_training.jobs import Compiler, JobRequest, compiled, on_each_type
from cdk_sagemaker_training.prop_types import check_fields


class Parallelism(Protocol):
    """How a model is laid over the processes of a job, and what starts them."""

    @property
    def alone_because(self) -> str:
        """Why such a job cannot be one group among several; empty where it can."""

    def hyperparameters(self, group: InstanceGroup, processes_per_host: int | None) -> Mapping[str, str]:
        """What starts the processes. Raises ``ValueError`` where the degrees do not fit the machines."""

    def environment(self) -> Mapping[str, str]: ...

    def advice(self, group: InstanceGroup, processes_per_host: int | None) -> tuple[Advice, ...]: ...


@dataclass(frozen=True)
class ModelParallelJob:
    """A job whose processes together hold one model, or several copies of one, by the degrees of ``parallelism``.

    Each accelerator of ``group`` has a process; the degrees must multiply to all of them. ``processes_per_host`` is for types
    without accelerators, whose hosts have one process otherwise. ``compiler`` is what compiles the job's step. Raises
    ``ValueError`` with every factor where the degrees do not fit the machines.
    """

    group: InstanceGroup
    parallelism: Parallelism
    processes_per_host: int | None = None
    compiler: Compiler | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        self.requests()

    def requests(self) -> Sequence[JobRequest]:
        return on_each_type(self.group, self._requests_on)

    def _requests_on(self, group: InstanceGroup) -> Sequence[JobRequest]:
        request = JobRequest(
            resource_config=group.resource_config(),
            hyperparameters=self.parallelism.hyperparameters(group, self.processes_per_host),
            environment=self.parallelism.environment(),
            advice=(*efa_advice(group), *self.parallelism.advice(group, self.processes_per_host)),
            alone_because=self.parallelism.alone_because,
        )
        return compiled(request, self.compiler)
