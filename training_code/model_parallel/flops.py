"""The floating-point operations of a training step, of which MFU is the share of a GPU's peak."""

from __future__ import annotations

from torch import nn


def flops_per_token(model: nn.Module, layers: int, width: int, context: int) -> float:
    """Of forward and backward: 6 for each parameter but look-ups, and attention, of which half is masked (PaLM, appendix B)."""
    looked_up = sum(part.weight.numel() for part in model.modules() if isinstance(part, nn.Embedding))
    return 6 * (sum(parameter.numel() for parameter in model.parameters()) - looked_up) + 6 * layers * width * context
