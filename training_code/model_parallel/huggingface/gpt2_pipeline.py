"""GPT-2 of transformers as a sequence, which is cut into the stages of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from degrees import Degrees
from parallelize import local, schedule_of
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from transformers import GPT2Config, GPT2LMHeadModel


class GPT2Sequence(GPT2LMHeadModel):
    """GPT-2 with the parameters' names of transformers, of which a stage may lack layers, embeddings, or norm and head.

    It takes tokens, int64 [n, context], or activations of the stage before, and returns logits or activations.
    """

    def __init__(self, config: GPT2Config) -> None:
        if config.tie_word_embeddings:
            raise ValueError(
                "tie_word_embeddings must be false in config.json for a pipeline, whose first stage has the embedding and whose "
                "last one the head, got true"
            )
        super().__init__(config)
        # By their numbers in the whole model, also where some are removed.
        self.transformer.h = nn.ModuleDict({str(number): layer for number, layer in enumerate(self.transformer.h)})

    def forward(self, x: Tensor) -> Tensor:
        body = self.transformer
        if not x.is_floating_point():
            x = body.drop(body.wte(x) + body.wpe(torch.arange(x.shape[1], device=x.device)))
        for layer in body.h.values():
            x = layer(x)
        return self.lm_head(body.ln_f(x))


class Pipeline:
    """PyTorch's pipeline schedule of the stage of this rank."""

    def __init__(self, model: nn.Module, degrees: Degrees, mesh: DeviceMesh, device: torch.device) -> None:
        stage = mesh.get_local_rank("pipeline")
        self.group = mesh.get_group("pipeline")
        self._first, self._last = stage == 0, stage == degrees.pipeline - 1
        self._device, self._microbatches = device, degrees.microbatches
        self._schedule = schedule_of(degrees, mesh, {stage: model}, self._scaled_loss, device)

    def forward_backward(self, batch: Sequence[Tensor], loss_of: Callable[[Tensor, Tensor], Tensor]) -> list[Tensor]:
        """The losses of the microbatches, of which the gradient is that of the sum; 0 on ranks without the last stage."""
        self._loss_of = loss_of
        tokens, targets = (part.flatten(0, 1) for part in batch)
        losses: list[Tensor] = []
        outputs = {"target": targets, "losses": losses} if self._last else {}
        self._schedule.step(*((tokens,) if self._first else ()), **outputs, return_outputs=False)
        return [local(loss.detach()) / self._microbatches for loss in losses] or [torch.zeros((), device=self._device)]

    def _scaled_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """PyTorch's schedules divide gradients by the number of microbatches."""
        return self._loss_of(logits, targets) * self._microbatches
