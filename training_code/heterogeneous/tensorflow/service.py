"""tf.data service in a job with groups: its processes kept alive, and an end for every host.

    cluster = Cluster.of(job, data_group="data_group", port=6000)
    serve(cluster, job, silence=300)                 # a host of the data group: returns when the training is over
    with attended(cluster, job, worker=True): ...    # a host that trains, which reads from cluster.dispatcher

The first data host has the dispatcher, every data host a worker, and a host that trains has one too where ``worker`` says so.
Each is a process of its own that is started again when it ends: the dispatcher then goes on from its journal.

tf.data service itself knows no end; ``end.py`` gives every host one.
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
from end import DataServiceError, End, Voice

MOST_ENDS, WITHIN_SECONDS = 5, 60.0  # a process that ends so often in so short a time is not started again
LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Cluster:
    """The hosts that serve and those that train, in an order that all agree on, and the first of three ports on each."""

    serving: tuple[str, ...]
    training: tuple[str, ...]
    port: int

    @staticmethod
    def of(job: Job, *, data_group: str, port: int) -> Cluster | None:
        """The job's cluster; None in a job without the data group. Raises ``DataServiceError`` unless one group trains."""
        if data_group not in job.groups:
            return None
        others = [name for name in job.groups if name != data_group]
        if len(others) != 1:
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


def serve(cluster: Cluster, job: Job, *, silence: float) -> None:
    """Serve until every host that trains is done. Raises ``DataServiceError`` where one fails, or is silent for so many s."""
    with contextlib.ExitStack() as stack:
        end = stack.enter_context(End(cluster.training, job.arn, silence=silence, port=cluster.end_port))
        if job.host == cluster.serving[0]:
            # Of this host's disk: with the host the whole job is lost.
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dispatcher-"))
            stack.enter_context(KeptAlive("dispatcher", end.fail, _dispatch, cluster.port, folder))
        stack.enter_context(_worker(cluster, job, end.fail))
        end.wait()


@contextmanager
def attended(cluster: Cluster, job: Job, *, worker: bool, patience: float = 900.0) -> Iterator[None]:
    """Tell every data host that this host is alive, and what comes of the block; ends the process where one is lost.

    ``patience`` is how many seconds a data host may take to answer for the first time: machines start minutes apart.
    """
    addresses = [(host, cluster.end_port) for host in cluster.serving]
    voice = Voice(addresses, job=job.arn, host=job.host, patience=patience)
    try:
        with _worker(cluster, job, voice.give_up) if worker else contextlib.nullcontext():
            # TensorFlow's own attempts grow up to a minute apart.
            while not _answers(cluster.dispatcher):
                time.sleep(LOOK_SECONDS)
            yield
    except BaseException as error:
        voice.end(f"{type(error).__name__}: {error}")
        raise
    voice.end(None)


class KeptAlive:
    """A process that runs ``run(*arguments)`` for as long as the block does, and is started again whenever it ends.

    ``failed`` is told the reason, once, when it ends too often. ``run`` has to begin with ``end_with_the_host``.
    """

    # Not a fork of this process, whose threads a fork would stop in the middle, nor an import of TensorFlow for each start.
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
                print(f"the {self._name} ended with {code} and is started again", flush=True)
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
    # The interval is also how soon a dispatcher that was started again gives out what is left to do.
    config = WorkerConfig(
        dispatcher.partition("://")[2], worker_address=f"{host}:{port}", port=port, heartbeat_interval_ms=1000
    )
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
    """Let this process end when the one that keeps it is gone, which one that was killed does not see to; and use no GPU."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # or each server would take memory of every one
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
