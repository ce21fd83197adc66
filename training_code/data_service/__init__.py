"""A data service for PyTorch: data hosts prepare batches, training ranks read them, over one TCP connection for each pair.

    batches = read_batches(dataset, batch_size=64)     # where a DataLoader stood, in the script that all hosts start

or, by hand,

    with BatchServer(dataset, batch_size=64, job=arn, port=6000) as server:                        # on each data host
        server.wait()

    with BatchReader(["algo-1:6000", "algo-2:6000"], job=arn, rank=0, ranks=1) as reader:          # in each training rank
        for batch in reader: ...

A batch is a pure function of seed, epoch and number, and each rank keeps account of its own. So any host can make any batch,
and each comes exactly once, whichever part dies meanwhile. The way of a batch through these modules:

    plan      which samples it has
    pool      worker processes, of which one takes the order;     worker: calls dataset[i], and collates into
    memory    a slot of shared memory, with                       batches: a description of the tensors in it
    serving   the process that sends it;                          server: what keeps that process running
    protocol  frames on a connection                              hosts: the other end of it
    requester what is requested from which host;                  tracker: pending, in flight, ready, delivered
    reader    delivers batches in order to the loop of the script
    metrics   what the time of an epoch went into
"""

from .entry import read_batches
from .metrics import METRIC_DEFINITIONS, Summary
from .protocol import DataHostLost, DataServiceError, TrainerFailed
from .reader import BatchReader
from .server import BatchServer

# What read_batches returns.
Batches = BatchReader

__all__ = [
    "METRIC_DEFINITIONS",
    "BatchReader",
    "BatchServer",
    "Batches",
    "DataHostLost",
    "DataServiceError",
    "Summary",
    "TrainerFailed",
    "read_batches",
]
