"""What scripts call of PyTorch/XLA 2.9, on PyTorch and gloo: its client of CPUs has no collectives between processes.

A test double, since only Trainium, TPUs and GPUs run several replicas. Each does what its namesake does, eagerly.
"""

import torch

# A move to an XLA device makes parameters anew, as PyTorch/XLA 2.9.0 was seen to do.
torch.__future__.set_overwrite_module_params_on_conversion(True)


def device() -> torch.device:
    return torch.device("cpu")


def sync() -> None:
    """A graph is run here; nothing is left to run."""
