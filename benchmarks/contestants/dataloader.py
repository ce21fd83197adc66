"""PyTorch's DataLoader on the training host: worker processes pass batches in shared memory, without a network."""

from __future__ import annotations

import torch
from harness import Run, measure
from samples import dataset_of
from torch.utils.data import DataLoader

if __name__ == "__main__":
    torch.set_num_threads(1)
    run = Run.here()
    dataset, batch_size = dataset_of(run)
    loader = DataLoader(dataset, batch_size=batch_size, num_workers=run.workers)
    measure(run, ((batch["image"], batch["label"]) for batch in loader))
