"""Runs a train.py of model_parallel/ in several layouts, one after the other, as one of a set of ranks.

    python parallel_layouts.py FOLDER LAYOUTS

LAYOUTS is JSON: pairs of a name and of train.py's arguments. What rank N prints in the layout NAME goes to
FOLDER/NAME/rank-N.txt. A layout with `--from OTHER` begins with OTHER's checkpoints, and one
with `--model MODEL` has the folder FOLDER/MODEL as its channel `model`.
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
from common.process_group import process_group
from watch import Watch


def main() -> None:
    base, layouts = Path(sys.argv[1]), json.loads(sys.argv[2])
    here = Job.here()
    torch.set_num_threads(1)
    with Watch(here, heartbeat_timeout=20) as watch, process_group(here) as device:
        for name, arguments in layouts:
            folder = base / name
            folder.mkdir(exist_ok=True)
            if "--from" in arguments:
                at = arguments.index("--from")
                if here.rank == 0:
                    shutil.copytree(base / arguments[at + 1] / "checkpoints", folder / "checkpoints")
                arguments = arguments[:at] + arguments[at + 2 :]
            channels = dict(here.channels)
            if "--model" in arguments:
                at = arguments.index("--model")
                channels["model"] = base / arguments[at + 1]
                arguments = arguments[:at] + arguments[at + 2 :]
            dist.barrier()
            job = dataclasses.replace(
                here, model=folder / "model", checkpoints=folder / "checkpoints", channels=channels
            )
            with open(folder / f"rank-{here.rank}.txt", "w") as file, contextlib.redirect_stdout(file):
                train.train(job, train.config(arguments), device, watch)


if __name__ == "__main__":
    main()
