"""A data service for PyTorch: data hosts prepare batches, training ranks read them, over one TCP connection for each pair.

    batches = read_batches(dataset, batch_size=64)     # where a DataLoader stood, in the script that all hosts start

or, by hand,

    with BatchServer(dataset, batch_size=64, job=arn, port=6000) as server:                        # on each data host
        server.wait()

    with BatchReader(["algo-1:6000", "algo-2:6000"], job=arn, rank=0, ranks=1) as reader:          # in each training rank
        for batch in reader: ...

A batch is a pure function of seed, epoch and position, and each rank keeps account of its own. So any host can make any batch,
and each comes exactly once, whichever part dies meanwhile. docs/data-service.md has the way of a batch through these modules.
"""

from __future__ import annotations

import atexit
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch.utils.data import Dataset, Sampler

from .plan import Plan
from .pool import NICE, Payload, WorkerPool
from .protocol import DataHostLost, DataServiceError, TrainerFailed
from .reader import METRIC_DEFINITIONS, BatchReader, Summary
from .server import BatchServer

# What read_batches returns.
Batches = BatchReader

__all__ = [
    "METRIC_DEFINITIONS",
    "BatchReader",
    "BatchServer",
    "Batches",
    "DataHostLost",
    "DataServiceError",
    "Summary",
    "TrainerFailed",
    "read_batches",
]

SHARDS = 4  # of an iterable dataset, for each host that prepares, where the number of its workers is not given


@dataclass(frozen=True)
class _Job:
    """This process in its job, as SageMaker's training toolkit and torchrun describe it in the environment; alone on a laptop."""

    arn: str
    host: str
    group: str
    groups: Mapping[str, list[str]]
    rank: int
    ranks: int
    local_ranks: int

    @staticmethod
    def here() -> _Job:
        groups = json.loads(os.environ.get("SM_INSTANCE_GROUPS_DICT", "{}"))
        return _Job(
            arn=os.environ.get("TRAINING_JOB_ARN", "a job on a laptop"),
            host=os.environ.get("SM_CURRENT_HOST", "localhost"),
            group=os.environ.get("SM_CURRENT_INSTANCE_GROUP", ""),
            # algo-10 after algo-2
            groups={name: sorted(about["hosts"], key=lambda host: (len(host), host)) for name, about in groups.items()},
            rank=int(os.environ.get("RANK", "0")),
            ranks=int(os.environ.get("WORLD_SIZE", "1")),
            local_ranks=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        )


def read_batches(
    dataset: Dataset[Any] | None,
    *,
    batch_size: int,
    shuffle: bool | None = None,
    drop_last: bool = False,
    even: bool = True,
    seed: int = 0,
    epochs: int | None = None,
    workers: int | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    sampler: Sampler[Any] | None = None,
    worker_init_fn: Callable[[int], object] | None = None,
    ordered: bool = True,
    data_group: str = "data_group",
    port: int = 6000,
    heartbeat_timeout: float = 300.0,
    connect_timeout: float = 900.0,
    host_timeout: float = 30.0,
    local_workers: int | None = None,
    prefetch: int = 4,
    look_ahead: int | None = None,
    shards: int | None = None,
) -> BatchReader:
    """A rank's batches of a dataset, epoch by epoch; on a host of ``data_group`` it serves them instead, and ends the process.

    There it raises ``SystemExit`` when the training is over: with 0, or where it failed with the reason, which is code 1.
    In a job without that group each training process prepares its own batches. Whatever ends the script, even an uncaught
    error, is reported to the data hosts. The host, its group and its ranks are read from the variables that SageMaker's training
    toolkit and torchrun set.

    Args:
        dataset: Map-style or iterable, the same on all hosts; it is pickled to worker processes, and so are ``collate_fn``,
            ``sampler`` and ``worker_init_fn``. None on a host that trains beside data hosts and lacks the files: it takes their
            plan, and has no local workers.
        batch_size: Samples in a batch of one rank; the last ones of an epoch may hold fewer, unless ``drop_last``.
        shuffle: Whether each epoch has an order of its own; None: of a map-style dataset without ``sampler``. Of an iterable
            one it is that of its shards, and within them what the dataset's ``set_epoch`` makes of it.
        drop_last: Whether samples that are not enough for a whole batch of each rank are dropped, and counted.
        even: True: every rank makes the same number of steps. Those that are left for the last one are divided over the ranks;
            of an iterable dataset one of the last batches is, and what has fewer samples than ranks is dropped, and counted.
            False: ranks may differ, by one batch of a map-style dataset.
        seed: Of the permutations, and of the random numbers with which a batch is made.
        epochs: How many the training takes, so that nothing is made beyond the last one.
        workers: Processes of each data host; None is one for each of its CPUs.
        sampler: Of a map-style dataset, as a DataLoader's: which samples an epoch has, seeded by ``seed`` and the epoch.
        worker_init_fn: Called in each worker process with its number, or before each pass over a shard with that of the shard.
        ordered: In an order that is the same in every run, or else in that of arrival, which waits for no slow batch.
        port: TCP port of each data host, to which the processes that train connect.
        heartbeat_timeout: Seconds without a word of a rank after which a data host ends.
        connect_timeout: Seconds in which each data host has to answer for the first time; training begins with the first.
        host_timeout: Seconds without an answer after which a data host counts as lost, and the training fails; also those after
            which a batch that has not come is requested from another host.
        local_workers: Processes of each training process's own; None is half of its CPUs beyond one, and none where there are
            but two.
        prefetch: Batches that are kept ready, besides those that are being made or are on their way.
        look_ahead: Bytes of batches in each training process that are ready or on their way; None is its share of 8 GiB, or of a
            quarter of the machine's memory where that is less.
        shards: Of an iterable dataset, at least one for each rank; None is one for each worker of all hosts that prepare, where
            ``workers`` is given, and else four for each of those hosts.
    """
    # The first is set while multiprocessing imports the script into a process, the second from then on.
    if getattr(multiprocessing.current_process(), "_inheriting", False) or multiprocessing.parent_process() is not None:
        raise DataServiceError(
            "read_batches must be called under `if __name__ == '__main__':`, since worker processes import the script"
        )
    job = _Job.here()
    if len(job.groups) > 1 and data_group not in job.groups:
        raise DataServiceError(
            f"data_group must be a group of the job, of which each would train by itself, like {min(job.groups)!r} of "
            f"{sorted(job.groups)}, got {data_group!r}"
        )
    data_hosts = job.groups.get(data_group, [])
    cpus = len(os.sched_getaffinity(0))
    shards = shards or (workers or SHARDS) * (len(data_hosts) or job.ranks)
    options: dict[str, Any] = {"batch_size": batch_size, "seed": seed, "shuffle": shuffle, "drop_last": drop_last}
    options |= {"even": even, "shards": shards, "sampler": sampler}
    if dataset is None and (not data_hosts or job.group == data_group):
        raise DataServiceError(f"dataset must not be None on a host that prepares batches, got None on {job.host}")
    if dataset is not None and job.groups and job.group == data_group:
        options |= {"heartbeat_timeout": heartbeat_timeout, "collate_fn": collate_fn, "worker_init_fn": worker_init_fn}
        _serve(BatchServer(dataset, job=job.arn, workers=workers or cpus, port=port, **options), job, workers or cpus)
    plan = None if dataset is None else Plan.of(dataset, **options)
    pool = None
    count = _local(local_workers, workers, cpus, job.local_ranks, bool(data_hosts))
    if dataset is not None and plan is not None and count:
        payload = Payload.of(dataset, collate_fn, sampler, worker_init_fn)
        pool = partial(WorkerPool, payload, plan, count, nice=NICE if data_hosts else 0)
    reader = BatchReader(
        [f"{host}:{port}" for host in data_hosts],
        job=job.arn,
        rank=job.rank,
        ranks=job.ranks,
        local_ranks=job.local_ranks,
        connect_timeout=connect_timeout,
        host_timeout=host_timeout,
        prefetch=prefetch,
        look_ahead=look_ahead,
        ordered=ordered,
        epochs=epochs,
        plan=plan,
        local=pool,
        host=job.host,
    )
    atexit.register(lambda: reader.close(getattr(sys, "last_value", None)))
    return reader


def _serve(server: BatchServer, job: _Job, workers: int) -> None:
    with server:
        print(f"host {job.host} of {job.group} serves batches from {workers} worker processes", flush=True)
        try:
            server.wait()
        except DataServiceError as error:
            # A FailureReason begins where the toolkit first finds the name of one of Python's own errors.
            raise SystemExit(f"Exception: {type(error).__name__}: {error}") from error
    raise SystemExit(0)


def _local(wanted: int | None, workers: int | None, cpus: int, processes: int, data_hosts: bool) -> int:
    """How many workers a training process has of its own: all that there are, unless data hosts help it."""
    half = max(0, (cpus // processes - 1) // 2) if cpus > 2 else 0
    if data_hosts:
        return half if wanted is None else wanted
    return wanted or workers or max(1, 2 * half)
