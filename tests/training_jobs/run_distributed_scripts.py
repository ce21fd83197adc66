"""Runs each script of `distributed_scripts.py` and `replica_scripts.py` on two processes; prints what came out as JSON.

Processes are forked, so that PyTorch is imported once.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import torch  # before the forks
import torch.distributed.fsdp
from distributed_scripts import NOT_RUN, PLANTS, SCRIPT, WITHOUT
from replica_scripts import CLIPPED, REPLICA_PLANTS, STEP
from replica_scripts import SCRIPT as REPLICA


def run(text: str, folder: Path, *, ranks: int = 2, epochs: int = 2) -> list[dict[str, Any]]:
    """Runs a script, and returns what each process wrote, or its exception.

    Args:
        text: The script.
        folder: Where it runs.
        ranks: The number of processes; 0 for one without torchrun's variables.
        epochs: The number of its epochs.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told, tells = os.pipe()
    if not (agent := os.fork()):  # torchrun's, which has the store
        try:
            store = torch.distributed.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
            os.write(tells, str(store.port).encode())
            signal.pause()
        finally:
            os._exit(1)
    os.close(tells)
    assert os.read(told, 9), "the store does not start"
    os.close(told)
    ended, ends = os.pipe()
    released, releases = os.pipe()
    children = []
    for rank in range(max(ranks, 1)):
        if not (child := os.fork()):
            os.chdir(folder)
            of_torchrun = {
                "RANK": rank,
                "LOCAL_RANK": rank,
                "WORLD_SIZE": ranks,
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
            }
            os.environ.update({name: str(value) for name, value in of_torchrun.items() if ranks})
            os.environ.update(SM_HOSTS='["algo-1"]', SM_CURRENT_HOST="algo-1", EPOCHS=str(epochs))
            os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
            sys.argv = ["train.py", f"{rank}.json"]
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            signal.alarm(20)  # what waits for ever is ended
            torch.seed()  # as a process that starts has random numbers of its own
            status = 0
            try:
                exec(compile(text, "train.py", "exec"), {"__name__": "__main__"})
            except BaseException:
                Path(f"{rank}.json").write_text(json.dumps({"error": traceback.format_exc()}))
                status = 1
            os.close(ends)
            os.close(releases)
            os.read(released, 1)  # whose end resets no connection that another still reads
            os._exit(status)
        children.append(child)
    os.close(ends)
    os.read(ended, 1)
    os.close(releases)
    for child in children:
        os.waitpid(child, 0)
    os.close(ended)
    os.close(released)
    os.kill(agent, signal.SIGKILL)
    os.waitpid(agent, 0)
    return [_read(folder / f"{rank}.json") for rank in range(max(ranks, 1))]


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {"error": "ended by a signal"}
    return found


def main() -> None:
    torch.set_num_threads(1)
    sys.path.append(str(Path(__file__).with_name("xla_stand_in")))
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        for name, plant in {**PLANTS, **REPLICA_PLANTS}.items():
            if plant.rule in NOT_RUN:
                continue
            for kind, text in zip(("right", "wrong"), plant.scripts(), strict=True):
                folder = Path(place, name, kind)
                folder.mkdir(parents=True)
                print(name, kind, file=sys.stderr)
                found.setdefault(name, {})[kind] = run(text, folder, ranks=0 if plant.job is WITHOUT else 2)
        # One process with the samples that both have in a step.
        clipped = REPLICA.replace(STEP, CLIPPED)
        for name, text in {"whole": SCRIPT, "whole of replicas": REPLICA, "whole, clipped": clipped}.items():
            whole = text.replace("sampler=sampler", "shuffle=False").replace("batch_size=4", "batch_size=8")
            found[name] = run(whole, Path(place), ranks=1)
    json.dump(found, sys.stdout)


main()
