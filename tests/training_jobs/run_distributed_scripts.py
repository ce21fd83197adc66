"""Runs each script of `distributed_scripts.py`, `replica_scripts.py` and `share_scripts.py`; prints what came out as JSON.

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
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch  # before the forks
import torch.distributed.fsdp
from distributed_scripts import NORMED, NOT_RUN, PLANTS, SCRIPT, WITHOUT
from distributed_scripts import STEP as OF_SCRIPT
from replica_scripts import CLIPPED, REPLICA_PLANTS, STEP
from replica_scripts import SCRIPT as REPLICA
from share_scripts import OF_LIBRARIES, REPLICATED, RUN_LIBRARIES, SHARDED, SHARE_PLANTS

from training_jobs.lint import Job


def run(
    text: str, folder: Path, *, ranks: int = 2, epochs: int = 2, hosts: Sequence[Path] = (), launched: bool = True
) -> list[dict[str, Any]]:
    """Runs a script, and returns what each process wrote, or its exception.

    Args:
        text: The script.
        folder: Where it runs.
        ranks: The number of processes; 0 for one without torchrun's variables.
        epochs: The number of its epochs.
        hosts: The folder of the channel on each host; none for one host without a channel.
        launched: Whether the processes have torchrun's variables.
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
            of_host = ranks // max(len(hosts), 1)
            if hosts:
                os.environ["SM_CHANNEL_TRAIN"] = str(hosts[rank // of_host])
            of_torchrun = {
                "RANK": rank,
                "LOCAL_RANK": rank % max(of_host, 1),
                "WORLD_SIZE": ranks,
                "LOCAL_WORLD_SIZE": of_host,
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
            }
            os.environ.update({name: str(value) for name, value in of_torchrun.items() if ranks and launched})
            os.environ.update(SM_HOSTS='["algo-1"]', SM_CURRENT_HOST="algo-1", EPOCHS=str(epochs))
            if launched:
                os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
            sys.argv = ["train.py", f"{rank}.json"]
            for stream in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
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


def run_on_hosts(text: str, folder: Path, job: Job, samples: int = 32) -> list[dict[str, Any]]:
    """Runs one epoch of a script on the hosts of a job, which have the files of the channel that SageMaker would give them."""
    folders = []
    for host in range(job.hosts or 1):
        (channel := folder / f"channel-{host}").mkdir(parents=True)
        for number in range(host if job.sharded else 0, samples, job.hosts or 1 if job.sharded else 1):
            (channel / str(number)).write_text(f"{number}\n")
        folders.append(channel)
    return run(text, folder, ranks=job.processes or 1, epochs=1, hosts=folders, launched=job.launched is not False)


def main() -> None:
    for module in ("accelerate", "datasets", "transformers.trainer"):  # before the forks
        import_module(module)
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
        for name, plant in SHARE_PLANTS.items():
            samples = 25 if plant.rule == "uneven-shares" else 32
            found[name] = {
                kind: run_on_hosts(text, Path(place, name, kind), plant.job, samples)
                for kind, text in zip(("right", "wrong"), plant.scripts(), strict=True)
            }
        for name in RUN_LIBRARIES:
            found[f"{name} of shares"] = {
                kind: run_on_hosts(OF_LIBRARIES[name], Path(place, name, kind), job)
                for kind, job in (("right", REPLICATED), ("wrong", SHARDED))
            }
        # One process with the samples that both have in a step.
        clipped, normed = REPLICA.replace(STEP, CLIPPED), SCRIPT.replace(OF_SCRIPT, NORMED)
        wholes = {
            "whole": SCRIPT,
            "whole of replicas": REPLICA,
            "whole, clipped": clipped,
            "whole, accumulated": normed,
        }
        for name, text in wholes.items():
            batch = 16 if name == "whole, accumulated" else 8  # as many as two ranks have, there in two batches
            whole = text.replace("sampler=sampler", "shuffle=False").replace("batch_size=4", f"batch_size={batch}")
            found[name] = run(whole, Path(place), ranks=1)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
