"""Runs data_parallel/horovod_train.py with a stand-in for Horovod, of which there is no wheel: its functions over gloo.

It has what Horovod 0.28.1 does at the place where that differs from PyTorch: `DistributedOptimizer` is a new optimizer without
the state of the one that it is given.
"""

from __future__ import annotations

import os
import pickle
import runpy
import sys
import types
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

hvd: Any = types.ModuleType("horovod.torch")
hvd.init = lambda: None
hvd.rank, hvd.size = (lambda: int(os.environ["RANK"])), (lambda: int(os.environ["WORLD_SIZE"]))
hvd.local_rank, hvd.local_size = (lambda: int(os.environ["LOCAL_RANK"])), hvd.size
# Its ranks know nothing of torch.distributed's process group.
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), hvd.size(), is_master=False)
group = dist.ProcessGroupGloo(dist.PrefixStore("horovod", store), hvd.rank(), hvd.size(), timedelta(seconds=300))


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


def distributed_optimizer(
    optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, torch.Tensor]]
) -> torch.optim.Optimizer:
    parameters = [parameter for _, parameter in named_parameters]

    class Distributed(type(optimizer)):  # type: ignore[misc]
        def synchronize(self) -> None:
            for parameter in parameters:
                summed = parameter.grad.clone()  # type: ignore[union-attr]
                group.allreduce([summed]).wait()
                parameter.grad.copy_(summed / hvd.size())  # type: ignore[union-attr]

    return Distributed(optimizer.param_groups)


hvd.broadcast_object, hvd.DistributedOptimizer = broadcast_object, distributed_optimizer
package: Any = types.ModuleType("horovod")
package.torch = hvd
sys.modules |= {"horovod": package, "horovod.torch": hvd}

if __name__ == "__main__":
    script = Path(__file__).parents[2] / "training_code" / "data_parallel" / "horovod_train.py"
    sys.path.insert(0, str(script.parent))
    runpy.run_path(str(script), run_name="__main__")
