"""What differs between compilers: where the model runs, what is compiled, how ranks add up, and how a checkpoint is saved."""

from __future__ import annotations

import importlib.util
import resource
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from common.job import Job
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
        """The model as the step calls it, over all ranks."""
        ...

    def step(self, step: Step) -> Step:
        """The whole step as the loop calls it."""
        ...

    def average(self, optimizer: torch.optim.Optimizer) -> None:
        """Make each gradient the mean over the ranks, where the model does not do so itself."""
        ...

    def save(self, state: dict[str, Any], file: Path) -> None:
        """Write tensors from wherever they are, on rank 0; every rank calls it."""
        ...

    def peak_mib(self) -> float: ...


class Torch:
    """Runs on the GPU of this rank or the CPU; compiled by inductor, or with ``compile`` off not at all."""

    warm_up = 1

    def __init__(self, job: Job, *, compile: bool, mode: str, dynamic: bool, strict: bool) -> None:
        cuda = torch.cuda.is_available()
        self.device = torch.device("cuda", job.local_rank) if cuda else torch.device("cpu")
        self.compilations: Compilations = DynamoCompilations() if compile else NoCompilations()
        self._job, self._compile, self._mode, self._dynamic, self._strict = job, compile, mode, dynamic, strict
        if cuda:
            torch.cuda.set_device(self.device)
            torch.set_float32_matmul_precision("high")  # float32 on tensor cores
        if job.ranks > 1:
            dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")

    def optimizer(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=learning_rate, fused=True)  # one kernel: no need to compile it

    def model(self, model: nn.Module) -> nn.Module:
        if self._compile:
            # The whole model is one graph, and its backward another, or else an error says what breaks it. Within DDP, the
            # compiler cuts them where a bucket of gradients is full, so that sums over the ranks overlap with computing.
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
    """Runs on XLA's device of this rank. XLA traces what runs, and compiles it where a step ends: all of it."""

    warm_up = 2  # the first step makes the optimizer's state, which the second one is given

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
            dist.init_process_group("gloo")  # for words between the hosts; gradients go by XLA's own collectives

    def optimizer(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
        # Its count of steps is a tensor then; as a number it would be read back, and the graph cut, at each step.
        return torch.optim.AdamW(parameters, lr=learning_rate, capturable=True)

    def model(self, model: nn.Module) -> nn.Module:
        return model

    def step(self, step: Step) -> Step:
        import torch_xla

        # Marks the step's end, and fails where the step asks for a value midway.
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
    """Refuse to train where XLA's collectives would not reach every rank: each would then train a model of its own."""
    if xla_world != ranks:
        raise SystemExit(
            f"--compiler xla needs XLA's world size to be WORLD_SIZE, got {xla_world} and {ranks}: "
            "on PJRT_DEVICE=CPU, which has no collectives, start one process on one host"
        )


def process_peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
