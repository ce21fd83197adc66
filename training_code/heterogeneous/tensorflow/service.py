"""tf.data service in a job with instance groups: it supervises the service's processes, and ends the data hosts with the
training.

    cluster = Cluster.of(job, data_group="data_group", port=6000)
    serve(cluster, job, heartbeat_timeout=300)        # a data host: returns when the training has ended
    with reporting(cluster, job, worker=True): ...    # a training host, which reads from cluster.dispatcher

The first data host has the dispatcher, every data host a worker, and with ``worker`` also every training host. Each is a process
that is restarted when it ends; the dispatcher then recovers from its journal. The data hosts end by ``end.py``.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from common.job import Job
from end import DataServiceError, End, Heartbeats

MOST_ENDS, WITHIN_SECONDS = 5, 60.0  # a process that ends this often within this time is not restarted
LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Cluster:
    """The data hosts and the training hosts, in the same order on all hosts, and the first of three ports on each."""

    serving: tuple[str, ...]
    training: tuple[str, ...]
    port: int

    @staticmethod
    def of(job: Job, *, data_group: str, port: int) -> Cluster | None:
        """The job's cluster; None in a job without the data group. Raises ``DataServiceError`` unless one group trains."""
        if data_group not in job.groups and len(job.groups) == 1:
            return None
        others = [name for name in job.groups if name != data_group]
        if len(others) != 1 or data_group not in job.groups:
            raise DataServiceError(
                f"groups must be {data_group} and one that trains, like ['{data_group}', 'dnn_group'], "
                f"got {sorted(job.groups)}"
            )
        return Cluster(job.groups[data_group], job.groups[others[0]], port)

    @property
    def dispatcher(self) -> str:
        """Where the dispatcher is, for ``distribute(service=...)``."""
        return f"grpc://{self.serving[0]}:{self.port}"

    @property
    def worker_port(self) -> int:
        return self.port + 1

    @property
    def end_port(self) -> int:
        return self.port + 2


def serve(cluster: Cluster, job: Job, *, heartbeat_timeout: float) -> None:
    """Serve until every training host has finished. Raises ``DataServiceError`` where one fails or sends no heartbeats."""
    with contextlib.ExitStack() as stack:
        end = End(cluster.training, job.arn, heartbeat_timeout=heartbeat_timeout, port=cluster.end_port)
        stack.enter_context(end)
        if job.host == cluster.serving[0]:
            # On this host's disk: the job fails with the host.
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dispatcher-"))
            stack.enter_context(KeptAlive("dispatcher", end.fail, _dispatch, cluster.port, folder))
        stack.enter_context(_worker(cluster, job, end.fail))
        end.wait()


@contextmanager
def reporting(cluster: Cluster, job: Job, *, worker: bool, connect_timeout: float = 900.0) -> Iterator[None]:
    """Send heartbeats to every data host, and the block's result; ends the process where a data host is lost.

    ``connect_timeout``: seconds until the first answer of a data host: machines start minutes apart.
    """
    addresses = [(host, cluster.end_port) for host in cluster.serving]
    heartbeats = Heartbeats(addresses, job=job.arn, host=job.host, connect_timeout=connect_timeout)
    try:
        with _worker(cluster, job, heartbeats.give_up) if worker else contextlib.nullcontext():
            # TensorFlow's own retries are up to a minute apart.
            while not _answers(cluster.dispatcher):
                time.sleep(LOOK_SECONDS)
            yield
    except BaseException as error:
        heartbeats.end(f"{type(error).__name__}: {error}")
        raise
    heartbeats.end(None)


class KeptAlive:
    """A process that runs ``run(*arguments)`` during the block, and is restarted whenever it ends.

    ``failed`` is called once with the reason when it ends too often. ``run`` has to call ``end_with_the_host`` first.
    """

    # A fork server: a fork of this process would stop its threads, and a new process would import TensorFlow at each start.
    _context = multiprocessing.get_context("forkserver")

    def __init__(self, name: str, failed: Callable[[str], None], run: Callable[..., None], *arguments: Any) -> None:
        self._name, self._failed = name, failed
        self._run, self._arguments = run, arguments
        self._lock = threading.Lock()
        self._stopping = False

    def __enter__(self) -> KeptAlive:
        self._context.set_forkserver_preload(["tensorflow"])
        self._process = self._start()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._stopping = True
            self._process.kill()
        self._keeper.join()

    def _start(self) -> Any:
        process = self._context.Process(target=self._run, args=self._arguments, daemon=True)
        process.start()
        print(f"the {self._name} is process {process.pid}", flush=True)
        return process

    def _keep(self) -> None:
        ends: deque[float] = deque(maxlen=MOST_ENDS)
        while True:
            self._process.join()
            ends.append(time.monotonic())
            with self._lock:
                if self._stopping:
                    return
                code = self._process.exitcode
                if len(ends) == MOST_ENDS and ends[-1] - ends[0] < WITHIN_SECONDS:
                    break
                print(f"the {self._name} ended with {code} and is restarted", flush=True)
                self._process = self._start()
        self._failed(f"the {self._name} ended {MOST_ENDS} times within {WITHIN_SECONDS:g} s, at last with {code}")


def _worker(cluster: Cluster, job: Job, failed: Callable[[str], None]) -> KeptAlive:
    return KeptAlive(f"worker of {job.host}", failed, _work, cluster.dispatcher, job.host, cluster.worker_port)


def _dispatch(port: int, folder: str) -> None:
    end_with_the_host()
    from tensorflow.data.experimental.service import DispatcherConfig, DispatchServer

    DispatchServer(DispatcherConfig(port=port, work_dir=folder, fault_tolerant_mode=True)).join()


def _work(dispatcher: str, host: str, port: int) -> None:
    end_with_the_host()
    from tensorflow.data.experimental.service import WorkerConfig, WorkerServer

    while not _answers(dispatcher):
        time.sleep(LOOK_SECONDS)
    at, here, heartbeat = dispatcher.partition("://")[2], f"{host}:{port}", 1000  # ms
    # Also the delay after which a restarted dispatcher assigns the remaining splits.
    config = WorkerConfig(at, worker_address=here, port=port, heartbeat_interval_ms=heartbeat)
    WorkerServer(config).join()


def _answers(dispatcher: str) -> bool:
    """Whether ``grpc://host:port`` takes connections."""
    host, _, port = dispatcher.partition("://")[2].rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=5.0):
            return True
    except OSError:
        return False


def end_with_the_host() -> None:
    """End this process with its parent, also where that is killed; and use no GPU."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # else each server would allocate memory on every GPU
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
