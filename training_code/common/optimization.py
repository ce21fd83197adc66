"""Parts of an optimizer's step: parameter groups, accumulation and clipping."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """An optimizer's groups: matrices decay; vectors, which are biases and the scales of norms, do not."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    matrices = [parameter for parameter in parameters if parameter.ndim >= 2]
    vectors = [parameter for parameter in parameters if parameter.ndim < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def set_learning_rate(optimizers: Iterable[Optimizer], rate: float) -> None:
    """Set it in all groups. It is not part of a checkpoint's effect: a resumed job has the rate of its own arguments."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate


def sync_gradients(model: nn.Module, last: bool, each: bool = True) -> None:
    """To be called before the backward of each of several microbatches; ``last``: of the last one.

    FSDP2 reduce-scatters the gradients of each, so that none is held whole, and HSDP all-reduces them with the last. With
    ``each`` off, for who has the memory, and in DDP, whose gradients are whole, only those of the last one are communicated.
    """
    if isinstance(model, DistributedDataParallel):
        model.require_backward_grad_sync = last
    elif hasattr(model, "set_requires_gradient_sync"):  # FSDP2, which SMDDP's PyTorch lacks
        model.set_requires_gradient_sync(last or each)  # type: ignore[operator]
        model.set_requires_all_reduce(last)  # type: ignore[operator]


@torch.no_grad()
def clip_gradients(parameters: Iterable[nn.Parameter], limit: float, pipeline: ProcessGroup | None = None) -> Tensor:
    """Scale the gradients so that their norm, over all shards and the stages of ``pipeline``, is at most ``limit``; 0: any.

    Returns the norm before, on the device; the host does not wait for it. Raises RuntimeError as ``require_finite`` does.
    """
    parameters = [parameter for parameter in parameters if parameter.grad is not None]
    norm = nn.utils.get_total_norm([parameter.grad for parameter in parameters])  # type: ignore[misc]
    norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm  # of a DTensor
    if pipeline is not None:
        squared = norm**2
        dist.all_reduce(squared, group=pipeline)
        norm = squared.sqrt()
    require_finite(norm, "norm of the gradients")
    if limit:
        nn.utils.clip_grads_with_norm_(parameters, limit, norm)
    return norm


def require_finite(value: Tensor, name: str) -> None:
    """Raise RuntimeError where a step's loss or norm is not finite, before the weights are updated and written.

    The host does not wait for the device's check: on a GPU the error is CUDA's, of a later operation (torchtitan's trainer.py).
    """
    torch._assert_async(value.isfinite(), f"the {name} is not finite, so that the weights are not updated")
