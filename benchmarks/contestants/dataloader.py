"""PyTorch's own DataLoader on the training host: no network, worker processes hand batches over in shared memory."""

from __future__ import annotations

import torch
from samples import dataset_of
from torch.utils.data import DataLoader
from window import Run, measure

if __name__ == "__main__":
    torch.set_num_threads(1)
    run = Run.here()
    dataset, batch_size = dataset_of(run)
    loader = DataLoader(dataset, batch_size=batch_size, num_workers=run.workers)
    measure(run, ((batch["image"], batch["label"]) for batch in loader))
