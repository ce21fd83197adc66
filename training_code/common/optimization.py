"""Parts of an optimizer's step: parameter groups, the learning rate's schedule, accumulation and clipping."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

RATE_RULES = {"linear": 1.0, "square-root": 0.5}  # the power of the batch's growth with which the rate grows


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """An optimizer's groups: matrices decay; vectors, which are biases and the scales of norms, do not."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    matrices = [parameter for parameter in parameters if parameter.ndim >= 2]
    vectors = [parameter for parameter in parameters if parameter.ndim < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def add_schedule(parser: argparse.ArgumentParser, peak: float) -> None:
    """Add the arguments of ``scheduled_rate``, with which the rate is constant by default."""
    add = parser.add_argument
    add("--learning-rate", type=float, default=peak, help="the peak, which a resumed job may change")
    add("--warm-up", type=int, default=0, help="steps until the peak")
    add("--least-rate", type=float, default=1.0, help="the share of the peak that half a cosine ends at; 1: constant")
    add("--base-batch-size", type=positive, help="the batch over all ranks that the rate is for; by default any")
    add("--rate-rule", choices=tuple(RATE_RULES), default="linear", help="how the rate grows with the batch")


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, like 256, got {text!r}")
    return int(text)


def scheduled_rate(options: argparse.Namespace, step: float, steps: float, batch: int) -> float:
    """The learning rate in a step, from 1 on, by the arguments of ``add_schedule``, of ``batch`` samples over all ranks.

    The linear rule is that of https://arxiv.org/abs/1706.02677, the square root that of https://arxiv.org/abs/1404.5997.
    """
    growth = (batch / options.base_batch_size) ** RATE_RULES[options.rate_rule] if options.base_batch_size else 1.0
    return float(options.learning_rate * growth * warmup_cosine(step, steps, options.warm_up, options.least_rate))


def warmup_cosine(step: float, steps: float, warm_up: int, least: float = 0.1) -> float:
    """The share of the peak learning rate in a step, from 1 on: a linear rise, then half a cosine down to ``least``."""
    if step <= warm_up:
        return step / warm_up
    progress = min(1.0, (step - warm_up) / max(1, steps - warm_up))
    return least + (1 - least) * (1 + math.cos(math.pi * progress)) / 2


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
