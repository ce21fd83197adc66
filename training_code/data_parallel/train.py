"""Train a small network to tell the points of two spirals apart, the same model on each rank.

On a laptop:      PYTHONPATH=training_code python training_code/data_parallel/train.py
Two processes:    PYTHONPATH=training_code torchrun --nproc-per-node 2 training_code/data_parallel/train.py
On SageMaker:     the app that `training-jobs init data-parallel` writes

It resumes from its last checkpoint; on a laptop, remove ``./output`` to start over. SIGTERM ends it with a checkpoint after the
current step.
"""

# ran: `data_parallel/train.py`, DDP | test_interruptions | test_training_code (soak) | no | no
# ran: ... `--backend smddp` | stand-in: test_interruptions (soak) | no | no | no

from __future__ import annotations

import argparse
import csv
import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from common.job import Job
from common.optimization import add_schedule, scheduled_rate, set_learning_rate
from common.precision import Precision
from common.process_group import freeze_objects, process_group, to_device
from common.stopping import Stop
from common.whole_checkpoint import restore, write
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

# -- Config -----------------------------------------------------------------------------------------------------------


def config() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--epochs", type=int, default=20)
    arguments.add_argument("--batch-size", type=int, default=64, help="points of a step, on each rank")
    add_schedule(arguments, peak=0.01)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--precision", choices=("auto", "fp32", "bf16", "fp16"), default="fp32")
    arguments.add_argument("--backend", choices=("nccl", "smddp"), default="nccl", help="smddp: with launcher=SmDdp()")
    return arguments.parse_args()


# -- Data -------------------------------------------------------------------------------------------------------------


def points(folder: Path | None) -> tuple[Tensor, Tensor]:
    """Points, float32 [n, 2], and their spirals, int64 [n]: of a CSV file ``x,y,spiral``, or without one of the formula."""
    if folder is None:
        angles = torch.linspace(0, 3 * math.pi, 500)
        spiral = torch.stack([angles.cos(), angles.sin()], 1) * angles[:, None] * 2 / angles[-1]
        return torch.cat([spiral, -spiral]), torch.arange(2).repeat_interleave(500)
    [file] = folder.glob("*.csv")
    with file.open() as lines:
        rows = [(float(row["x"]), float(row["y"]), int(row["spiral"])) for row in csv.DictReader(lines)]
    return torch.tensor([row[:2] for row in rows]), torch.tensor([row[2] for row in rows])


def batches(size: int, job: Job, batch_size: int) -> Iterator[Tensor]:
    """The points of each step of this rank, epoch by epoch: a permutation, of which each rank takes every ranks-th batch."""
    for epoch in itertools.count():
        order = torch.randperm(size, generator=torch.Generator().manual_seed(epoch))
        yield from order.split(batch_size)[job.rank : steps_of_an_epoch(size, job, batch_size) * job.ranks : job.ranks]


def steps_of_an_epoch(size: int, job: Job, batch_size: int) -> int:
    """The last, shorter batches are dropped."""
    return size // batch_size // job.ranks


# -- Model ------------------------------------------------------------------------------------------------------------


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


# -- Step -------------------------------------------------------------------------------------------------------------


def step(
    model: nn.Module, optimizer: torch.optim.Optimizer, precision: Precision, inputs: Tensor, labels: Tensor
) -> Tensor:
    optimizer.zero_grad()
    with precision.autocast():
        loss = F.cross_entropy(model(inputs), labels)
    precision.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
    precision.scaler.step(optimizer)
    precision.scaler.update()
    return loss.detach()


# -- Run --------------------------------------------------------------------------------------------------------------


def train(job: Job, options: argparse.Namespace, device: torch.device, stop: Stop) -> None:
    torch.manual_seed(options.seed)
    whole = network().to(device)
    model = DistributedDataParallel(whole) if job.ranks > 1 else whole
    optimizer = torch.optim.Adam(whole.parameters(), lr=options.learning_rate)
    precision = Precision(options.precision, device)
    inputs, labels = (tensor.to(device) for tensor in points(job.channels.get("points")))
    first = restore(job, whole, optimizer, precision.scaler)["steps"]
    per_epoch = steps_of_an_epoch(len(labels), job, options.batch_size)
    total = options.epochs * per_epoch
    chosen = itertools.islice(batches(len(labels), job, options.batch_size), first, total)
    freeze_objects()
    for steps, batch in enumerate(chosen, start=first + 1):
        rows = to_device(batch, device)
        set_learning_rate([optimizer], scheduled_rate(options, steps, total))
        loss = step(model, optimizer, precision, inputs[rows], labels[rows])
        epoch_ends = steps % per_epoch == 0
        if epoch_ends and job.rank == 0:
            print(f"epoch {steps // per_epoch} loss {loss.item():.4f}", flush=True)
        if (stop.check() or epoch_ends) and job.rank == 0:
            states = {"model": whole.state_dict(), "optimizer": optimizer.state_dict(), "steps": steps}
            write(job, {**states, "scaler": precision.scaler.state_dict()})
        if stop.agreed:
            if job.rank == 0:
                print(f"stopped by SIGTERM with the checkpoint of step {steps}", flush=True)
            return
    if job.rank == 0:
        with torch.no_grad():
            print(f"accuracy {(whole(inputs).argmax(1) == labels).float().mean().item():.4f}", flush=True)
        job.model.mkdir(parents=True, exist_ok=True)
        torch.save(whole.state_dict(), job.model / "model.pt")


def main() -> None:
    options, job = config(), Job.here()
    with process_group(job, smddp=options.backend == "smddp") as device:
        train(job, options, device, Stop())


if __name__ == "__main__":
    main()
