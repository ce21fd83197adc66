"""SIGTERM, on which every rank stops after the same step.

SageMaker sends it when a job is stopped and when its spot machines are taken back, to each host at its own moment; what the hosts
have to agree on is the step. In an epoch's last step a rank may be out of batches: as a Joinable it takes part all the same.
"""

from __future__ import annotations

import signal
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Joinable, JoinHook
from torch.nn.parallel import DistributedDataParallel


class Stop(Joinable):
    """Whether any rank was told to stop. ``agreed`` is the same on all ranks once ``check`` has returned on all."""

    def __init__(self) -> None:
        super().__init__()
        self._told = False
        self.agreed = False
        signal.signal(signal.SIGTERM, self._tell)

    def _tell(self, *_: object) -> None:
        self._told = True

    def check(self) -> bool:
        """After each step, on every rank. One number is summed on the CPU, so that no device is waited for."""
        told = torch.tensor(int(self._told))
        if dist.is_initialized():
            dist.all_reduce(told, dist.ReduceOp.MAX)
        self.agreed = bool(told)
        return self.agreed

    def beside(self, model: DistributedDataParallel) -> list[Joinable]:
        """What ``Join`` is to be given where ranks may differ in their batches: the model, and this."""
        self._model = model
        return [model, self]

    def join_hook(self, **_: Any) -> JoinHook:
        return _Check(self)

    @property
    def join_device(self) -> torch.device:
        return self._model.join_device

    @property
    def join_process_group(self) -> Any:
        return self._model.join_process_group


class _Check(JoinHook):
    """What a rank without batches does in the others' steps."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    def main_hook(self) -> None:
        self._stop.check()
