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
import os
from collections.abc import Mapping

import torch
from common.checkpoints import Checkpointer, Progress
from common.job import Job
from common.loss import MeanLoss, batch_loss, counted, token_loss
from common.optimization import set_learning_rate
from common.order import check_batch
from common.precision import Precision
from common.process_group import freeze_objects, process_group, to_device
from common.schedule import add_schedule, positive, scheduled_rate
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

PORT = 6000  # of each data host, in the job's own network


def config() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--epochs", type=positive, default=8)
    arguments.add_argument("--batch-size", type=positive, default=64, help="of each process that trains")
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


# However the model is sharded, its file contains all of it under its own names.
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


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


class Training:
    """The model with its optimizer, and all that a checkpoint has of them."""

    def __init__(self, job: Job, options: argparse.Namespace, batches: Batches, device: torch.device) -> None:
        self.job, self.options, self.batches, self.device = job, options, batches, device
        self.model = build(job, options, device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=options.learning_rate)
        self.precision, self.epoch_loss = Precision(options.precision, device), MeanLoss(device, job.ranks)
        self.log = TrainingLog(job, device, unit="samples")
        assert batches.plan is not None
        self.length = batches.plan.length or 0
        check_batch(self.length, options.batch_size * job.ranks)
        self.checkpointer = Checkpointer(
            job,
            [self.model],
            [self.optimizer],
            fixed={"seed": options.seed, "digits": self.length},
            free={"batch_size": options.batch_size},
            states={"data": batches, "scaler": self.precision.scaler, "epoch_loss": self.epoch_loss},
        )
        self.progress = self.checkpointer.restore()

    def step(self, batch: Mapping[str, Tensor]) -> None:
        """Train on a batch, of which ``progress`` is the place."""
        options, steps, batch_size = self.options, self.progress.steps + 1, self.options.batch_size * self.job.ranks
        epoch, read = divmod(self.progress.samples, self.length)
        at, total = epoch * len(self.batches) + read / batch_size + 1, options.epochs * len(self.batches)
        rate = scheduled_rate(options, at, total, batch_size)
        set_learning_rate([self.optimizer], rate)
        seed_step(options.seed, self.progress.samples, self.job.rank)
        images, labels = to_device(batch["image"], self.device), to_device(batch["label"], self.device)
        count = counted(labels)
        loss = step(self.model, self.optimizer, self.precision, images, labels, count, self.job.ranks)
        self.epoch_loss.add(loss, count)
        before, self.progress = self.progress.samples, Progress(steps, self.batches.samples_read)
        self.log.count(self.progress.samples - before)
        if steps % 10 == 0:
            self.log.write(steps, loss=batch_loss(loss), learning_rate=rate)
        if options.checkpoint_every and steps % options.checkpoint_every == 0:
            self.checkpointer.save(self.progress)

    def whole(self) -> dict[str, Tensor]:
        """All of the model in the host's memory, on rank 0; every rank takes part."""
        return get_model_state_dict(self.model, options=WHOLE)  # type: ignore[return-value]


def train(training: Training, stop: Stop) -> None:
    job, batches = training.job, training.batches
    first = batches.state_dict()["epoch"]
    if job.local_rank == 0:
        processes = f"{job.local_ranks} of {job.ranks} processes"
        print(
            f"host {job.host} of {job.group} trains on {training.device.type}, {processes}, from epoch {first}",
            flush=True,
        )
    freeze_objects()
    for epoch in range(first, training.options.epochs):
        for batch in batches.epoch(epoch):
            training.step(batch)
            if stop.check():
                break
        else:
            loss, whole = training.epoch_loss.read(), training.whole()
            if job.rank == 0:
                right = evaluate(job, whole, training.device)
                print(f"epoch {epoch} loss {loss:.6f} accuracy on held-out digits {right:.4f}", flush=True)
        training.progress.samples = batches.samples_read
        training.checkpointer.save(training.progress)
        if stop.agreed:
            break
    training.checkpointer.wait()
    whole = training.whole()
    if job.rank == 0 and stop.agreed:
        print(f"stopped by SIGTERM with the checkpoint of step {training.progress.steps}", flush=True)
    elif job.rank == 0:
        job.model.mkdir(parents=True, exist_ok=True)
        torch.save(whole, job.model / "model.pt")
        print(f"accuracy {evaluate(job, whole, training.device):.4f}", flush=True)


def evaluate(job: Job, whole: Mapping[str, Tensor], device: torch.device) -> float:
    model = network().to(device)
    model.load_state_dict(whole)
    images, labels = held_out(job.channels.get("digits"))
    return accuracy(model, images.to(device), labels.to(device))


def main() -> None:
    options, job = config(), Job.here()
    # The other cores of a host are its workers', or of the other processes that train.
    with batches_of(job, options) as batches, process_group(job) as device:
        train(Training(job, options, batches, device), Stop())


if __name__ == "__main__":
    main()
