"""A language model's head that returns the loss in place of logits, which for all tokens at once are often the largest tensor.

Of a vocabulary of 128,256 and 16,384 tokens of a rank, logits in fp32 are 7.8 GiB, and their gradient as much. Here they are
computed for a chunk of the tokens at a time, and with them the chunk's gradients, so that nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Loss = Callable[[Tensor, Tensor], Tensor]  # of logits [n, vocabulary] and targets [n], summed over both
CHUNKS = 8  # of a microbatch, at least, as torchtitan has


class Head(nn.Linear):
    """A linear layer from activations to logits or, where it has ``targets`` of them, to the sum of the chunks' losses.

    FSDP gathers its weight once for all chunks, which are inside its forward.
    """

    targets: Tensor | None = None
    loss: Loss | None = None
    chunk = 0  # tokens, at most
    returned: Tensor | None = None

    def forward(self, hidden: Tensor) -> Tensor:
        if self.targets is None or self.loss is None:
            return super().forward(hidden)
        rows, targets = hidden.flatten(0, -2), self.targets.flatten()
        size = min(self.chunk, -(-len(targets) // CHUNKS))
        parameters = [self.weight] if self.bias is None else [self.weight, self.bias]
        self.returned = ChunkedLoss.apply(targets, self.loss, size, torch.is_grad_enabled(), rows, *parameters)
        return self.returned


class ChunkedLoss(torch.autograd.Function):
    """The sum of the chunks' losses. Their gradients are computed in the forward; the backward multiplies them by its own."""

    @staticmethod
    def forward(
        context: Any, targets: Tensor, loss: Loss, size: int, backward: bool, rows: Tensor, *parameters: Tensor
    ) -> Tensor:
        own, losses = [one.detach().requires_grad_(backward) for one in parameters], list[Tensor]()
        if backward:
            # Sums of many chunks, in fp32 also where the parameters are not.
            context.sums = [torch.zeros_like(one, dtype=torch.float32) for one in own]
            context.of_rows = torch.empty_like(rows)
        for first in range(0, len(rows), size):
            some = rows[first : first + size].detach().requires_grad_(backward)
            with torch.set_grad_enabled(backward):
                part = loss(F.linear(some, *own), targets[first : first + size])
            if backward:
                context.of_rows[first : first + size], *gradients = torch.autograd.grad(part, (some, *own))
                for whole, gradient in zip(context.sums, gradients, strict=True):
                    whole += gradient
                del gradients, gradient
            losses.append(part.detach())
            del part
        return torch.stack(losses).sum()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        of_rows, sums = context.of_rows, context.sums
        del context.of_rows, context.sums
        return *[None] * 4, of_rows.mul_(gradient), *(whole.mul_(gradient).to(of_rows.dtype) for whole in sums)
