"""The workload: text as bytes, each sample padded or truncated to one length, in an order that any number of ranks goes on in."""

from __future__ import annotations

import itertools
import sysconfig
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from common.job import Job
from common.loss import IGNORED
from common.order import Order, share
from common.schedule import add_schedule, positive
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

PAD = 256  # after the 256 bytes
LEAST = 2  # bytes of a sample: an input and a target
FIXED = ("seed", "sequence", "width", "layers", "heads")  # settings that a resumed job must have too


def add_workload(parser: ArgumentParser) -> None:
    """Add the arguments of model, text and training."""
    add = parser.add_argument
    add("--steps", type=positive, default=200)
    add("--batch-size", type=positive, default=16, help="of each process, the same at every step")
    add("--sequence", type=positive, default=128, help="bytes that each sample is padded or cut to")
    add("--preprocessing-workers", type=int, default=1, help="processes that read and pad; 0: this one")
    add("--width", type=positive, default=64)
    add("--layers", type=positive, default=2)
    add("--heads", type=positive, default=4)
    add_schedule(parser, peak=1e-3)
    add("--weight-decay", type=float, default=0.01, help="of matrices")
    add("--clip", type=float, default=0.0, help="the largest norm of the gradient; 0: any")
    add("--seed", type=int, default=0)
    add("--log-every", type=positive, default=10, help="steps; a loss is read only then")
    add("--checkpoint-every", type=positive, default=50, help="steps")


class Text(Dataset[bytes]):
    """The samples of every ``.py`` and ``.txt`` file of ``folder``, or of the one file: at most ``sequence`` bytes each.

    A file is split at blank lines, and longer paragraphs are truncated, so that samples differ in length, as sentences do.
    Without a ``folder`` the text is the running Python's standard library. Sample -1 is empty.
    """

    def __init__(self, folder: Path | None, sequence: int) -> None:
        if sequence < LEAST:
            raise ValueError(f"sequence must be at least {LEAST}, an input and a target, like 128, got {sequence}")
        source = folder or Path(sysconfig.get_path("stdlib"))
        # The library's packages are left out: its modules alone are 5 MB.
        found = source.glob("*.py") if folder is None else source.rglob("*")
        files = [source] if source.is_file() else sorted(file for file in found if file.suffix in (".py", ".txt"))
        parts = (part for file in files for part in file.read_bytes().split(b"\n\n"))
        cut = (part[start : start + sequence] for part in parts for start in range(0, len(part), sequence))
        self._samples = [sample for sample in cut if len(sample) >= LEAST]
        if not self._samples:
            raise ValueError(f"the channel text must have .py or .txt files that are not empty, got {source}")
        self._targets = torch.tensor([len(sample) - 1 for sample in self._samples])

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> bytes:
        return self._samples[index] if index >= 0 else b""

    def targets(self, numbers: np.ndarray) -> Tensor:
        """How many targets those samples have, padding left out."""
        return self._targets[torch.from_numpy(numbers)].sum()


def padded(samples: Sequence[bytes], length: int | None) -> Tensor:
    """Samples as int64 [n, length], with ``PAD`` behind each; without ``length`` that of the longest."""
    batch = torch.full((len(samples), length or max(len(sample) for sample in samples)), PAD)
    for row, sample in zip(batch, samples, strict=True):
        if sample:
            row[: len(sample)] = torch.frombuffer(bytearray(sample), dtype=torch.uint8)
    return batch


def inputs_and_targets(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Of each token the next one, where it is no padding."""
    return tokens[:, :-1], tokens[:, 1:].masked_fill(tokens[:, 1:] == PAD, IGNORED)


def batches_from(
    samples: int, text: Text, order: Order, job: Job, options: Namespace, length: int | None
) -> Iterator[tuple[Tensor, Tensor, int]]:
    """Of each step after ``samples``: this rank's tokens, int64 [batch_size, length], and all ranks' targets and samples.

    The targets are counted from the samples' lengths, which each rank knows, so that none waits for another or for a device.
    """
    steps, again = itertools.tee(order.steps_from(samples))
    loader = DataLoader(
        text,
        batch_sampler=(share(step, job.rank, job.ranks, options.batch_size).tolist() for step in steps),  # type: ignore[arg-type]
        num_workers=options.preprocessing_workers,
        collate_fn=partial(padded, length=length),
        pin_memory=torch.cuda.is_available(),
    )
    for tokens, numbers in zip(loader, again, strict=False):
        yield tokens, text.targets(numbers), len(numbers)
