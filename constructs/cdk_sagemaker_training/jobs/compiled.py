"""``CompiledJob``, a data-parallel job with a compiler."""

from __future__ import annotations

from dataclasses import dataclass

from cdk_sagemaker_training.jobs.compilers import TorchCompile
from cdk_sagemaker_training.jobs.kinds import Compiler, DataParallelJob


@dataclass(frozen=True)
class CompiledJob(DataParallelJob):
    """``DataParallelJob`` whose training step is compiled, by ``TorchCompile()`` by default.

    Args:
        group: The machines.
        launcher: What starts several processes on each host; None runs the script once on each host.
        compiler: The compiler; Trainium needs ``Neuron(...)``.

    Raises:
        ValueError: The launcher or the compiler does not support the machines, or each other.
    """

    compiler: Compiler = TorchCompile()  # noqa: RUF009 (it is frozen)
