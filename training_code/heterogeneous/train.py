"""Train a small network on handwritten digits, which other machines prepare where the job has some.

On a laptop, in one process:     PYTHONPATH=training_code python training_code/heterogeneous/train.py
Two processes, by torchrun:      PYTHONPATH=training_code torchrun --nproc-per-node 2 training_code/heterogeneous/train.py
On SageMaker:                    the stack HeterogeneousTraining of app.py

Every host of a job starts this file. Those of the group ``--data-group`` serve batches until the training is over; those of
any other group train. In a job without that group the hosts that train prepare their own batches; the losses are the same.

It resumes from the last checkpoint; on a laptop, remove ``./output`` to start over. SIGTERM ends it with a checkpoint after the
current step.
"""

# ran: `heterogeneous/train.py`, DDP and FSDP2 | test_train | test_training_code | one H100 | no

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common.job import Job, use_the_jobs_network
from common.optimization import add_schedule, scheduled_rate, set_learning_rate
from common.precision import Precision
from common.process_group import device_of, freeze_objects, leave_process_group, to_device
from common.stopping import Stop
from common.whole_checkpoint import read, write
from data_service import Batches, read_batches
from model import Digits, accuracy, held_out, network
from torch import Tensor, nn
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
    add_schedule(arguments, peak=3e-3)
    arguments.add_argument("--precision", choices=("auto", "fp32", "bf16", "fp16"), default="fp32")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--workers", type=int, default=2, help="processes of each data host that prepare batches")
    arguments.add_argument("--data-group", default="data_group", help="the instance group that serves batches")
    arguments.add_argument(
        "--heartbeat-timeout",
        type=float,
        default=300.0,
        help="seconds without a heartbeat of a trainer after which a data host ends",
    )
    arguments.add_argument("--port", type=int, default=PORT)
    arguments.add_argument(
        "--checkpoint-every", type=int, default=0, help="steps, besides the end of each epoch; 0: only there"
    )
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


def batches_of(job: Job, options: argparse.Namespace) -> Batches:
    """This process's batches of each epoch. On a data host it serves them until the training is over, and ends the process."""
    return read_batches(
        Digits(job.channels.get("digits"), options.seed),
        batch_size=options.batch_size,
        seed=options.seed,
        workers=options.workers,
        data_group=options.data_group,
        port=options.port,
        heartbeat_timeout=options.heartbeat_timeout,
        epochs=options.epochs,
    )


# -- Model ------------------------------------------------------------------------------------------------------------


def build(job: Job, options: argparse.Namespace, device: torch.device) -> nn.Module:
    torch.manual_seed(options.seed)
    model = network().to(device)
    if options.compiler == "inductor":
        # A module around the model, not model.compile(): FSDP2's hooks would break its graph, and nothing would be compiled.
        model = torch.compile(model, mode=options.compiler_mode, dynamic=options.compiler_dynamic)  # type: ignore[assignment]
    if options.shard and job.ranks > 1:
        return fully_shard(model, mesh=init_device_mesh(device.type, (job.ranks,)))
    return DistributedDataParallel(model) if job.ranks > 1 else model


# However the model is sharded, its checkpoint and its file contain all of it under its own names.
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


# -- Step -------------------------------------------------------------------------------------------------------------


def step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    precision: Precision,
    batch: Mapping[str, Tensor],
    device: torch.device,
) -> Tensor:
    images, labels = to_device(batch["image"], device), to_device(batch["label"], device)
    with precision.autocast():
        loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    precision.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
    precision.scaler.step(optimizer)
    precision.scaler.update()
    return loss.detach()


# -- Run --------------------------------------------------------------------------------------------------------------


def train(job: Job, options: argparse.Namespace, batches: Batches, stop: Stop) -> None:
    device = device_of(job)
    if job.ranks > 1:
        # gloo too for what is agreed on besides the training.
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    model = build(job, options, device)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
    precision = Precision(options.precision, device)
    progress = restore(job, model, optimizer, precision)
    batches.load_state_dict(progress.position)
    first = progress.position["epoch"]
    if job.local_rank == 0:
        processes = f"{job.local_ranks} of {job.ranks} processes"
        print(f"host {job.host} of {job.group} trains on {device.type}, {processes}, from epoch {first}", flush=True)

    def take_step(batch: Mapping[str, Tensor]) -> Tensor:
        set_learning_rate([optimizer], scheduled_rate(options, progress.steps, options.epochs * len(batches)))
        return step(model, optimizer, precision, batch, device)

    def checkpoint() -> Mapping[str, Any]:
        whole, states = get_state_dict(model, optimizer, options=WHOLE)  # every rank takes part
        progress.position = batches.state_dict()
        if job.rank == 0:
            scaler = precision.scaler.state_dict()
            write(job, {"model": whole, "optimizer": states, "scaler": scaler, **asdict(progress)})
        return whole

    freeze_objects()
    for epoch in range(first, options.epochs):
        loss = run_epoch(job, options, take_step, batches.epoch(epoch), device, progress, checkpoint, stop)
        whole = checkpoint()
        if stop.agreed:
            break
        if job.rank == 0:
            right = evaluate(job, whole, device)
            print(f"epoch {epoch} loss {loss:.6f} accuracy on held-out digits {right:.4f}", flush=True)
    whole = get_model_state_dict(model, options=WHOLE)
    if job.rank == 0 and stop.agreed:
        print(f"stopped by SIGTERM with the checkpoint of step {progress.steps}", flush=True)
    elif job.rank == 0:
        job.model.mkdir(parents=True, exist_ok=True)
        torch.save(whole, job.model / "model.pt")
        print(f"accuracy {evaluate(job, whole, device):.4f}", flush=True)


@dataclass
class Progress:
    """How far the training is: steps taken, where the batches' reader stands, and the losses of the epoch that is under way."""

    steps: int
    position: Mapping[str, Any]
    losses: list[float]


def run_epoch(
    job: Job,
    options: argparse.Namespace,
    take_step: Callable[[Mapping[str, Tensor]], Tensor],
    batches: Iterable[Mapping[str, Tensor]],
    device: torch.device,
    progress: Progress,
    checkpoint: Callable[[], object],
    stop: Stop,
) -> float:
    """One pass over what is left of an epoch's batches, or until ``stop``. Returns the mean loss of the epoch on this rank."""
    losses: list[Tensor] = [torch.tensor(loss, device=device) for loss in progress.losses]
    samples, began = 0, time.perf_counter()
    for batch in batches:
        progress.steps += 1
        losses.append(take_step(batch))
        samples += len(batch["label"])
        if job.rank == 0 and progress.steps % 10 == 0:
            rate = samples * job.ranks / (time.perf_counter() - began)
            print(f"step {progress.steps} loss {losses[-1].item():.6f} samples/s {rate:.0f}", flush=True)
        if options.checkpoint_every and progress.steps % options.checkpoint_every == 0:
            progress.losses = torch.stack(losses).tolist()
            checkpoint()
        if stop.check():
            progress.losses = torch.stack(losses).tolist()
            break
    else:
        progress.losses = []
    return torch.stack(losses).mean().item() if losses else math.nan


def evaluate(job: Job, whole: Mapping[str, Any], device: torch.device) -> float:
    model = network().to(device)
    model.load_state_dict(whole)
    images, labels = held_out(job.channels.get("digits"))
    return accuracy(model, images.to(device), labels.to(device))


def restore(job: Job, model: nn.Module, optimizer: torch.optim.Optimizer, precision: Precision) -> Progress:
    """Go on where the checkpoint stands; returns how far that is."""
    states = read(job)
    if states["steps"] == 0:
        return Progress(0, {"epoch": 0, "ranks": job.ranks, "delivered": []}, [])
    whole = {"model_state_dict": states["model"], "optim_state_dict": states["optimizer"]}
    set_state_dict(model, optimizer, **whole, options=WHOLE)
    if states.get("scaler"):  # none where the training before was not in fp16
        precision.scaler.load_state_dict(states["scaler"])
    return Progress(states["steps"], states["position"], states["losses"])


def main() -> None:
    options = config()
    job = Job.here()
    use_the_jobs_network()
    # The other cores of a host are its workers', or of the other processes that train.
    torch.set_num_threads(1)
    with batches_of(job, options) as batches:
        train(job, options, batches, Stop())
        leave_process_group()


if __name__ == "__main__":
    main()
