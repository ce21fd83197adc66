"""The number format of a step's matrix products, and the loss's scale where it is fp16."""

# ran: fp16 with a gradient scaler, bf16 by autocast | test_precision | no | one H200 | no

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

FORMATS = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Precision:
    """Autocast and gradient scaler of one training; with other formats than fp16 the scaler does nothing.

    ``auto`` is bf16 on a GPU that has it, fp16 on one on which PyTorch would emulate it, such as those of ml.p3 and ml.g4dn, and
    fp32 on a CPU. Weights, gradients and optimizer state stay fp32.
    """

    def __init__(self, name: str, device: torch.device) -> None:
        self.name, self._device = automatic(device) if name == "auto" else name, device
        on, new = self.name == "fp16", hasattr(torch.amp, "GradScaler")  # which PyTorch 2.2, with SMDDP, lacks
        self.scaler = torch.amp.GradScaler(device.type, enabled=on) if new else torch.cuda.amp.GradScaler(enabled=on)

    def autocast(self) -> AbstractContextManager[None]:
        return torch.autocast(self._device.type, FORMATS.get(self.name), enabled=self.name in FORMATS)


def automatic(device: torch.device) -> str:
    if device.type != "cuda":
        return "fp32"
    return "bf16" if torch.cuda.get_device_capability(device) >= (8, 0) else "fp16"
