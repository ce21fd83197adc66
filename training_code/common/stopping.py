"""Handles SIGTERM: all ranks stop after the same step.

SageMaker sends it when a job is stopped or interrupted, to each host at a different time, so the ranks compare after each step.
"""

from __future__ import annotations

import signal

import torch
import torch.distributed as dist


class Stop:
    """Whether any rank got SIGTERM. ``agreed`` is the same on all ranks once ``check`` has returned on all."""

    def __init__(self) -> None:
        self._received, self.agreed = list[int](), False
        of_gpus = dist.is_initialized() and dist.get_backend() in ("nccl", "smddp")  # which reduce no others' tensors
        self._group = dist.new_group(backend="gloo") if of_gpus else None
        signal.signal(signal.SIGTERM, lambda number, _: self._received.append(number))

    def check(self) -> bool:
        """To be called after each step on every rank. It compares numbers on the CPU, without waiting for a device."""
        stopping = torch.tensor(len(self._received))
        if dist.is_initialized():
            dist.all_reduce(stopping, dist.ReduceOp.MAX, group=self._group)
        self.agreed = bool(stopping)
        return self.agreed
