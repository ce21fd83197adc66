"""Forward and backward of a step's microbatches: one after the other, or in a pipeline's schedule."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Protocol

import torch
import torch.distributed as dist
from common.checkpoints import Checkpointer, Progress
from common.job import Job
from common.loss import IGNORED, counted, token_loss
from common.optimization import clip_gradients, require_finite, sync_gradients
from common.process_group import to_device
from degrees import Degrees
from head import Head
from loss_scale import LossScale
from parallelize import data_rank, local, loss_context, schedule_of
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

Batch = tuple[Tensor, Tensor]  # tokens and targets, both int64 [n, context]


class Corpus(Protocol):
    """Sequences in an order that is a function of the position in the training."""

    def __len__(self) -> int: ...

    def batch(self, first: int, size: int) -> Batch: ...


def check_corpus(corpus: Corpus, batch_size: int) -> None:
    """Raise ValueError where an epoch is shorter than a batch."""
    if batch_size > len(corpus):
        raise ValueError(f"batch_size must be at most the sequences of an epoch, {len(corpus)}, got {batch_size}")


def batches(
    corpus: Corpus, progress: Progress, options: argparse.Namespace, degrees: Degrees, mesh: DeviceMesh
) -> Iterator[tuple[int, Batch]]:
    """The number of each step that is left, with this rank's tokens and targets."""
    for done in range(progress.steps + 1, options.steps + 1):
        first = progress.samples + (done - progress.steps - 1) * options.batch_size
        yield done, share_of(corpus, first, options.batch_size, degrees, mesh)


def held_out_batches(corpus: Corpus, size: int, degrees: Degrees, mesh: DeviceMesh) -> Iterator[Batch]:
    """This rank's shares of all sequences, in batches; what fills up the last one does not count."""
    for first in range(0, len(corpus), size):
        yield share_of(corpus, first, size, degrees, mesh, len(corpus))


def share_of(
    corpus: Corpus, first: int, size: int, degrees: Degrees, mesh: DeviceMesh, end: int | None = None
) -> Batch:
    """This rank's share of the batch from position ``first`` on; what is at ``end`` or behind it does not count."""
    share = size // degrees.data
    first += data_rank(mesh) * share
    tokens, targets = corpus.batch(first, share)
    if end is not None:
        targets = targets.masked_fill(torch.arange(first, first + share)[:, None] >= end, IGNORED)
    return tokens, targets


class Microbatches:
    """Computes the loss of this rank's share of a batch, and with its backward the gradients.

    Args:
        stage_modules: This rank's, by the number of the stage.
        options: ``gradient_sync`` and ``loss_chunk`` are those of arguments.py.
        logits_of: What a model returns for tokens.
    """

    def __init__(
        self,
        stage_modules: dict[int, nn.Module],
        degrees: Degrees,
        mesh: DeviceMesh,
        device: torch.device,
        scale: LossScale,
        options: argparse.Namespace,
        logits_of: Callable[[Any, Tensor], Tensor] = lambda model, tokens: model(tokens),
    ) -> None:
        self.stage_modules, self.degrees, self.mesh = stage_modules, degrees, mesh
        self.device, self.scale = device, scale
        self.pipeline = mesh.get_group("pipeline") if degrees.pipeline > 1 else None
        self.each, self._logits_of = options.gradient_sync == "each", logits_of
        parts = [part for module in stage_modules.values() for part in module.modules()]
        self._head = next((part for part in parts if isinstance(part, Head) and options.loss_chunk), None)
        if self._head is not None:
            self._head.chunk = options.loss_chunk
        if self.pipeline is not None:
            given = degrees, mesh, stage_modules, self._of_output, device, self._head, self.each
            self._stages, self.schedule = schedule_of(*given)

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [parameter for module in self.stage_modules.values() for parameter in module.parameters()]

    def loss(self, tokens: Tensor, targets: Tensor, *, backward: bool = True) -> Tensor:
        """This rank's part of the loss of the batch, of which ``whole`` is that; 0 on ranks without the last stage."""
        tokens, targets = to_device(tokens, self.device), to_device(targets, self.device)
        self.begin(targets)
        run = self._accumulated if self.pipeline is None else self._pipelined
        with loss_context(self.degrees):
            losses = run(tokens, targets, backward)
        if self._head is not None:
            self._head.targets = None
        if not losses:
            return torch.zeros((), device=self.device)
        return torch.stack([local(loss.detach()) for loss in losses]).sum() / self.scale.value

    def begin(self, targets: Tensor) -> None:
        """Set the loss of the step's batch, by the number of its targets that count."""
        self._of_targets = partial(token_loss, count=counted(targets), shares=dist.get_world_size())
        if self._head is not None:
            self._head.loss = self._scaled  # its gradients, computed with the loss, would be 0 without the scale

    def of_microbatch(self, model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
        """The scaled loss of one, of a model with its last stage."""
        if self._head is not None:
            self._head.targets, self._head.returned = targets, None
        output = self._logits_of(model, tokens)
        if self._head is not None and output is not self._head.returned:
            raise ValueError(
                f"loss_chunk must be 0 for {type(model).__name__.removeprefix('FSDP')}, which changes its head's logits, "
                f"got {self._head.chunk}"
            )
        return self._of_output(output, targets)

    def _of_output(self, output: Tensor, targets: Tensor) -> Tensor:
        """The scaled loss, by logits, unless the head has returned it."""
        return self._scaled(output, targets) if output.ndim else output

    def _scaled(self, logits: Tensor, targets: Tensor) -> Tensor:
        return self.scale.scaled(self._of_targets(logits, targets))

    def _accumulated(self, tokens: Tensor, targets: Tensor, backward: bool) -> list[Tensor]:
        [model], parts, losses = self.stage_modules.values(), self.degrees.microbatches, list[Tensor]()
        for number, pair in enumerate(zip(tokens.chunk(parts), targets.chunk(parts), strict=True), start=1):
            sync_gradients(model, number == parts, self.each)
            loss = self.of_microbatch(model, *pair)
            if backward:
                loss.backward()
            losses.append(loss.detach())
        return losses

    def _pipelined(self, tokens: Tensor, targets: Tensor, backward: bool) -> list[Tensor]:
        last, losses = self.degrees.stages - 1 in self.stage_modules, list[Tensor]()
        for stage in self._stages:
            stage.targets = targets.chunk(self.degrees.microbatches)
        if self._head is not None:  # PyTorch tries the stages out with the first microbatch
            self._head.targets = targets[: len(targets) // self.degrees.microbatches]
        run = self.schedule.step if backward else self.schedule.eval
        outputs = {"target": targets, "losses": losses} if last else {}
        run(*((tokens,) if 0 in self.stage_modules else ()), **outputs, return_outputs=False)
        return losses

    def step(self, optimizers: Iterable[Optimizer], tokens: Tensor, targets: Tensor, clip: float) -> Batch:
        """One step on this rank's share. Returns its loss, and the norm of all gradients, infinite where fp16 skips the step."""
        loss = self.loss(tokens, targets)
        if not self.scale.enabled:  # with fp16 such a step is left out, as by GradScaler, until the scale is 1
            require_finite(loss, "loss")
        norm = torch.full_like(loss, torch.inf)
        finite = self.scale.unscale(self.parameters)  # where they are not, the step is left out on every rank
        if finite:
            norm = clip_gradients(self.parameters, clip, self.pipeline)
        for optimizer in optimizers:
            if finite:
                optimizer.step()
            optimizer.zero_grad()
        return loss, norm

    @torch.no_grad()
    def evaluate(self, batches: Iterable[Batch]) -> Tensor:
        """This rank's part of the loss of all targets of some batches, of each of which it has a share."""
        for module in self.stage_modules.values():
            module.eval()
        summed, count = torch.zeros(2, dtype=torch.float64, device=self.device)
        for tokens, targets in batches:
            of_batch = counted(to_device(targets, self.device))
            summed, count = summed + self.loss(tokens, targets, backward=False) * of_batch, count + of_batch
        for module in self.stage_modules.values():
            module.train()
        return summed / count

    def checkpointer(self, job: Job, optimizers: Iterable[Optimizer], batch_size: int, **fixed: object) -> Checkpointer:
        """Of the modules and the loss scale; ``fixed`` are the settings that a resumed run must have too."""
        free = {"batch_size": batch_size, **self.degrees.named}
        states = {"loss_scale": self.scale} if self.scale.enabled else {}
        return Checkpointer(job, self.stage_modules.values(), optimizers, fixed=fixed, free=free, states=states)

    def whole(self, loss: Tensor) -> float:
        """The batch's loss by every rank's part; the host waits for it."""
        whole = loss.clone()
        dist.all_reduce(whole)
        return whole.item() * self.degrees.pipeline / dist.get_world_size()
