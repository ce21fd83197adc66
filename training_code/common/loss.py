"""The one loss rule: what all targets that count add up to, divided by their number over all ranks and microbatches of a step.

A mean of the means of ranks, microbatches or steps would give more weight to the targets of a rank that has few of them: a short
text's, or those of an epoch's last samples.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed import ProcessGroup

IGNORED = -100  # a target that does not count, PyTorch's default: padding


def counted(targets: Tensor, group: ProcessGroup | None = None) -> Tensor:
    """The number of targets that count, over all ranks of ``group`` that have a share of the batch, on the device."""
    count = (targets != IGNORED).sum()
    if dist.is_initialized():
        dist.all_reduce(count, group=group)
    return count


def token_loss(
    logits: Tensor, targets: Tensor, count: Tensor | int, shares: Tensor | int = 1, label_smoothing: float = 0.0
) -> Tensor:
    """This rank's part of the mean cross-entropy of ``count`` targets, which is the mean of the parts of ``shares`` ranks.

    DDP and FSDP average gradients over the ranks, and so sum up those of the parts. The parts of a rank's microbatches are
    added. Where nothing counts, it is 0.

    Args:
        logits: [..., classes].
        targets: int64 [...], of which those that are ``IGNORED`` do not count.
    """
    flat = logits.flatten(0, -2).float(), targets.flatten()
    summed = F.cross_entropy(*flat, ignore_index=IGNORED, reduction="sum", label_smoothing=label_smoothing)
    return summed * (shares / (count.clamp(min=1) if isinstance(count, Tensor) else max(count, 1)))


def batch_loss(part: Tensor) -> float:
    """The loss of a batch, of which each rank has a part; to be called by every rank, which waits for the device."""
    whole = part.detach().clone()
    dist.all_reduce(whole)
    return whole.item() / dist.get_world_size()


class MeanLoss:
    """The mean loss of all targets of several steps, over all ranks, for a log; only ``read`` waits for the device."""

    def __init__(self, device: torch.device, shares: int = 1) -> None:
        self._shares = shares
        self._loss, self._targets = torch.zeros(2, dtype=torch.float64, device=device).unbind()

    def add(self, loss: Tensor, count: Tensor | int) -> None:
        """Add a step of ``count`` targets over all ranks, of which ``loss`` is this rank's part."""
        self._loss += loss.detach().double() * count
        self._targets += count

    def read(self) -> float:
        """Of the steps since the last call; NaN without one. To be called by every rank."""
        state = self.state_dict()
        self.load_state_dict({"loss": 0.0, "targets": 0.0})
        return state["loss"] / state["targets"] if state["targets"] else float("nan")

    def state_dict(self) -> dict[str, float]:
        """The same on all ranks, each of which has to call it."""
        summed = self._loss.cpu().clone()
        if dist.is_initialized() and self._shares > 1:
            dist.all_reduce(summed)
        return {"loss": summed.item() / self._shares, "targets": self._targets.item()}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        self._loss.fill_(state["loss"])
        self._targets.fill_(state["targets"])
