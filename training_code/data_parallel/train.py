"""Train a small network to tell the points of two spirals apart, the same model on each rank.

On a laptop:      PYTHONPATH=training_code python training_code/data_parallel/train.py
Two processes:    PYTHONPATH=training_code torchrun --nproc-per-node 2 training_code/data_parallel/train.py
On SageMaker:     the app that `training-jobs init data-parallel` writes

It resumes from its last checkpoint; on a laptop, remove ``./output`` to start over.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common.job import Job, use_the_jobs_network
from common.process_group import leave_process_group
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

# -- Config -----------------------------------------------------------------------------------------------------------


def config() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--epochs", type=int, default=20)
    arguments.add_argument("--batch-size", type=int, default=64, help="points of a step, on each rank")
    arguments.add_argument("--learning-rate", type=float, default=0.01)
    arguments.add_argument("--seed", type=int, default=0)
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


# -- Model ------------------------------------------------------------------------------------------------------------


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


# -- Step -------------------------------------------------------------------------------------------------------------


def step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, labels: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs), labels)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()


# -- Run --------------------------------------------------------------------------------------------------------------


def train(job: Job, options: argparse.Namespace) -> None:
    device = torch.device("cuda", job.local_rank) if torch.cuda.is_available() else torch.device("cpu")
    if job.ranks > 1:
        use_the_jobs_network()
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(options.seed)
    whole = network().to(device)
    model = DistributedDataParallel(whole) if job.ranks > 1 else whole
    optimizer = torch.optim.Adam(whole.parameters(), lr=options.learning_rate)
    inputs, labels = (tensor.to(device) for tensor in points(job.channels.get("points")))
    checkpoint = job.checkpoints / "last.pt"
    first = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device, weights_only=True)
        whole.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["epoch"]
    for epoch in range(first, options.epochs):
        # The same permutation on all ranks, of which each takes every ranks-th batch; the last, shorter ones are dropped.
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch)).to(device)
        batches = order.split(options.batch_size)[: len(order) // options.batch_size // job.ranks * job.ranks]
        for batch in batches[job.rank :: job.ranks]:
            loss = step(model, optimizer, inputs[batch], labels[batch])
        if job.rank == 0:
            print(f"epoch {epoch + 1} loss {loss.item():.4f}", flush=True)
            job.checkpoints.mkdir(parents=True, exist_ok=True)
            partial = checkpoint.with_suffix(".partial")
            torch.save({"model": whole.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}, partial)
            os.replace(partial, checkpoint)
    if job.rank == 0:
        with torch.no_grad():
            print(f"accuracy {(whole(inputs).argmax(1) == labels).float().mean().item():.4f}", flush=True)
        job.model.mkdir(parents=True, exist_ok=True)
        torch.save(whole.state_dict(), job.model / "model.pt")


def main() -> None:
    train(Job.here(), config())
    leave_process_group()


if __name__ == "__main__":
    main()
