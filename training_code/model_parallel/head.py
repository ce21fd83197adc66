"""A language model's head that returns the loss in place of logits, which for all tokens at once are often the largest tensor.

Of a vocabulary of 128,256 and 16,384 tokens of a rank, logits in fp32 are 7.8 GiB, and their gradient as much. Here they are
computed for a chunk of the tokens at a time, and again in the backward.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Loss = Callable[[Tensor, Tensor], Tensor]  # of logits [n, vocabulary] and targets [n], summed over both


class Head(nn.Linear):
    """A linear layer from activations to logits or, where it has ``targets`` of them, to the sum of the chunks' losses.

    FSDP gathers its weight once for all chunks, which are inside its forward.
    """

    targets: Tensor | None = None
    loss: Loss | None = None
    chunk = 0  # tokens
    returned: Tensor | None = None

    def forward(self, hidden: Tensor) -> Tensor:
        if self.targets is None or self.loss is None:
            return super().forward(hidden)
        loss, linear = self.loss, super().forward
        rows, targets = hidden.flatten(0, -2).split(self.chunk), self.targets.flatten().split(self.chunk)

        def of_chunk(some: Tensor, following: Tensor) -> Tensor:
            return loss(linear(some), following)

        if len(rows) == 1:  # whose logits the backward needs next
            self.returned = of_chunk(rows[0], targets[0])
        else:
            parts = [
                checkpoint(of_chunk, *chunk, use_reentrant=False, preserve_rng_state=False)
                for chunk in zip(rows, targets, strict=True)
            ]
            self.returned = sum(parts[1:], parts[0])
        return self.returned
