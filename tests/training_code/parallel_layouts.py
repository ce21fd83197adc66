"""Runs model_parallel/train.py in several layouts, one after the other, on one set of ranks.

    python parallel_layouts.py RANKS FOLDER LAYOUTS

The ranks are forked with the modules imported, which takes each rank of torchrun seconds; their environment is torchrun's.

LAYOUTS is JSON: pairs of a name and of train.py's arguments. What rank N prints in the layout NAME goes to
FOLDER/NAME/rank-N.txt. A layout with `--from OTHER` begins with OTHER's checkpoints.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import socket
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing
import train
from common.job import Job
from watch import Watch


def main() -> None:
    ranks, base, layouts = int(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = (ranks, port, base, layouts)
    started = torch.multiprocessing.start_processes(rank, arguments, ranks, join=False, start_method="fork")
    # The agent's store, as torchrun has it. After the forks, since it has a thread.
    store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    while not started.join():  # raises what a rank raised, and ends the others
        pass
    del store


def rank(number: int, ranks: int, port: int, base: Path, layouts: list[tuple[str, list[str]]]) -> None:
    os.environ |= {
        "RANK": str(number),
        "LOCAL_RANK": str(number),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
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
