"""Runs data_parallel/horovod_train.py with a stand-in for Horovod, of which there is no wheel: its functions over gloo.

It has what Horovod 0.28.1 does at the places where that differs from PyTorch: `DistributedOptimizer` is a new optimizer without
the state of the one that it is given, and `broadcast_optimizer_state` takes a step where there is no state.
"""

from __future__ import annotations

import os
import pickle
import runpy
import sys
import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

hvd: Any = types.ModuleType("horovod.torch")
hvd.Sum, hvd.Average = "sum", "average"
hvd.init = lambda: None
hvd.rank, hvd.size = (lambda: int(os.environ["RANK"])), (lambda: int(os.environ["WORLD_SIZE"]))
hvd.local_rank, hvd.local_size = (lambda: int(os.environ["LOCAL_RANK"])), hvd.size
# Its ranks know nothing of torch.distributed's process group, of which each has one of its own.
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), hvd.size(), is_master=False)
group = dist.ProcessGroupGloo(dist.PrefixStore("horovod", store), hvd.rank(), hvd.size(), timedelta(seconds=300))


def allreduce(tensor: torch.Tensor, op: str = "average", name: str = "") -> torch.Tensor:
    summed = tensor.clone()
    group.allreduce([summed]).wait()
    return summed / hvd.size() if op == hvd.Average else summed


def broadcast(tensor: torch.Tensor, root_rank: int) -> torch.Tensor:
    options = dist.BroadcastOptions()
    options.rootRank = root_rank
    group.broadcast([tensor], options).wait()
    return tensor


def broadcast_object(value: object, root_rank: int) -> object:
    pickled = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
    size = broadcast(torch.tensor(len(pickled)), root_rank)
    received = pickled if hvd.rank() == root_rank else torch.empty(int(size), dtype=torch.uint8)
    return pickle.loads(bytes(broadcast(received, root_rank).tolist()))


def broadcast_parameters(state: dict[str, torch.Tensor], root_rank: int) -> None:
    for value in state.values():
        broadcast(value, root_rank)


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
                parameter.grad.copy_(allreduce(parameter.grad))

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
