"""A job whose training step is compiled, as a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cdk_sagemaker_training.advice import efa_advice, scale_up_advice
from cdk_sagemaker_training.compilers import TorchCompile
from cdk_sagemaker_training.jobs import Compiler, InstanceGroup, JobRequest, Launcher, compiled, launched, on_each_type
from cdk_sagemaker_training.prop_types import check_fields


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
        check_fields(self)
        if self.compiler is None:
            object.__setattr__(self, "compiler", TorchCompile())
        self.requests()

    def requests(self) -> Sequence[JobRequest]:
        return on_each_type(self.group, self._requests_on)

    def _requests_on(self, group: InstanceGroup) -> Sequence[JobRequest]:
        request = launched(group, self.launcher)
        advice = (*scale_up_advice(group), *efa_advice(group), *request.advice)
        return compiled(replace(request, advice=advice), self.compiler)
