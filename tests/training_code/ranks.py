"""Processes that train together, forked with PyTorch loaded: the ranks of a plain loop, in the tests of the data service."""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import socket
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from data_service import BatchReader, DataServiceError
from data_service.pool import start_process
from torch.nn.parallel import DistributedDataParallel


def together(target: Callable[..., Any], ranks: int, *arguments: Any) -> list[Any]:
    """What ``target(rank, ranks, *arguments)`` returns in a process for each rank, by rank; they have a gloo group."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    started = []
    for rank in range(ranks):
        ours, theirs = multiprocessing.Pipe()
        process = start_process((__name__,), _run, theirs, port, target, rank, ranks, arguments)
        theirs.close()
        started.append((process, ours))
    found = [ours.recv() for _, ours in started]
    for process, _ in started:
        process.join()
    return found


def _run(pipe: Any, port: int, target: Callable[..., Any], rank: int, ranks: int, arguments: Any) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    pipe.send(target(rank, ranks, *arguments))
    dist.destroy_process_group()


def plain_loop(rank: int, ranks: int, servers: list[str], epochs: int) -> list[int]:
    """DistributedDataParallel without Join: the samples of each step's batch."""
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sizes = []
    with BatchReader(servers, job="job", rank=rank, ranks=ranks, epochs=epochs) as batches:
        for _ in range(epochs):
            for batch in batches:
                loss = model(batch["image"].flatten(1) / 200).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                sizes.append(len(batch["number"]))
    return sizes


def interrupted(rank: int, ranks: int, servers: list[str], options: dict[str, Any], steps: int) -> dict[str, Any]:
    """Read some batches, keep the position of all ranks, and read the rest from it: the samples before and after."""
    with BatchReader(servers, job="job", rank=rank, ranks=ranks, epochs=1, **options) as batches:
        before: list[int] = []
        for step, batch in enumerate(batches.epoch(0)):
            before += batch["number"].tolist()
            if step + 1 == steps:
                state = batches.state_dict()
                break
    with BatchReader(servers, job="job", rank=rank, ranks=ranks, epochs=1, **options) as batches:
        batches.load_state_dict(state)
        after = [number for batch in batches for number in batch["number"].tolist()]
    return {"before": before, "after": after, "state": state}


def whole_epochs(
    rank: int, ranks: int, servers: list[str], options: dict[str, Any], epochs: int
) -> list[tuple[list[list[int]], int, str]]:
    """The samples of each batch of some epochs, how many the epoch dropped, and what was printed of it."""
    found = []
    with BatchReader(servers, job="job", rank=rank, ranks=ranks, epochs=epochs, **options) as batches:
        for _ in range(epochs):
            with contextlib.redirect_stderr(io.StringIO()) as printed:
                read = [batch["number"].tolist() for batch in batches]
            assert batches.metrics is not None
            found.append((read, batches.metrics.summary().dropped_samples, printed.getvalue()))
    return found


def error_of_an_epoch(rank: int, ranks: int, servers: list[str]) -> str:
    """What is raised where the first epoch is read."""
    try:
        with BatchReader(servers, job="job", rank=rank, ranks=ranks) as batches:
            list(batches)
    except DataServiceError as error:
        return str(error)
    return ""


def part_of_an_epoch(
    rank: int, ranks: int, servers: list[str], state: dict[str, Any] | None, steps: int
) -> tuple[list[int], dict[str, Any]]:
    """The samples of some steps from a position on, and the position after them; of all steps that are left where these are 0."""
    found: list[int] = []
    with BatchReader(servers, job="job", rank=rank, ranks=ranks, epochs=1) as batches:
        batches.load_state_dict(state or {"epoch": 0, "samples": 0})
        for step, batch in enumerate(batches.epoch(0), 1):
            found += batch["number"].tolist()
            if step == steps:
                break
        return found, json.loads(json.dumps(batches.state_dict()))
