"""Train the network of train.py with Horovod in place of PyTorch's DistributedDataParallel.

Two processes:    PYTHONPATH=training_code horovodrun -np 2 python training_code/data_parallel/horovod_train.py
On SageMaker:     a DataParallelJob with launcher=Mpi(), in an image that has Horovod (docs/horovod.md)

It resumes and stops as train.py does. The averaging is that of "Horovod with PyTorch" in Horovod's documentation.
"""

# ran: `data_parallel/horovod_train.py` | stand-in: test_interruptions (soak) | no | no | no

from __future__ import annotations

import os

import horovod.torch as hvd
from common.job import Job
from common.process_group import process_group
from torch import nn
from torch.optim import Optimizer
from train import Parallel, config, train

PORT = 29400  # of the first host, in the job's own network

# -- Config and Data are those of train.py ------------------------------------------------------------------------------


def set_ranks() -> None:
    """Set the variables that torchrun sets and mpirun does not, to Horovod's ranks: checkpoints and stops use PyTorch's group."""
    ranks = {"RANK": hvd.rank(), "WORLD_SIZE": hvd.size()}
    ranks |= {"LOCAL_RANK": hvd.local_rank(), "LOCAL_WORLD_SIZE": hvd.local_size()}
    first = hvd.broadcast_object({"MASTER_ADDR": Job.here().host, "MASTER_PORT": PORT}, root_rank=0)
    for name, value in {**ranks, **first}.items():
        os.environ.setdefault(name, str(value))


# -- Model ------------------------------------------------------------------------------------------------------------


def parallel(model: nn.Module, optimizer: Optimizer, job: Job) -> Parallel:
    """The model, and what waits for Horovod's averages, which it computes while the backward goes on."""
    return model, hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters()).synchronize


# -- Step and Run are those of train.py ---------------------------------------------------------------------------------


def main() -> None:
    options = config()
    hvd.init()
    set_ranks()
    job = Job.here()
    with process_group(job) as device:
        train(job, options, device, parallel)


if __name__ == "__main__":
    main()
