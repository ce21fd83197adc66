"""Runs data_parallel/horovod_train.py with a stand-in for Horovod, of which there is no wheel: its functions over gloo.

It has what Horovod 0.28.1 does at the places where that differs from PyTorch: `DistributedOptimizer` is a new optimizer without
the state of the one that it is given, and `broadcast_optimizer_state` takes a step where there is no state.
"""

from __future__ import annotations

import os
import runpy
import sys
import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

hvd: Any = types.ModuleType("horovod.torch")
hvd.Sum = "sum"
hvd.init = lambda: dist.init_process_group("gloo")
hvd.rank, hvd.size = dist.get_rank, dist.get_world_size
hvd.local_rank, hvd.local_size = (lambda: int(os.environ["LOCAL_RANK"])), dist.get_world_size


def allreduce(tensor: torch.Tensor, op: str, name: str) -> torch.Tensor:
    summed = tensor.clone()
    dist.all_reduce(summed)
    return summed


def broadcast_object(value: object, root_rank: int) -> object:
    values = [value]
    dist.broadcast_object_list(values, src=root_rank)
    return values[0]


def broadcast_parameters(state: dict[str, torch.Tensor], root_rank: int) -> None:
    for value in state.values():
        dist.broadcast(value, src=root_rank)


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int) -> None:
    if not optimizer.state_dict()["state"]:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.zeros_like(parameter)
        super(type(optimizer), optimizer).step()  # type: ignore[misc]
    optimizer.load_state_dict(broadcast_object(optimizer.state_dict(), root_rank))  # type: ignore[arg-type]


def distributed_optimizer(
    optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, torch.Tensor]]
) -> torch.optim.Optimizer:
    parameters = [parameter for _, parameter in named_parameters]

    class Distributed(type(optimizer)):  # type: ignore[misc]
        synchronized = False

        def synchronize(self) -> None:
            for parameter in parameters:
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()  # type: ignore[operator]

        @contextmanager
        def skip_synchronize(self) -> Iterator[None]:
            self.synchronized = True
            yield
            self.synchronized = False

        def step(self) -> None:
            if not self.synchronized:
                self.synchronize()
            super().step()

    return Distributed(optimizer.param_groups)


for function in (allreduce, broadcast_object, broadcast_parameters, broadcast_optimizer_state):
    setattr(hvd, function.__name__, function)
hvd.DistributedOptimizer = distributed_optimizer
package: Any = types.ModuleType("horovod")
package.torch = hvd
sys.modules |= {"horovod": package, "horovod.torch": hvd}

if __name__ == "__main__":
    script = Path(__file__).parents[2] / "training_code" / "data_parallel" / "horovod_train.py"
    sys.path.insert(0, str(script.parent))
    runpy.run_path(str(script), run_name="__main__")
    dist.destroy_process_group()
