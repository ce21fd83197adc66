"""Runs model_parallel/train.py in several layouts, one after the other, in one launch of torchrun.

    torchrun --nproc-per-node RANKS parallel_layouts.py FOLDER LAYOUTS

LAYOUTS is JSON: pairs of a name and of train.py's arguments. What rank N prints in the layout NAME goes to
FOLDER/NAME/rank-N.txt. A layout with `--from OTHER` begins with OTHER's checkpoints.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import train
from common.job import Job
from watch import Watch


def main() -> None:
    base, layouts = Path(sys.argv[1]), json.loads(sys.argv[2])
    here = Job.here()
    torch.set_num_threads(1)
    with Watch(here, silence=20) as watch, train.process_group(here, train.config([])) as device:
        for name, arguments in layouts:
            folder = base / name
            folder.mkdir(exist_ok=True)
            if "--from" in arguments:
                at = arguments.index("--from")
                if here.rank == 0:
                    shutil.copytree(base / arguments[at + 1] / "checkpoints", folder / "checkpoints")
                arguments = arguments[:at] + arguments[at + 2 :]
            dist.barrier()
            job = dataclasses.replace(here, model=folder / "model", checkpoints=folder / "checkpoints")
            with open(folder / f"rank-{here.rank}.txt", "w") as file, contextlib.redirect_stdout(file):
                train.train(job, train.config(arguments), device, watch)


if __name__ == "__main__":
    main()
