"""The loss of a batch of tokens, by forward and backward of microbatches: one after the other, or in a pipeline's schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
import torch.distributed as dist
from common.loss import counted, token_loss
from common.optimization import sync_gradients
from degrees import Degrees
from loss_scale import LossScale
from parallelize import local, loss_context, schedule_of
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

Loss = Callable[[Tensor, Tensor], Tensor]  # of logits and targets


class Accumulated:
    """One microbatch after the other; the last one's backward reduces the gradients over the ranks."""

    pipeline = None

    def __init__(self, model: nn.Module, scale: LossScale) -> None:
        self.model, self.scale = model, scale

    def losses(self, batch: Sequence[Tensor], loss_of: Loss, backward: bool) -> list[Tensor]:
        """The losses of the microbatches, of which the gradient is that of the sum.

        ``batch``: tokens and targets, both [microbatches, n, context].
        """
        losses = []
        for number, (tokens, targets) in enumerate(zip(*batch, strict=True), start=1):
            sync_gradients(self.model, number == len(batch[0]))
            loss = loss_of(self.model(input_ids=tokens, use_cache=False).logits, targets)
            if backward:
                self.scale.scaled(loss).backward()
            losses.append(local(loss.detach()))
        return losses


class Pipelined:
    """PyTorch's pipeline schedule of the stage of this rank."""

    def __init__(
        self, model: nn.Module, scale: LossScale, degrees: Degrees, mesh: DeviceMesh, device: torch.device
    ) -> None:
        stage = mesh.get_local_rank("pipeline")
        self.model, self.scale, self.pipeline = model, scale, mesh.get_group("pipeline")
        self._first, self._last = stage == 0, stage == degrees.pipeline - 1
        self._device, self._microbatches = device, degrees.microbatches
        self._schedule = schedule_of(degrees, mesh, {stage: model}, self._scaled_loss, device)

    def losses(self, batch: Sequence[Tensor], loss_of: Loss, backward: bool) -> list[Tensor]:
        """As ``Accumulated`` has them; 0 on ranks without the last stage."""
        self._loss_of = loss_of
        tokens, targets = (part.flatten(0, 1) for part in batch)
        losses: list[Tensor] = []
        outputs = {"target": targets, "losses": losses} if self._last else {}
        run = self._schedule.step if backward else self._schedule.eval
        run(*((tokens,) if self._first else ()), **outputs, return_outputs=False)
        factor = self._microbatches * self.scale.value
        return [local(loss.detach()) / factor for loss in losses] or [torch.zeros((), device=self._device)]

    def _scaled_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """PyTorch's schedules divide gradients by the number of microbatches."""
        return self.scale.scaled(self._loss_of(logits, targets) * self._microbatches)


def loss_of(parts: Accumulated | Pipelined, batch: Sequence[Tensor], degrees: Degrees, backward: bool = True) -> Tensor:
    """The loss of this rank's share of a batch, of which ``mean`` is that of the batch's tokens; its gradient is computed too."""
    of_tokens = partial(token_loss, count=counted(batch[1]), shares=dist.get_world_size())
    with loss_context(degrees):
        return torch.stack(parts.losses(batch, of_tokens, backward)).sum()


def mean(loss: Tensor, degrees: Degrees) -> float:
    """Over the ranks with a loss, which are those of a pipeline's last stage; the host waits for it."""
    whole = loss.clone()
    dist.all_reduce(whole)
    return whole.item() * degrees.pipeline / dist.get_world_size()


@torch.no_grad()
def evaluate(parts: Accumulated | Pipelined, batches: Iterable[Sequence[Tensor]], degrees: Degrees) -> Tensor:
    """The mean loss of some batches, each of this rank's share."""
    parts.model.eval()
    losses = [loss_of(parts, batch, degrees, backward=False) for batch in batches]
    parts.model.train()
    return torch.stack(losses).mean()
