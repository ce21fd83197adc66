"""A job whose training step is compiled, as a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cdk_sagemaker_training.advice import efa_advice, scale_up_advice
from cdk_sagemaker_training.compilers import TorchCompile
from cdk_sagemaker_training.jobs import Compiler, InstanceGroup, JobRequest, Launcher, compiled, launched


@dataclass(frozen=True)
class CompiledJob:
    """A job whose training step is compiled, each process on its own share of the data.

    ``compiler`` is ``TorchCompile()`` unless said otherwise; Trainium needs ``Neuron(...)``. Warns at synth of machines that
    make such a job slower than others would.
    """

    group: InstanceGroup
    compiler: Compiler | None = None
    launcher: Launcher | None = None

    def __post_init__(self) -> None:
        if self.compiler is None:
            object.__setattr__(self, "compiler", TorchCompile())
        self.requests()

    def requests(self) -> Sequence[JobRequest]:
        request = launched(self.group, self.launcher)
        advice = (*scale_up_advice(self.group), *efa_advice(self.group), *request.advice)
        return compiled(replace(request, advice=advice), self.compiler)
