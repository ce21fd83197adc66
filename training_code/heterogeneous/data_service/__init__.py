"""A data service for PyTorch: data hosts prepare batches, training ranks read them, over Arrow Flight (gRPC) and TCP.

    batches = read_batches(dataset, batch_size=64)     # where a DataLoader stood, in the script that all hosts start

or, by hand,

    with BatchServer(dataset, batch_size=64, job=arn, port=6000) as server:                        # on each data host
        server.wait()

    with BatchReader(["algo-1:6000", "algo-2:6000"], job=arn, rank=0, ranks=1) as reader:          # in each training rank
        for batch in reader: ...

The reader of each rank owns its batches of an epoch and asks the hosts for them by number; a host can make any batch, and keeps
no account. So each sample comes exactly once, whichever part dies meanwhile.
"""

from .entry import read_batches
from .errors import DataHostLost, DataServiceError, TrainerFailed
from .reader import BatchReader
from .supervisor import BatchServer

# What read_batches returns.
Batches = BatchReader

__all__ = ["BatchReader", "BatchServer", "Batches", "DataHostLost", "DataServiceError", "TrainerFailed", "read_batches"]
