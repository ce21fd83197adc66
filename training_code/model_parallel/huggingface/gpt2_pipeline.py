"""GPT-2 of transformers as a sequence, which is cut into the stages of a pipeline."""

from __future__ import annotations

import torch
from torch import Tensor, nn
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
