"""Train a small network on handwritten digits, which other machines prepare where the job has some.

On a laptop, in one process:     PYTHONPATH=training_code python training_code/heterogeneous/train.py
Two processes, by torchrun:      PYTHONPATH=training_code torchrun --nproc-per-node 2 training_code/heterogeneous/train.py
On SageMaker:                    the stack HeterogeneousTraining of app.py

Every host of a job starts this file. Those of the group ``--data-group`` serve batches until the training is over; those of
any other group train. In a job without that group the hosts that train prepare their own batches; the losses are the same.

It goes on from the last checkpoint where there is one; on a laptop, remove ``./output`` to begin anew.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common.job import Job
from model import Digits, accuracy, held_out, network
from service import BatchReader, BatchServer
from torch import Tensor, nn
from torch.distributed.algorithms.join import Join
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

# -- Config -----------------------------------------------------------------------------------------------------------

PORT = 6000  # of each data host, in the job's own network


def config() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--epochs", type=int, default=8)
    arguments.add_argument("--batch-size", type=int, default=64, help="of each process that trains")
    arguments.add_argument("--learning-rate", type=float, default=3e-3)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--workers", type=int, default=2, help="processes of each data host that prepare batches")
    arguments.add_argument("--data-group", default="data_group", help="the instance group that serves batches")
    arguments.add_argument(
        "--silence", type=float, default=300.0, help="seconds after which a data host without a trainer ends"
    )
    arguments.add_argument("--port", type=int, default=PORT)
    arguments.add_argument(
        "--shard", type=_true, nargs="?", const=True, default=False, help="each rank keeps a share of the model: FSDP2"
    )
    # The variables are those that the constructs' compilers set.
    arguments.add_argument("--compiler", type=_compiler, default=os.environ.get("TRAINING_COMPILER", "none"))
    arguments.add_argument("--compiler-mode", default=os.environ.get("TRAINING_COMPILER_MODE") or "default")
    arguments.add_argument(
        "--compiler-dynamic", type=_true, default=os.environ.get("TRAINING_COMPILER_DYNAMIC") or None
    )
    return arguments.parse_args()


def _true(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"must be true or false, got {text!r}")
    return text.lower() == "true"


def _compiler(text: str) -> str:
    if text not in ("none", "inductor"):
        raise argparse.ArgumentTypeError(f"must be none or inductor, got {text!r}")
    return text


# -- Data -------------------------------------------------------------------------------------------------------------


def serve(job: Job, options: argparse.Namespace) -> None:
    """Serve batches until every process that trains has read all it wants. Raises where one fails, or falls silent."""
    server = BatchServer(
        Digits(job.channels.get("digits"), options.seed),
        batch_size=options.batch_size,
        server=job.group_hosts.index(job.host),
        servers=len(job.group_hosts),
        job=job.arn,
        workers=options.workers,
        seed=options.seed,
        port=options.port,
        silence=options.silence,
    )
    with server:
        print(f"host {job.host} of {job.group} serves batches from {options.workers} worker processes", flush=True)
        server.wait()


@contextmanager
def batches_by_epoch(job: Job, options: argparse.Namespace) -> Iterator[BatchReader]:
    """What gives this process's batches of an epoch: from the data hosts, or from a server of its own where there are none."""
    data_hosts = job.groups.get(options.data_group)
    if data_hosts:
        servers = [f"{host}:{options.port}" for host in data_hosts]
        with BatchReader(servers, job=job.arn, rank=job.rank, ranks=job.ranks) as reader:
            yield reader
        return
    # Each process serves itself its own share of every epoch: it is then server number `rank` of as many, with one reader.
    own = BatchServer(
        Digits(job.channels.get("digits"), options.seed),
        batch_size=options.batch_size,
        server=job.rank,
        servers=job.ranks,
        job=job.arn,
        workers=options.workers,
        seed=options.seed,
        host="127.0.0.1",
        silence=options.silence,
    )
    with own, BatchReader([f"localhost:{own.port}"], job=job.arn) as reader:
        yield reader


# -- Model ------------------------------------------------------------------------------------------------------------


def device_of(job: Job) -> torch.device:
    return torch.device("cuda", job.local_rank) if torch.cuda.is_available() else torch.device("cpu")


def build(job: Job, options: argparse.Namespace, device: torch.device) -> nn.Module:
    torch.manual_seed(options.seed)
    model = network().to(device)
    if options.compiler == "inductor":
        # A module around the model, not model.compile(): FSDP2's hooks would break its graph, and nothing would be compiled.
        model = torch.compile(model, mode=options.compiler_mode, dynamic=options.compiler_dynamic)  # type: ignore[assignment]
    if options.shard and job.ranks > 1:
        return fully_shard(model, mesh=init_device_mesh(device.type, (job.ranks,)))
    return DistributedDataParallel(model) if job.ranks > 1 else model


# However the ranks hold the model, its checkpoint and its file hold the whole of it under its own names.
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


# -- Step -------------------------------------------------------------------------------------------------------------


def step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: Mapping[str, Tensor], device: torch.device
) -> Tensor:
    images, labels = batch["image"].to(device, non_blocking=True), batch["label"].to(device, non_blocking=True)
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


# -- Run --------------------------------------------------------------------------------------------------------------


def train(job: Job, options: argparse.Namespace) -> None:
    device = device_of(job)
    if job.ranks > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    model = build(job, options, device)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
    first, steps = restore(job, model, optimizer)
    if job.local_rank == 0:
        processes = f"{job.local_ranks} of {job.ranks} processes"
        print(f"host {job.host} of {job.group} trains on {device.type}, {processes}, from epoch {first}", flush=True)
    with batches_by_epoch(job, options) as reader:
        for epoch in range(first, options.epochs):
            batches = reader.epoch(epoch)
            # Ranks may differ by one batch: Join lets the one that has none take part in the others' sums.
            with Join([model]) if isinstance(model, DistributedDataParallel) else nullcontext():
                shared = together(batches, device) if options.shard and job.ranks > 1 else batches
                steps, loss = run_epoch(job, model, optimizer, shared, device, steps)
            whole, states = get_state_dict(model, optimizer, options=WHOLE)  # every rank takes part
            if job.rank == 0:
                keep(job, {"model": whole, "optimizer": states, "epoch": epoch, "steps": steps})
                right = evaluate(job, whole, device)
                print(f"epoch {epoch} loss {loss:.6f} accuracy on held-out digits {right:.4f}", flush=True)
    whole = get_model_state_dict(model, options=WHOLE)
    if job.rank == 0:
        job.model.mkdir(parents=True, exist_ok=True)
        torch.save(whole, job.model / "model.pt")
        print(f"accuracy {evaluate(job, whole, device):.4f}", flush=True)
    if job.ranks > 1:
        dist.destroy_process_group()


def run_epoch(
    job: Job,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[Mapping[str, Tensor]],
    device: torch.device,
    steps: int,
) -> tuple[int, float]:
    """One pass over an epoch's batches, after ``steps`` steps. Returns the steps after it, and its mean loss on this rank."""
    losses: list[Tensor] = []
    samples, began = 0, time.perf_counter()
    for batch in batches:
        steps += 1
        losses.append(step(model, optimizer, batch, device))
        samples += len(batch["label"])
        if job.rank == 0 and steps % 10 == 0:
            rate = samples * job.ranks / (time.perf_counter() - began)
            print(f"step {steps} loss {losses[-1].item():.6f} samples/s {rate:.0f}", flush=True)
    return steps, torch.stack(losses).mean().item() if losses else math.nan


def together(batches: Iterable[Mapping[str, Tensor]], device: torch.device) -> Iterator[Mapping[str, Tensor]]:
    """Batches for as long as every rank has one: no rank can compute without the others' shares of the model."""
    mine = iter(batches)
    while True:
        batch = next(mine, None)
        all_have = torch.tensor(int(batch is not None), device=device)
        dist.all_reduce(all_have, dist.ReduceOp.MIN)
        if batch is None or not all_have:
            return
        yield batch


def evaluate(job: Job, whole: Mapping[str, Any], device: torch.device) -> float:
    model = network().to(device)
    model.load_state_dict(whole)
    images, labels = held_out(job.channels.get("digits"))
    return accuracy(model, images.to(device), labels.to(device))


def keep(job: Job, states: Mapping[str, Any]) -> None:
    """Write the checkpoint whole or not at all: it is copied to S3 while the training goes on."""
    job.checkpoints.mkdir(parents=True, exist_ok=True)
    torch.save(states, job.checkpoints / "next.partial")
    os.replace(job.checkpoints / "next.partial", job.checkpoints / "last.pt")


def restore(job: Job, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[int, int]:
    """Go on where the checkpoint stands; returns the epoch to begin with, and the steps that were taken before it."""
    file = job.checkpoints / "last.pt"
    if not file.is_file():
        return 0, 0
    state = torch.load(file, map_location=device_of(job), weights_only=True)
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"], options=WHOLE
    )
    return state["epoch"] + 1, state["steps"]


def main() -> None:
    options = config()
    job = Job.here()
    # The other cores of a host are its workers', or of the other processes that train.
    torch.set_num_threads(1)
    if job.group == options.data_group:
        serve(job, options)
    else:
        train(job, options)


if __name__ == "__main__":
    main()
