"""Our data service: a data host whose workers prepare the batches, and a training rank that reads them."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from harness import Run, data_host, measure, serve_until_closed, serving
from samples import dataset_of

sys.path.insert(0, str(Path(__file__).parents[2] / "training_code"))

from data_service import BatchReader, BatchServer

JOB = "arn:aws:sagemaker:us-east-1:111122223333:training-job/benchmark"


def serve(run: Run) -> None:
    dataset, batch_size = dataset_of(run)
    with BatchServer(dataset, batch_size=batch_size, job=JOB, workers=run.workers, host="127.0.0.1") as server:
        serve_until_closed(server.port)


def main() -> None:
    run = Run.here()
    with data_host() as port, BatchReader([f"127.0.0.1:{port}"], job=JOB) as reader:
        measure(run, ((batch["image"], batch["label"]) for batch in reader.epoch(0)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    if serving():
        serve(Run.here())
    else:
        main()
