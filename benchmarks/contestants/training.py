"""One rank of a training that benchmarks/model_parallel_peer.py measures; a contestant provides the step.

A contestant is a script with its Case as a JSON argument, run once for each rank with torchrun's variables. It first measures the
memory of tensors, then waits for a number of steps on standard input, runs them between two barriers, and rank 0 prints the
seconds of one. So two contestants take turns in one run, each in its own processes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TRAINING_CODE = Path(__file__).parents[2] / "training_code"
MEMORY_STEPS = 2  # counted, after as many, of which the first allocates the optimizer's state
CLIP = 1.0
LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class Case:
    """The model's sizes, the layout, and each rank's sequences of a step, which ``microbatches`` divide."""

    layers: int
    width: int
    heads: int
    hidden: int
    vocabulary: int
    context: int
    ranks: int
    sequences: int
    microbatches: int
    precision: str
    recompute: bool

    @staticmethod
    def here() -> Case:
        return Case(**json.loads(sys.argv[1]))

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    def batch(self) -> tuple[Any, Any]:
        """This rank's tokens and targets, int64 [sequences, context], equal for all contestants."""
        import torch

        random = torch.Generator().manual_seed(int(os.environ["RANK"]))
        tokens = torch.randint(self.vocabulary, (self.sequences, self.context + 1), generator=random)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


@dataclass(frozen=True)
class Training:
    """What a contestant builds: a training step, its loss on this rank, and its modules, whose parameters are counted."""

    step: Callable[[], float]
    modules: list[Any]


def weight(name: str, shape: Any) -> Any:
    """A parameter's value by our name for it, so that all contestants train the same model: their losses are compared."""
    import torch

    random = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    return torch.ones(shape) if len(shape) == 1 else torch.randn(shape, generator=random) * 0.02


def fill(module: Any, value_of: Callable[[str, Any], Any]) -> None:
    """Set a module's parameters, of which FSDP2 has sharded each."""
    import torch
    from torch.distributed.tensor import DTensor, distribute_tensor

    with torch.no_grad():
        for name, parameter in module.named_parameters():
            value = value_of(name.replace("_checkpoint_wrapped_module.", ""), parameter.shape)
            if isinstance(parameter, DTensor):
                value = distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)
            parameter.copy_(value)


def serve(build: Callable[[], Training]) -> None:
    """Measure the memory, print it with the number of parameters and the loss, and then run steps until standard input ends."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    with allocations() as memory:
        training = build()
        losses = [training.step() for _ in range(MEMORY_STEPS)]
        state = memory.alive
        memory.reset()
        losses += [training.step() for _ in range(MEMORY_STEPS)]
    parameters = sum(parameter.numel() for module in training.modules for parameter in module.parameters())
    report(peak=memory.peak, state=state, parameters=parameters, losses=losses)
    for line in sys.stdin:
        steps = int(line)
        dist.barrier()
        began, before = time.perf_counter(), time.process_time()
        for _ in range(steps):
            training.step()
        dist.barrier()
        seconds, cpu = time.perf_counter() - began, torch.tensor(time.process_time() - before)
        dist.all_reduce(cpu)
        report(seconds=seconds / steps, cpu_seconds=cpu.item() / steps)


def report(**values: Any) -> None:
    if os.environ["RANK"] == "0":
        print(f"MEASURED {json.dumps(values)}", flush=True)


def allocations() -> Any:
    """memory_use.Allocations of `training-jobs fits`, without its folder on the path."""
    scripts = TRAINING_CODE.parent / "training_jobs" / "training_jobs" / "torch_scripts"
    spec = importlib.util.spec_from_file_location("memory_use", scripts / "memory_use.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Allocations()
