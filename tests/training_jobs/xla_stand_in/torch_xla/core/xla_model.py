"""The calls that join replicas, of torch_xla/core/xla_model.py."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer


def is_master_ordinal() -> bool:
    return dist.get_rank() == 0


def rendezvous(tag: str) -> None:
    dist.barrier()


def reduce_gradients(optimizer: Optimizer) -> None:
    """A sum of all replicas', times one by their number."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
                parameter.grad *= 1.0 / dist.get_world_size()


def optimizer_step(optimizer: Optimizer, barrier: bool = False) -> Any:
    """`reduce_gradients`, then the optimizer's own step."""
    reduce_gradients(optimizer)
    return optimizer.step()


def broadcast_master_param(model: nn.Module) -> None:
    for tensor in (*model.parameters(), *model.buffers()):
        dist.broadcast(tensor.detach(), 0)


def save(data: Any, path: str) -> None:
    """By the master alone, without waiting."""
    if is_master_ordinal():
        torch.save(data, path)
