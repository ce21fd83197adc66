"""A job whose training step is compiled, as a value."""

from __future__ import annotations

from dataclasses import dataclass

from cdk_sagemaker_training.compilers import TorchCompile
from cdk_sagemaker_training.jobs import Compiler, DataParallelJob


@dataclass(frozen=True)
class CompiledJob(DataParallelJob):
    """``DataParallelJob`` with a compiler, ``TorchCompile()`` unless said otherwise; Trainium needs ``Neuron(...)``."""

    compiler: Compiler = TorchCompile()  # noqa: RUF009 (it is frozen)
