"""A training's log: loss, tokens per second, MFU and peak memory, TensorBoard's event files, and a profile on demand."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from common.job import Job

# Dense bf16 FLOP/s, by a part of the device's name: the numbers of torchtitan's tools/utils.py, from NVIDIA's data sheets.
PEAK_FLOPS = {"A100": 312e12, "H100": 989e12, "H200": 989e12, "L40S": 362e12}


class TrainingLog:
    """Prints a line for each logged step on rank 0, in one write, and its numbers to TensorBoard's event files in ``events``."""

    def __init__(
        self, job: Job, device: torch.device, *, flops: float = 0, events: Path | None = None, unit: str = "tokens"
    ) -> None:
        self._job, self._device, self._flops, self._unit = job, device, flops, unit
        self._count, self._began = 0, math.nan  # the first step, in which the most is compiled, is no part of a rate
        self._writer: Any = None
        if events is not None and job.rank == 0:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(events))

    def count(self, units: int) -> None:
        """Add the tokens, or what the unit is, of a step over all ranks; after each step."""
        if math.isnan(self._began):
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
            self._began = time.perf_counter()
        else:
            self._count += units

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Around what is no part of a step, such as an evaluation: its time does not count."""
        paused = time.perf_counter()
        yield
        self._began += time.perf_counter() - paused

    def write(self, step: int, **values: float) -> float | None:
        """Log a step's values, and the rate since the last call, which is returned too; unknown, None, where that were no steps.

        Reading a value from the device is the caller's.
        """
        now = time.perf_counter()
        rate = self._count / (now - self._began) if self._count else None
        self._count, self._began = 0, now
        if self._job.rank != 0:
            return rate
        values |= self._of_the_device(rate)
        text = " ".join(f"{name} {value:.6f}" for name, value in values.items())
        print(f"step {step} {text} {self._unit}/s {'unknown' if rate is None else f'{rate:.0f}'}\n", end="", flush=True)
        if self._writer is not None:
            measured = {} if rate is None else {f"{self._unit}_per_second": rate}
            for name, value in {**values, **measured}.items():
                self._writer.add_scalar(name, value, step)
            self._writer.flush()
        return rate

    def _of_the_device(self, rate: float | None) -> Mapping[str, float]:
        if self._device.type != "cuda":
            return {}
        name = torch.cuda.get_device_name(self._device)
        peak = next((flops for part, flops in PEAK_FLOPS.items() if part in name), None)
        found = {"memory_gib": torch.cuda.max_memory_allocated(self._device) / 2**30}
        if peak and self._flops and rate:
            found["mfu"] = rate * self._flops / (self._job.ranks * peak)
        return found


def profile(job: Job, first: int, steps: int = 3) -> AbstractContextManager[Any]:
    """PyTorch's profiler around the loop, from step ``first``, at least 2, for some steps; 0 for none.

    Call ``step()`` on it after each step. The trace, for https://ui.perfetto.dev, is ``trace-RANK.json`` in the job's output.
    """
    if first == 0:
        return nullcontext()
    job.output.mkdir(parents=True, exist_ok=True)
    return torch.profiler.profile(
        schedule=torch.profiler.schedule(skip_first=first - 2, wait=0, warmup=1, active=steps, repeat=1),
        on_trace_ready=lambda found: found.export_chrome_trace(str(job.output / f"trace-{job.rank}.json")),
    )
