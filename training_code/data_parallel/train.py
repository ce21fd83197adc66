"""Train a small network to tell the points of two spirals apart, the same model on each rank.

On a laptop:      PYTHONPATH=training_code python training_code/data_parallel/train.py
Two processes:    PYTHONPATH=training_code torchrun --nproc-per-node 2 training_code/data_parallel/train.py
On SageMaker:     the app that `training-jobs init data-parallel` writes

It resumes from its last checkpoint; on a laptop, remove ``./output`` to start over. SIGTERM ends it with a checkpoint after the
current step.
"""

# ran: `data_parallel/train.py`, DDP | test_interruptions | test_training_code (soak) | fp16, one H200 | no
# ran: ... `--backend smddp` | stand-in: test_interruptions (soak) | no | no | no

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Callable
from pathlib import Path

import torch
from common.checkpoints import Checkpointer
from common.job import Job
from common.loss import IGNORED, MeanLoss, token_loss
from common.optimization import set_learning_rate
from common.order import Order, share
from common.precision import Precision
from common.process_group import freeze_objects, process_group, to_device
from common.schedule import add_schedule, positive, scheduled_rate
from common.seeding import seed_step
from common.stopping import Stop
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

# -- Config -----------------------------------------------------------------------------------------------------------


def config() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--epochs", type=positive, default=20)
    arguments.add_argument("--batch-size", type=positive, default=64, help="points of a step, on each rank")
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


def batch_of(order: Order, samples: int, job: Job, data: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, int]:
    """This rank's points and spirals of a step, on the data's device, and how many the step has over all ranks."""
    inputs, labels = data
    numbers = order.at(samples)
    mine = torch.from_numpy(share(numbers, job.rank, job.ranks, order.batch // job.ranks))
    rows = to_device(mine, inputs.device)
    return inputs[rows], labels[rows].masked_fill(rows < 0, IGNORED), len(numbers)


# -- Model ------------------------------------------------------------------------------------------------------------


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


Parallel = tuple[nn.Module, Callable[[], object]]


def parallel(model: nn.Module, optimizer: Optimizer, job: Job) -> Parallel:
    """The model of a step, and what returns once the gradients are averaged over the ranks, as DDP's are with the backward."""
    return DistributedDataParallel(model) if job.ranks > 1 else model, lambda: None


# -- Step -------------------------------------------------------------------------------------------------------------


def step(
    model: Parallel, optimizer: Optimizer, precision: Precision, batch: tuple[Tensor, Tensor, int], ranks: int
) -> Tensor:
    """One step. Returns this rank's part of the loss, of which the mean over the ranks is that of the batch."""
    (forward, averaged), (inputs, labels, count) = model, batch
    optimizer.zero_grad()
    with precision.autocast():
        loss = token_loss(forward(inputs), labels, count, shares=ranks)
    precision.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
    averaged()  # before they are unscaled
    precision.scaler.step(optimizer)
    precision.scaler.update()
    return loss.detach()


# -- Run --------------------------------------------------------------------------------------------------------------


def train(
    job: Job,
    options: argparse.Namespace,
    device: torch.device,
    parallel: Callable[[nn.Module, Optimizer, Job], Parallel] = parallel,
) -> None:
    stop = Stop()
    torch.manual_seed(options.seed)
    whole = network().to(device)
    optimizer = torch.optim.Adam(whole.parameters(), lr=options.learning_rate)
    model = parallel(whole, optimizer, job)
    precision, epoch_loss = Precision(options.precision, device), MeanLoss(device, job.ranks)
    inputs, labels = data = tuple(tensor.to(device) for tensor in points(job.channels.get("points")))
    order = Order(len(labels), options.batch_size * job.ranks, options.seed)
    fixed, free = {"seed": options.seed, "points": order.length}, {"batch_size": options.batch_size}
    states = {"scaler": precision.scaler, "epoch_loss": epoch_loss}
    checkpointer = Checkpointer(job, [whole], [optimizer], fixed=fixed, free=free, states=states)
    progress = checkpointer.restore()
    freeze_objects()
    while progress.samples < options.epochs * order.length:
        at, total = order.steps(progress.samples) + 1, options.epochs * order.steps_of_an_epoch
        rate = scheduled_rate(options, at, total, order.batch)
        set_learning_rate([optimizer], rate)
        seed_step(options.seed, progress.samples, job.rank)
        batch = batch_of(order, progress.samples, job, data)
        epoch_loss.add(step(model, optimizer, precision, batch, job.ranks), batch[-1])
        progress.steps, progress.samples = progress.steps + 1, progress.samples + batch[-1]
        epoch, left = divmod(progress.samples, order.length)
        if not left:
            loss = epoch_loss.read()
            if job.rank == 0:
                print(f"epoch {epoch} loss {loss:.6f} learning_rate {rate:.6g}", flush=True)
        if stop.check() or not left:
            checkpointer.save(progress)
        if stop.agreed:
            break
    checkpointer.wait()
    if job.rank == 0 and stop.agreed:
        print(f"stopped by SIGTERM with the checkpoint of step {progress.steps}", flush=True)
    elif job.rank == 0:
        with torch.no_grad(), precision.autocast():
            print(f"accuracy {(whole(inputs).argmax(1) == labels).float().mean().item():.4f}", flush=True)
        job.model.mkdir(parents=True, exist_ok=True)
        torch.save(whole.state_dict(), job.model / "model.pt")


def main() -> None:
    options, job = config(), Job.here()
    with process_group(job, smddp=options.backend == "smddp") as device:
        train(job, options, device)


if __name__ == "__main__":
    main()
