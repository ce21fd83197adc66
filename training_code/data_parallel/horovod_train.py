"""Train the network of train.py with Horovod in place of PyTorch's DistributedDataParallel.

Two processes:    PYTHONPATH=training_code horovodrun -np 2 python training_code/data_parallel/horovod_train.py
On SageMaker:     a DataParallelJob with launcher=Mpi(), in an image that has Horovod (docs/horovod.md)

It resumes from its last checkpoint; on a laptop, remove ``./output`` to start over. SIGTERM ends it with a checkpoint after the
current step. The steps are those of "Horovod with PyTorch" in Horovod's documentation.
"""

# ran: `data_parallel/horovod_train.py` | stand-in: test_interruptions (soak) | no | no | no

from __future__ import annotations

import argparse
import itertools
import signal
from dataclasses import replace
from typing import Any

import horovod.torch as hvd
import torch
import torch.nn.functional as F
from common.job import Job
from common.optimization import scheduled_rate, set_learning_rate
from common.precision import Precision
from common.process_group import device_of, to_device
from common.whole_checkpoint import restore, write
from torch import Tensor, nn
from train import batches, config, network, points, steps_of_an_epoch

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


def step(model: nn.Module, optimizer: Any, precision: Precision, inputs: Tensor, labels: Tensor) -> Tensor:
    optimizer.zero_grad()
    with precision.autocast():
        loss = F.cross_entropy(model(inputs), labels)
    precision.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
    optimizer.synchronize()  # Gradients are averaged before they are unscaled (github.com/horovod/horovod/issues/1089).
    with optimizer.skip_synchronize():
        precision.scaler.step(optimizer)
    precision.scaler.update()
    return loss.detach()


# -- Run --------------------------------------------------------------------------------------------------------------


def train(job: Job, options: argparse.Namespace, device: torch.device, stop: Stop) -> None:
    torch.manual_seed(options.seed)
    precision = Precision(options.precision, device)
    model = network().to(device)
    # A new optimizer, without the state of the one that it wraps, which is why the checkpoint is read into it.
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=options.learning_rate), named_parameters=model.named_parameters()
    )
    first = restore(replace(job, ranks=1), model, optimizer, precision.scaler)["steps"] if job.rank == 0 else 0
    # All ranks go on with what rank 0 has read, also where their hosts lack the checkpoint.
    first = hvd.broadcast_object(first, root_rank=0)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    precision.scaler.load_state_dict(hvd.broadcast_object(precision.scaler.state_dict(), root_rank=0))
    if first:  # a state that is empty would be filled by a step, which Adam counts
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    inputs, labels = (tensor.to(device) for tensor in points(job.channels.get("points")))
    per_epoch = steps_of_an_epoch(len(labels), job, options.batch_size)
    total = options.epochs * per_epoch
    chosen = itertools.islice(batches(len(labels), job, options.batch_size), first, total)
    for steps, batch in enumerate(chosen, start=first + 1):
        rows = to_device(batch, device)
        set_learning_rate([optimizer], scheduled_rate(options, steps, total))
        loss = step(model, optimizer, precision, inputs[rows], labels[rows])
        epoch_ends, stopping = steps % per_epoch == 0, stop.check()
        if job.rank == 0:
            if epoch_ends:
                print(f"epoch {steps // per_epoch} loss {loss.item():.4f}", flush=True)
            if stopping or epoch_ends:
                states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "steps": steps}
                write(job, {**states, "scaler": precision.scaler.state_dict()})
        if stopping:
            if job.rank == 0:
                print(f"stopped by SIGTERM with the checkpoint of step {steps}", flush=True)
            return
    if job.rank == 0:
        job.model.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), job.model / "model.pt")


def main() -> None:
    options = config()
    hvd.init()
    job = job_here()
    train(job, options, device_of(job), Stop())


if __name__ == "__main__":
    main()
