"""What stands where the DataLoader stood, in a script that every host of a job starts."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
from collections.abc import Callable
from typing import Any

from common.job import Job
from torch.utils.data import Dataset

from .errors import DataServiceError
from .processes import Payload
from .reader import BatchReader
from .supervisor import BatchServer, plan_of
from .workers import Workers

SHARDS = 4  # of an iterable dataset, for each host that prepares, where nobody says how many workers it has
LOWER = 10  # by how much local workers' priority is lower than the step's, where data hosts prepare batches as well


def read_batches(
    dataset: Dataset[Any],
    *,
    batch_size: int,
    shuffle: bool = True,
    drop_last: bool = False,
    seed: int = 0,
    workers: int | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    ordered: bool = True,
    data_group: str = "data_group",
    port: int = 6000,
    silence: float = 300.0,
    patience: float = 900.0,
    lost_after: float = 30.0,
    local_workers: int | None = None,
    streams: int = 2,
    prefetch: int = 4,
    shards: int | None = None,
    job: Job | None = None,
) -> BatchReader:
    """A rank's batches of a dataset, epoch by epoch; on a host of ``data_group`` it serves them instead, and ends the process.

    There it raises ``SystemExit`` when the training is over: with 0, or where it failed with the reason, which is code 1.
    In a job without that group each training process prepares its own batches. Whatever ends the script, even an error that
    nobody caught, the data hosts are told of.

    Args:
        dataset: map-style or iterable, the same on all hosts; it is pickled to worker processes, and so is ``collate_fn``.
        batch_size: samples in a batch of one rank; the last of an epoch may hold fewer, unless ``drop_last``.
        seed: of the permutations, and of the random numbers with which a batch is made.
        workers: processes of each data host; None is one for each of its CPUs.
        ordered: in an order that is the same in every run, or else in that of arrival, which waits for no slow batch.
        silence: seconds without a word of a rank after which a data host ends.
        patience: seconds in which each data host has to come; training begins with the first.
        lost_after: seconds without an answer after which a data host counts as lost, and the training fails.
        local_workers: processes of each training process's own; None is half of its CPUs beyond one, and none where there are
            but two.
        streams: connections to each data host.
        prefetch: batches that are kept ready, besides those that are being made or are on their way.
        shards: of an iterable dataset, at least one for each rank; None is one for each worker of all hosts that prepare, where
            ``workers`` is given, and else four for each of those hosts.
    """
    # The first is set while multiprocessing imports the script into a process, the second from then on.
    if getattr(multiprocessing.current_process(), "_inheriting", False) or multiprocessing.parent_process() is not None:
        raise DataServiceError(
            "read_batches must be called under `if __name__ == '__main__':`, since worker processes import the script"
        )
    job = job or Job.here()
    data_hosts = job.groups.get(data_group, ())
    cpus = len(os.sched_getaffinity(0))
    shards = shards or (workers or SHARDS) * (len(data_hosts) or job.ranks)
    plan = plan_of(dataset, batch_size=batch_size, seed=seed, shuffle=shuffle, drop_last=drop_last, shards=shards)
    if job.group == data_group:
        server = BatchServer(
            dataset,
            batch_size=batch_size,
            job=job.arn,
            workers=workers or cpus,
            seed=seed,
            port=port,
            silence=silence,
            shuffle=shuffle,
            drop_last=drop_last,
            collate_fn=collate_fn,
            shards=shards,
        )
        _serve(server, job, workers or cpus)
    count = _local(local_workers, workers, cpus, job.local_ranks, bool(data_hosts))
    payload = Payload.of(dataset, collate_fn)
    local = Workers(payload, plan, count, nice=LOWER if data_hosts else 0) if count else None
    reader = BatchReader(
        [f"{host}:{port}" for host in data_hosts],
        job=job.arn,
        rank=job.rank,
        ranks=job.ranks,
        patience=patience,
        lost_after=lost_after,
        streams=streams,
        prefetch=prefetch,
        ordered=ordered,
        plan=plan,
        local=local,
        host=job.host,
    )
    atexit.register(lambda: reader.close(getattr(sys, "last_value", None)))
    return reader


def _serve(server: BatchServer, job: Job, workers: int) -> None:
    with server:
        print(f"host {job.host} of {job.group} serves batches from {workers} worker processes", flush=True)
        try:
            server.wait()
        except DataServiceError as error:
            # A FailureReason begins where the toolkit first finds the name of one of Python's own errors.
            raise SystemExit(f"Exception: {type(error).__name__}: {error}") from error
    raise SystemExit(0)


def _local(asked: int | None, workers: int | None, cpus: int, processes: int, helped: bool) -> int:
    """How many workers a training process has of its own: all that there are, unless data hosts help it."""
    half = max(0, (cpus // processes - 1) // 2) if cpus > 2 else 0
    if helped:
        return half if asked is None else asked
    return asked or workers or max(1, 2 * half)
