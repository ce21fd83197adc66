"""The training script of an emulated job: preprocessing and the training step sleep for as long as they are said to take."""

from __future__ import annotations

import argparse
import time
from itertools import islice

import torch
from costly import Costly
from data_service import read_batches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, required=True, help="of a batch, images [32, 32, 3] of float32")
    parser.add_argument("--seconds", type=float, required=True, help="a worker process takes for a batch")
    parser.add_argument("--workers", type=int, required=True, help="processes on each data host")
    parser.add_argument("--local-workers", type=int, required=True, help="processes on the training host")
    parser.add_argument("--step", type=float, required=True, help="seconds of a training step's own")
    parser.add_argument("--warmup", type=int, required=True, help="steps that are not counted")
    parser.add_argument("--steps", type=int, required=True, help="steps that are")
    options, _ = parser.parse_known_args()
    torch.set_num_threads(1)
    dataset = Costly((options.samples, 32, 32, 3), options.seconds)
    with read_batches(
        dataset, batch_size=1, shuffle=False, workers=options.workers, local_workers=options.local_workers
    ) as batches:
        began = 0.0
        for number, _ in enumerate(islice(batches, options.warmup + options.steps + 1)):
            if number == options.warmup:
                began = time.perf_counter()
            ended = time.perf_counter()
            time.sleep(options.step)
        print(f"step time {1000 * (ended - began) / options.steps:.1f} ms", flush=True)


if __name__ == "__main__":
    main()
