"""Train a small network on handwritten digits, which other machines prepare where the job has some.

On a laptop, in one process:     PYTHONPATH=training_code python training_code/heterogeneous/train.py
Two processes, by torchrun:      PYTHONPATH=training_code torchrun --nproc-per-node 2 training_code/heterogeneous/train.py
On SageMaker:                    the stack HeterogeneousTraining of app.py

Every host of a job starts this file. Those of the group ``--data-group`` serve batches until the training is over; those of
any other group train. In a job without that group the hosts that train prepare their own batches; the losses are the same.

It resumes from the last checkpoint; on a laptop, remove ``./output`` to start over. SIGTERM ends it with a checkpoint after the
current step.
"""

# ran: `heterogeneous/train.py`, DDP and FSDP2 | test_train | test_training_code | one H100, one H200 | no

from __future__ import annotations

import argparse
from collections.abc import Mapping

import torch
from common.checkpoints import Checkpointer, Progress
from common.compiler_cache import add_compiler
from common.job import Job
from common.loss import MeanLoss, batch_loss, counted, token_loss
from common.optimization import set_learning_rate
from common.order import check_batch
from common.precision import Precision
from common.process_group import freeze_objects, process_group, to_device
from common.schedule import add_schedule, positive, scheduled_rate, true
from common.seeding import seed_step
from common.stopping import Stop
from common.training_log import TrainingLog
from data_service import Batches, read_batches
from model import Digits, accuracy, held_out, network
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

# -- Config -----------------------------------------------------------------------------------------------------------


def config() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = arguments.add_argument
    add("--epochs", type=positive, default=8)
    add("--batch-size", type=positive, default=64, help="of each process that trains")
    add_schedule(arguments, peak=3e-3)
    add("--precision", choices=("auto", "fp32", "bf16", "fp16"), default="fp32")
    add("--seed", type=int, default=0)
    add("--workers", type=int, default=2, help="processes of each data host that prepare batches")
    add("--data-group", default="data_group", help="the instance group that serves batches")
    add("--heartbeat-timeout", type=float, default=300.0, help="seconds without a trainer's until a data host ends")
    add("--port", type=int, default=6000, help="of each data host, in the job's own network")
    add("--checkpoint-every", type=int, default=0, help="steps, besides the end of each epoch; 0: only there")
    add("--shard", type=true, nargs="?", const=True, default=False, help="each rank keeps a share of the model: FSDP2")
    add_compiler(arguments)
    return arguments.parse_args()


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


def whole_of(model: nn.Module) -> dict[str, Tensor]:
    """All of the model in the host's memory, on rank 0, however it is sharded; every rank takes part."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return get_model_state_dict(model, options=options)  # type: ignore[return-value]


# -- Step -------------------------------------------------------------------------------------------------------------


def step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    precision: Precision,
    images: Tensor,
    labels: Tensor,
    count: Tensor,
    ranks: int,
) -> Tensor:
    """One step on ``count`` samples over all ranks. Returns this rank's part of the loss."""
    with precision.autocast():
        loss = token_loss(model(images), labels, count, shares=ranks)
    optimizer.zero_grad()
    precision.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
    precision.scaler.step(optimizer)
    precision.scaler.update()
    return loss.detach()


# -- Run --------------------------------------------------------------------------------------------------------------


def train(job: Job, options: argparse.Namespace, batches: Batches, device: torch.device, stop: Stop) -> None:
    model = build(job, options, device)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
    precision, epoch_loss = Precision(options.precision, device), MeanLoss(device, job.ranks)
    assert batches.plan is not None
    digits, batch_size = batches.plan.length or 0, options.batch_size * job.ranks
    check_batch(digits, batch_size)
    fixed, free = {"seed": options.seed, "digits": digits}, {"batch_size": options.batch_size}
    states = {"data": batches, "scaler": precision.scaler, "epoch_loss": epoch_loss}
    checkpointer = Checkpointer(job, [model], [optimizer], fixed=fixed, free=free, states=states)
    progress, log = checkpointer.restore(), TrainingLog(job, device, unit="samples")
    first, total = batches.state_dict()["epoch"], options.epochs * len(batches)
    if job.local_rank == 0:
        where = f"host {job.host} of {job.group} trains on {device.type}, {job.local_ranks} of {job.ranks} processes"
        print(f"{where}, from epoch {first}", flush=True)
    freeze_objects()
    for epoch in range(first, options.epochs):
        for batch in batches.epoch(epoch):
            at = epoch * len(batches) + (progress.samples - epoch * digits) / batch_size + 1
            rate = scheduled_rate(options, at, total, batch_size)
            set_learning_rate([optimizer], rate)
            seed_step(options.seed, progress.samples, job.rank)
            images, labels = to_device(batch["image"], device), to_device(batch["label"], device)
            count = counted(labels)
            loss = step(model, optimizer, precision, images, labels, count, job.ranks)
            epoch_loss.add(loss, count)
            before, progress = progress.samples, Progress(progress.steps + 1, batches.samples_read)
            log.count(progress.samples - before)
            if progress.steps % 10 == 0:
                log.write(progress.steps, loss=batch_loss(loss), learning_rate=rate)
            if options.checkpoint_every and progress.steps % options.checkpoint_every == 0:
                checkpointer.save(progress)
            if stop.check():
                break
        else:
            loss_of_epoch, whole = epoch_loss.read(), whole_of(model)
            if job.rank == 0:
                right = evaluate(job, whole, device)
                print(f"epoch {epoch} loss {loss_of_epoch:.6f} accuracy on held-out digits {right:.4f}", flush=True)
        progress.samples = batches.samples_read
        checkpointer.save(progress)
        if stop.agreed:
            break
    checkpointer.wait()
    whole = whole_of(model)
    if job.rank == 0 and stop.agreed:
        print(f"stopped by SIGTERM with the checkpoint of step {progress.steps}", flush=True)
    elif job.rank == 0:
        job.model.mkdir(parents=True, exist_ok=True)
        torch.save(whole, job.model / "model.pt")
        print(f"accuracy {evaluate(job, whole, device):.4f}", flush=True)


def evaluate(job: Job, whole: Mapping[str, Tensor], device: torch.device) -> float:
    model = network().to(device)
    model.load_state_dict(whole)
    images, labels = held_out(job.channels.get("digits"))
    return accuracy(model, images.to(device), labels.to(device))


def main() -> None:
    options, job = config(), Job.here()
    # The other cores of a host are its workers', or of the other processes that train.
    with batches_of(job, options) as batches, process_group(job, groups=True) as device:
        train(job, options, batches, device, Stop())


if __name__ == "__main__":
    main()
