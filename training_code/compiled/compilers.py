"""The differences between compilers: device, compilation, gradient averaging, and saving of checkpoints."""

from __future__ import annotations

import importlib.util
import resource
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from common.job import Job
from common.process_group import device_of
from guard import Compilations, DynamoCompilations, NoCompilations, XlaCompilations
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

COMPILERS = ("none", "inductor", "xla")
Step = Callable[[Tensor], Tensor]


class Compiler(Protocol):
    device: torch.device
    compilations: Compilations
    warm_up: int  # steps until every graph is compiled

    def optimizer(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer: ...

    def model(self, model: nn.Module) -> nn.Module:
        """The model for the step, with data parallelism over all ranks."""
        ...

    def step(self, step: Step) -> Step:
        """The step for the training loop."""
        ...

    def average(self, optimizer: torch.optim.Optimizer) -> None:
        """Average the gradients over the ranks, unless the model does so itself."""
        ...

    def save(self, state: dict[str, Any], file: Path) -> None:
        """Write tensors from any device, on rank 0; to be called by every rank."""
        ...

    def peak_mib(self) -> float: ...


class Torch:
    """Runs on this rank's GPU or the CPU, compiled by inductor, or eagerly with ``compile`` off."""

    warm_up = 1

    def __init__(self, job: Job, *, compile: bool, mode: str, dynamic: bool, strict: bool) -> None:
        self.device = device_of(job)
        self.compilations: Compilations = DynamoCompilations() if compile else NoCompilations()
        self._job, self._compile, self._mode, self._dynamic, self._strict = job, compile, mode, dynamic, strict
        if job.ranks > 1:
            dist.init_process_group("cpu:gloo,cuda:nccl" if self.device.type == "cuda" else "gloo")

    def optimizer(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=learning_rate, fused=True)  # one kernel: no need to compile it

    def model(self, model: nn.Module) -> nn.Module:
        if self._compile:
            # The model is one graph, and its backward another; a graph break is an error. Within DDP, the compiler splits them at
            # gradient buckets, so that all-reduces overlap with computation.
            model = torch.compile(model, fullgraph=self._strict, dynamic=self._dynamic, mode=self._mode)  # type: ignore[assignment]
        return DistributedDataParallel(model) if self._job.ranks > 1 else model

    def step(self, step: Step) -> Step:
        return step

    def average(self, optimizer: torch.optim.Optimizer) -> None:
        pass

    def save(self, state: dict[str, Any], file: Path) -> None:
        if self._job.rank == 0:
            torch.save(state, file)

    def peak_mib(self) -> float:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated() / 2**20
        return process_peak_mib()


class Xla:
    """Runs on this rank's XLA device. XLA traces operations, and compiles them at the end of a step as one graph."""

    warm_up = 2  # the first step creates the optimizer's state, which is an input of the second

    def __init__(self, job: Job) -> None:
        if importlib.util.find_spec("torch_xla") is None:
            raise SystemExit(
                "--compiler xla needs torch_xla, which this Python does not have: pip install torch==2.9.0 torch_xla==2.9.0"
            )
        import torch_xla
        from torch_xla import runtime

        check_world(runtime.world_size(), job.ranks)
        self.device = torch_xla.device()
        self.compilations: Compilations = XlaCompilations()
        if job.ranks > 1:
            dist.init_process_group("gloo")  # for control messages; gradients use XLA's own collectives

    def optimizer(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
        # The step count is then a tensor; a number would be read back, and break the graph, at each step.
        return torch.optim.AdamW(parameters, lr=learning_rate, capturable=True)

    def model(self, model: nn.Module) -> nn.Module:
        return model

    def step(self, step: Step) -> Step:
        import torch_xla

        # Marks the step's end, and fails where the step reads a value before.
        return torch_xla.compile(step, full_graph=True, name="step")  # type: ignore[no-any-return]

    def average(self, optimizer: torch.optim.Optimizer) -> None:
        from torch_xla.core import xla_model

        xla_model.reduce_gradients(optimizer)

    def save(self, state: dict[str, Any], file: Path) -> None:
        from torch_xla.core import xla_model

        xla_model.save(state, file, master_only=True, global_master=True)

    def peak_mib(self) -> float:
        from torch_xla.core import xla_model

        try:
            return float(xla_model.get_memory_info(self.device)["peak_bytes_used"]) / 2**20
        except RuntimeError:  # XLA's CPU client does not count
            return process_peak_mib()


def check_world(xla_world: int, ranks: int) -> None:
    """Exit where XLA's collectives do not reach every rank, so that each would train a separate model."""
    if xla_world != ranks:
        raise SystemExit(
            f"--compiler xla needs XLA's world size to be WORLD_SIZE, got {xla_world} and {ranks}: "
            "on PJRT_DEVICE=CPU, which has no collectives, start one process on one host"
        )


def process_peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
