"""The scale of an fp16 model's loss, without which small gradients would be 0, and the ranks' agreement on which steps to take.

PyTorch's scalers are not sound in these layouts. In ``torch.amp.GradScaler`` the ranks of the first gradient's mesh agree
(torch/distributed/tensor/_dispatch.py, found_inf_reduce_handler), and so do no two stages of a pipeline. ``ShardedGradScaler``
sums what all ranks find, and AdamW's fused kernel leaves a step out where the sum is 1, but not where it is 2
(ATen/native/cuda/fused_adam_utils.cuh). Each optimizer of a rank would decide for itself. The rule is theirs.
"""

# ran: `precision="fp16"`, a scaled loss | test_model_parallel (soak), test_huggingface (soak) | no | one H200 | no

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
import torch.distributed as dist
from parallelize import local
from torch import Tensor, nn

FIRST, GROWTH_INTERVAL = 2.0**16, 2000  # of steps: GradScaler's


class LossScale:
    """Halves where any rank's gradient is infinite, and doubles after 2,000 steps without one; with fp32 and bf16 it is 1."""

    def __init__(self, precision: str = "fp32") -> None:
        self.enabled = precision == "fp16"
        self._scale, self._steps = FIRST, 0  # since it changed

    @property
    def value(self) -> float:
        return self._scale if self.enabled else 1.0

    def state_dict(self) -> dict[str, float]:
        return {"scale": self._scale, "steps": self._steps}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        if self.enabled:
            self._scale, self._steps = state["scale"], int(state["steps"])

    def scaled(self, loss: Tensor) -> Tensor:
        return loss * self.value if self.enabled else loss

    @torch.no_grad()
    def unscale(self, parameters: Iterable[nn.Parameter]) -> bool:
        """Divide the gradients by the scale. Returns whether those of all ranks are finite, so that the step is to be taken.

        The host waits for the device, with fp16. Raises RuntimeError where gradients are infinite even with a scale of 1.
        """
        if not self.enabled:
            return True
        gradients = [local(parameter.grad) for parameter in parameters if parameter.grad is not None]
        torch._foreach_div_(gradients, self.value)
        finite = nn.utils.get_total_norm(gradients).isfinite().float()
        dist.all_reduce(finite, dist.ReduceOp.MIN)
        self._update(bool(finite))
        return bool(finite)

    def _update(self, finite: bool) -> None:
        if finite and self._steps + 1 < GROWTH_INTERVAL:
            self._steps += 1
            return
        if self._scale == 1 and not finite:
            raise RuntimeError("the gradients are not finite in fp16 even with a loss scale of 1, so no step is taken")
        self._scale, self._steps = self._scale * 2 if finite else self._scale / 2, 0
