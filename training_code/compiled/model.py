"""A small GPT that predicts the next byte, or a BERT, with its loss, so that a compiler has both in one graph."""

from __future__ import annotations

from argparse import Namespace

import torch
import torch.nn.functional as F
from common.loss import token_loss
from torch import Tensor, nn

VOCABULARY = 257  # the 256 bytes, and padding


def build(options: Namespace) -> LanguageModel:
    """The model that the arguments ``seed``, ``sequence``, ``width``, ``layers`` and ``heads`` define."""
    torch.manual_seed(options.seed)
    size = {name: getattr(options, name) for name in ("sequence", "width", "layers", "heads")}
    return LanguageModel(**size)


class LanguageModel(nn.Module):
    """A GPT; with ``causal`` off a BERT, whose attention is bidirectional.

    Args:
        sequence: The longest text's tokens.
    """

    def __init__(
        self, *, sequence: int, width: int, layers: int, heads: int, vocabulary: int = VOCABULARY, causal: bool = True
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width must be a multiple of heads, {heads}, like {16 * heads}, got {width}")
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(sequence, width)
        self.blocks = nn.Sequential(*(Block(width, heads, causal) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens: Tensor, targets: Tensor, count: Tensor, shares: Tensor | int = 1) -> Tensor:
        """``token_loss`` of the predictions for ``tokens``, int64 [n, length], in which ``count`` targets count."""
        embedded = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        logits = F.linear(self.norm(self.blocks(embedded)), self.tokens.weight)
        return token_loss(logits, targets, count, shares)


class Block(nn.Module):
    """A pre-norm transformer block: attention and a feed-forward network with residual connections, [n, length, width]."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.before_attention, self.before_network = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.attended = nn.Linear(width, width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))

    def forward(self, inputs: Tensor) -> Tensor:
        batch, length, width = inputs.shape
        projected = self.queries_keys_values(self.before_attention(inputs))
        each = projected.view(batch, length, 3, self.heads, width // self.heads)
        queries, keys, values = each.permute(2, 0, 3, 1, 4)
        # Padding follows the text, so a causal mask also hides it.
        attended = F.scaled_dot_product_attention(queries, keys, values, is_causal=self.causal)
        outputs = inputs + self.attended(attended.transpose(1, 2).reshape(batch, length, width))
        return outputs + self.network(self.before_network(outputs))
