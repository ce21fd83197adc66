"""The log of a compiled job: each logged step, and at the end its measures, one to a line."""

from __future__ import annotations

import resource
import statistics
import time
from argparse import Namespace

import torch
from common.job import Job
from common.loss import MeanLoss
from common.training_log import TrainingLog
from torch import Tensor


class Log(TrainingLog):
    """The loss is read from the device only every ``log_every`` steps, and after the ``warm_up`` steps that compile."""

    def __init__(self, job: Job, options: Namespace, device: torch.device, warm_up: int = 1) -> None:
        super().__init__(job, device)
        self.loss = MeanLoss(device, job.ranks)
        self._every, self._warm_up = options.log_every, warm_up
        self._tokens = options.batch_size * options.sequence * job.ranks
        self._compiling, self._paces = 0.0, list[float]()  # seconds: of the warm-up, and of each measured step after it

    def start(self, step: int) -> None:
        """Before this first step."""
        self._compiled, self._start = step + self._warm_up - 1, time.perf_counter()

    def add(self, done: int, loss: Tensor, count: Tensor, rate: float) -> None:
        """Add a step of ``count`` targets, of whose loss each rank has its part."""
        self.loss.add(loss, count)
        self.count(self._tokens)
        if done % self._every and done != self._compiled:
            return
        value = self.loss.read()
        if done <= self._compiled:
            self._compiling = time.perf_counter() - self._start
        pace = self.write(done, loss=value, learning_rate=rate)
        if done > self._compiled and pace:
            self._paces.append(self._tokens / pace)

    def end(self, compilations: str, peak_mib: float) -> None:
        """``compilations`` is empty where nothing is compiled."""
        if self._job.rank != 0:
            return
        if self._paces:
            steady = statistics.median(self._paces)
            print(f"steady step {1000 * steady:.3f} ms")
            if compilations:
                print(f"compile time {max(self._compiling - self._warm_up * steady, 0):.3f} s")
        print(f"compilations {compilations or 0}")
        print(f"peak memory {peak_mib:.0f} MiB", flush=True)


def process_peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
