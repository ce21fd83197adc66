"""Measure a training script on this machine: what preparing its batches takes, and a step, in minutes.

    python measure.py [--seconds 10] [--steps 100] [--json] [--to measured.json] SCRIPT [ARGUMENTS OF THE SCRIPT]

The script is not changed. It runs up to its first loop over a ``torch.utils.data.DataLoader``, or over the batches of
``data_service.read_batches``. There its data set is read by 1, 2, 4, ... worker processes, up to one for each CPU, for
``--seconds`` each; then the loop goes on with batches that are in memory, so that its time is the step's alone, until
``--steps`` or three times ``--seconds`` are over, and the script is ended. It is to train on one accelerator.
``training-jobs plan`` reads what is printed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import re
import runpy
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import data_service
import torch
from batch_tensors import tensors_in
from data_service import BatchReader
from data_service.plan import Plan
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import DataLoader, IterableDataset

WARM_UP = 3  # steps, in which kernels are chosen and memory is allocated
KEPT = 4  # batches in memory, with which the steps are measured
HEAP_BLOCK = 31 * 2**20  # bytes: the release of blocks up to 32 MiB raises glibc's thresholds


class Measured(BaseException):
    """Ends the script; it is not an Exception, which a script may catch."""


@dataclass
class Measuring:
    """What is measured, and what was found."""

    seconds: float
    steps: int
    cpus: int
    scaling: dict[int, float] = field(default_factory=dict)
    sample_bytes: float = 0.0
    batch_size: int = 0
    durations: list[float] = field(default_factory=list)
    gradient_bytes: float | None = None
    own: DataLoader[Any] | None = None  # whose batches are not those of the script's loop

    def loop(self, loader: DataLoader[Any]) -> Iterator[Any]:
        """What the script's loop gets."""
        kept = self._preparation(loader)
        hook = register_optimizer_step_pre_hook(self._gradients)
        keep_memory_of_steps()
        ended = time.perf_counter() + 3 * self.seconds
        try:
            for number, batch in enumerate(itertools.cycle(kept)):
                began = time.perf_counter()
                yield batch
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                if number >= WARM_UP:
                    self.durations.append(time.perf_counter() - began)
                if len(self.durations) >= self.steps or (self.durations and time.perf_counter() > ended):
                    raise Measured
        finally:
            hook.remove()

    def _preparation(self, loader: DataLoader[Any]) -> list[Any]:
        kept: list[Any] = []
        for workers in counts(self.cpus):
            self.own = with_workers(loader, workers)
            batches = endless(self.own)
            first = [next(batches) for _ in range(2 * workers)]  # while the processes start
            kept = kept or first[:KEPT]
            samples, began = 0, time.perf_counter()
            while (spent := time.perf_counter() - began) < self.seconds:
                samples += samples_of(next(batches))
            self.scaling[workers] = samples / spent
            del batches
            self.own = None  # which ends its processes
        self.batch_size = samples_of(kept[0])
        self.sample_bytes = sum(tensor.nbytes for tensor in tensors_in(kept[0])) / self.batch_size
        return kept

    def _gradients(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self.gradient_bytes is None:
            gradients = (it.grad for group in optimizer.param_groups for it in group["params"])
            self.gradient_bytes = float(sum(it.nbytes for it in gradients if it is not None))

    def result(self, accelerators: Sequence[str]) -> dict[str, Any]:
        """As ``training-jobs plan`` reads it."""
        most = max(self.scaling)
        on_gpu = torch.cuda.is_available()
        device = torch.cuda.get_device_name() if on_gpu else "cpu"
        return {
            "batch_size": self.batch_size,
            "preprocess_seconds": self.cpus / self.scaling[most],
            "sample_bytes": self.sample_bytes,
            "step_seconds": {named(device, accelerators): statistics.median(self.durations)},
            "peak_memory_gib": torch.cuda.max_memory_allocated() / 2**30 if on_gpu else None,
            "gradient_bytes": self.gradient_bytes,
            "scaling": {str(workers): rate for workers, rate in self.scaling.items()},
            "vcpus": self.cpus,
            "machine": f"{platform.machine()}, {self.cpus} CPUs, {device}",
        }


def keep_memory_of_steps() -> None:
    """Let steps on CPUs reuse their memory, as they do in a training after its first evaluation or checkpoint.

    glibc returns what a step frees to the kernel, and each page is faulted in again in the next step, until a larger block was
    freed: that raises M_MMAP_THRESHOLD and M_TRIM_THRESHOLD, up to 32 and 64 MiB (glibc manual, "Malloc Tunable Parameters":
    "adjusted dynamically to suit the allocation patterns of the program"; malloc.c, DEFAULT_MMAP_THRESHOLD_MAX).
    """
    torch.empty(HEAP_BLOCK, dtype=torch.uint8)


def counts(cpus: int) -> list[int]:
    """1, 2, 4, ... and all."""
    return sorted({*(2**power for power in range(cpus.bit_length()) if 2**power <= cpus), cpus})


def with_workers(loader: DataLoader[Any], workers: int) -> DataLoader[Any]:
    """The same batches from so many worker processes, which stay from epoch to epoch."""
    options = {name: getattr(loader, name) for name in ("collate_fn", "worker_init_fn", "multiprocessing_context")}
    if isinstance(loader.dataset, IterableDataset):
        options |= {"batch_size": loader.batch_size}
    elif loader.batch_sampler is None:
        options |= {"batch_size": None, "sampler": loader.sampler}
    else:
        options |= {"batch_sampler": loader.batch_sampler}
    return DataLoader(loader.dataset, num_workers=workers, persistent_workers=True, **options)


def endless(loader: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from loader


def samples_of(batch: Any) -> int:
    """The length of the first tensor of a batch, which is 1 where it has none."""
    first = next(tensors_in(batch), None)
    return 1 if first is None or first.ndim == 0 else len(first)


def named(device: str, accelerators: Sequence[str]) -> str:
    """The accelerator's name as EC2 has it, of the device's as CUDA has it."""
    words = re.split(r"[\s-]+", device)
    return next((name for name in accelerators if name.split()[-1] in words), device)


class MeasuredBatches(BatchReader):
    """``data_service.read_batches`` for a script, whose batches are measured as a DataLoader's are."""

    def __init__(self, measuring: Measuring, dataset: Any, *, batch_size: int, seed: int = 0, **options: Any) -> None:
        iterable, collate = isinstance(dataset, IterableDataset), options.get("collate_fn")
        shards = (options.get("shards") or 1) if iterable else None
        self.plan = Plan.of(dataset, batch_size=batch_size, seed=seed, shards=shards)
        self._measuring, self._rank, self._ranks, self.metrics = measuring, 0, 1, None
        self._loader = DataLoader(dataset, batch_size=batch_size, shuffle=not iterable, collate_fn=collate)

    def __iter__(self) -> Iterator[Any]:
        return self._measuring.loop(self._loader)

    def epoch(self, number: int) -> Iterator[Any]:
        return iter(self)

    def set_epoch(self, epoch: int) -> None:
        pass

    def close(self, error: BaseException | None = None) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": 0, "samples": 0}

    def load_state_dict(self, state: Any) -> None:
        pass


def measure(script: str, arguments: Sequence[str], measuring: Measuring) -> None:
    """Run a script until it is measured.

    Raises:
        SystemExit: It ended before, or did not come to a loop over batches.
    """
    original = DataLoader.__iter__

    def patched(loader: DataLoader[Any]) -> Any:
        return original(loader) if loader is measuring.own else measuring.loop(loader)

    def read_batches(dataset: Any, **options: Any) -> MeasuredBatches:
        return MeasuredBatches(measuring, dataset, **options)

    sys.path.insert(0, str(Path(script).resolve().parent))  # as Python does
    try:
        with (
            mock.patch.object(DataLoader, "__iter__", patched),
            mock.patch.object(data_service, "read_batches", read_batches),
            mock.patch.object(sys, "argv", [script, *arguments]),
        ):
            runpy.run_path(script, run_name="__main__")
    except Measured:
        return
    raise SystemExit(f"measure: {script} ended before a loop over a DataLoader or read_batches was measured")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="for each number of processes")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--accelerators", default="", help="names of EC2's, between commas")
    parser.add_argument("--json", action="store_true", help="print the measurement alone")
    parser.add_argument("--to", type=Path, help="the file for the measurement")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not Path(options.script).is_file():
        parser.error(f"script must be a file, like train.py, got {options.script}")
    measuring = Measuring(options.seconds, options.steps, len(os.sched_getaffinity(0)))
    with mock.patch.object(sys, "stdout", sys.stderr):  # what the script prints is not the result
        measure(options.script, options.arguments, measuring)
    found = measuring.result(options.accelerators.split(",") if options.accelerators else [])
    if options.to:
        options.to.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2) if options.json or not options.to else "\n".join(lines(found)), flush=True)


def lines(found: dict[str, Any]) -> list[str]:
    (device, step), *_ = found["step_seconds"].items()
    rates = ", ".join(f"{rate:.4g} by {workers}" for workers, rate in found["scaling"].items())
    memory = "" if found["peak_memory_gib"] is None else f", {found['peak_memory_gib']:.2f} GiB at most"
    return [
        f"preparation   {found['preprocess_seconds']:.4g} vCPU s a sample; samples a second by processes: {rates}",
        f"batch         {found['batch_size']} samples of {found['sample_bytes']:.6g} bytes",
        f"step          {step:.4g} s on {device}{memory}",
    ]


if __name__ == "__main__":
    main()
