"""Measures the peak of allocated bytes in a step of model_parallel/train.py in several layouts, as one of a set of ranks.

    python peaks.py LAYOUTS

LAYOUTS is JSON: a list of train.py's arguments. Rank 0 prints, for each, the largest peak over the ranks: a list in JSON.
"""

from __future__ import annotations

import json
import sys

import torch
import torch.distributed as dist
import train
from common.job import Job
from common.process_group import process_group
from memory_use import Allocations


def peak(arguments: list[str], job: Job, device: torch.device) -> int:
    options = train.config(arguments)
    with Allocations() as allocations:
        training = train.Training(options, train.degrees_of(options, job), device)
        context = (options.batch_size // training.degrees.data, options.context)
        tokens = torch.zeros(context, dtype=torch.long)
        train.step(training, tokens, tokens)  # allocates the optimizer's state, and a pipeline tries its stages out
        allocations.reset()
        train.step(training, tokens, tokens)
    return allocations.peak


def main() -> None:
    job, found = Job.here(), []
    with process_group(job) as device:
        for arguments in json.loads(sys.argv[1]):
            peaks = torch.tensor(peak(arguments, job, device))
            dist.all_reduce(peaks, dist.ReduceOp.MAX)
            found.append(peaks.item())
    if job.rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
