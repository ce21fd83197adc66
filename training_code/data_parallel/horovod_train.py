"""Train the network of train.py with Horovod in place of PyTorch's DistributedDataParallel.

Two processes:    PYTHONPATH=training_code horovodrun -np 2 python training_code/data_parallel/horovod_train.py
On SageMaker:     a DataParallelJob with launcher=Mpi(), in an image that has Horovod (docs/horovod.md)

It resumes from its last checkpoint; on a laptop, remove ``./output`` to start over. SIGTERM ends it with a checkpoint after the
current step. The steps are those of "Horovod with PyTorch" in Horovod's documentation.
"""

# ran: `data_parallel/horovod_train.py` | stand-in: test_interruptions (soak) | no | no | no

from __future__ import annotations

import argparse
import signal
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import horovod.torch as hvd
import torch
from common.checkpoints import Checkpointer, Progress
from common.job import Job
from common.loss import MeanLoss, token_loss
from common.optimization import set_learning_rate
from common.order import Order
from common.precision import Precision
from common.process_group import process_group
from common.schedule import scheduled_rate
from common.seeding import seed_step
from torch import Tensor, nn
from train import batch_of, config, network, points

# -- Config, Data and Model are those of train.py -----------------------------------------------------------------------


def job_here() -> Job:
    """The job of this process, with the ranks of Horovod, which mpirun starts without torchrun's variables."""
    ranks = {"rank": hvd.rank(), "ranks": hvd.size(), "local_rank": hvd.local_rank(), "local_ranks": hvd.local_size()}
    return replace(Job.here(), **ranks)


class Stop:
    """Whether any rank got SIGTERM; the same on all ranks."""

    def __init__(self) -> None:
        self._received = False
        signal.signal(signal.SIGTERM, self._receive)

    def _receive(self, *_: object) -> None:
        self._received = True

    def check(self) -> bool:
        """To be called after each step on every rank."""
        return bool(hvd.allreduce(torch.tensor(int(self._received)), op=hvd.Sum, name="stop"))


# -- Step -------------------------------------------------------------------------------------------------------------


def step(model: nn.Module, optimizer: Any, precision: Precision, batch: tuple[Tensor, Tensor, int]) -> Tensor:
    """One step. Returns the loss of the batch, on all ranks."""
    inputs, labels, count = batch
    optimizer.zero_grad()
    with precision.autocast():
        loss = token_loss(model(inputs), labels, count, shares=hvd.size())
    precision.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
    optimizer.synchronize()  # Gradients are averaged before they are unscaled (github.com/horovod/horovod/issues/1089).
    with optimizer.skip_synchronize():
        precision.scaler.step(optimizer)
    precision.scaler.update()
    return hvd.allreduce(loss.detach(), name="loss")  # type: ignore[no-any-return]


# -- Run --------------------------------------------------------------------------------------------------------------


def train(job: Job, options: argparse.Namespace, device: torch.device, stop: Stop) -> None:
    torch.manual_seed(options.seed)
    precision, epoch_loss = Precision(options.precision, device), MeanLoss(device)
    model = network().to(device)
    data = tuple(tensor.to(device) for tensor in points(job.channels.get("points")))
    order = Order(len(data[1]), options.batch_size * job.ranks, options.seed)
    checkpointer_of = partial(  # rank 0 alone writes and reads, in its own process group
        Checkpointer,
        replace(job, ranks=1),
        [model],
        fixed={"seed": options.seed, "points": order.length},
        free={"batch_size": options.batch_size, "ranks": job.ranks},
        states={"scaler": precision.scaler, "epoch_loss": epoch_loss},
    )
    adam = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
    progress = checkpointer_of([adam]).restore() if job.rank == 0 else Progress()
    # A new optimizer, without the state of the one that it wraps.
    optimizer = hvd.DistributedOptimizer(adam, named_parameters=model.named_parameters())
    # All ranks go on with what rank 0 has read, also where their hosts lack the checkpoint.
    progress = Progress(**hvd.broadcast_object(asdict(progress), root_rank=0))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for state in (precision.scaler, epoch_loss):
        state.load_state_dict(hvd.broadcast_object(state.state_dict(), root_rank=0))
    if progress.steps:  # a state that is empty would be filled by a step, which Adam counts
        optimizer.load_state_dict(adam.state_dict())
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    checkpointer = checkpointer_of([optimizer])
    stopping = False
    while progress.samples < options.epochs * order.length and not stopping:
        at, total = order.steps(progress.samples) + 1, options.epochs * order.steps_of_an_epoch
        rate = scheduled_rate(options, at, total, order.batch)
        set_learning_rate([optimizer], rate)
        seed_step(options.seed, progress.samples, job.rank)
        batch = batch_of(order, progress.samples, job, data)
        epoch_loss.add(step(model, optimizer, precision, batch), batch[-1])
        progress.steps, progress.samples = progress.steps + 1, progress.samples + batch[-1]
        epoch, left = divmod(progress.samples, order.length)
        stopping = stop.check()
        if not left:
            loss = epoch_loss.read()
            if job.rank == 0:
                print(f"epoch {epoch} loss {loss:.6f} learning_rate {rate:.6g}", flush=True)
        if job.rank == 0 and (stopping or not left):
            checkpointer.save(progress)
    checkpointer.wait()
    if job.rank == 0 and stopping:
        print(f"stopped by SIGTERM with the checkpoint of step {progress.steps}", flush=True)
    elif job.rank == 0:
        job.model.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), job.model / "model.pt")


def main() -> None:
    options = config()
    hvd.init()
    job = job_here()
    with process_group(replace(job, ranks=1)) as device:
        train(job, options, device, Stop())


if __name__ == "__main__":
    main()
