"""Failure detection and SIGTERM.

Each rank increments a heartbeat counter in torchrun's store once a second, and reads the next rank's. The first rank that detects
a stopped counter, or fails itself, writes the reason to the store; every rank then writes it to the file of the job's
FailureReason and exits, also from a collective, which neither a signal nor an exception interrupts.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType

import torch
import torch.distributed as dist
from common.job import Job

SECOND = 1.0
LEAST_STORE_SECONDS = 5.0


class Watch:
    """Monitors the next rank, and is monitored by the one before. A context manager around the training."""

    def __init__(self, job: Job, heartbeat_timeout: float, stop_check_every: int = 1) -> None:
        self._job, self._heartbeat_timeout, self._stop_check_every = job, heartbeat_timeout, stop_check_every
        self._next = (job.rank + 1) % job.ranks
        self._stop_received = False
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _on_sigterm(self, *_: object) -> None:
        self._stop_received = True

    def start_stop_check(self, step: int) -> Callable[[], bool]:
        """Start the collective check whether any rank got SIGTERM; the returned function waits for the result.

        It is done in each ``stop_check_every``-th step; in other steps the result is False.
        """
        if step % self._stop_check_every:
            return lambda: False
        stopping = torch.tensor(int(self._stop_received))
        work = dist.all_reduce(stopping, dist.ReduceOp.MAX, async_op=True)

        def agreed() -> bool:
            work.wait()
            return bool(stopping.item())

        return agreed

    def __enter__(self) -> Watch:
        signal.signal(signal.SIGTERM, self._on_sigterm)
        if self._job.ranks > 1:
            self._store = self._connect()
            self._store.set(f"host/{self._job.rank}", self._job.host)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None or not isinstance(error, Exception):
            self._say_over()
            return
        traceback.print_exc()
        # An error of communication is usually another rank's failure, which its neighbour reports.
        if isinstance(error, RuntimeError) and self._job.ranks > 1:
            time.sleep(self._heartbeat_timeout + 3 * SECOND)
        reason = f"rank {self._job.rank} on {self._job.host}: {kind.__name__ if kind else ''}: {error}"
        self._end(self._agree(reason) if self._job.ranks > 1 else reason)

    def _connect(self) -> dist.Store:
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        timeout = timedelta(seconds=max(self._heartbeat_timeout, LEAST_STORE_SECONDS))
        # The store of torchrun's agent, which survives rank 0.
        own = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" and self._job.rank == 0
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = dist.TCPStore(address, port, is_master=own, timeout=timeout, multi_tenant=own)
        return dist.PrefixStore(f"watch/{attempt}", store)

    def _run(self) -> None:
        seen, since = -1, time.monotonic()
        while not self._over.wait(SECOND):
            try:
                with self._lock:
                    self._store.add(f"alive/{self._job.rank}", 1)
                    if self._store.check(["failure"]):
                        self._end(self._store.get("failure").decode())
                    if self._store.check([f"over/{self._next}"]):
                        continue
                    now = self._store.add(f"alive/{self._next}", 0)
            except dist.DistError:
                who = f"rank {self._job.rank} on {self._job.host}"
                self._end(f"{who}: the first host of the job was lost, and its store")
            if now != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > self._heartbeat_timeout:
                self._end(self._agree(self._lost()))

    def _lost(self) -> str:
        joined = self._store.check([f"host/{self._next}"])
        host = self._store.get(f"host/{self._next}").decode() if joined else "a host that never joined"
        return f"rank {self._next} on {host} was lost: no heartbeat for {self._heartbeat_timeout:g} s"

    def _agree(self, reason: str) -> str:
        """The reason of the first rank that wrote one."""
        try:
            with self._lock:
                return self._store.compare_set("failure", "", reason).decode()
        except dist.DistError:
            return reason

    def _say_over(self) -> None:
        self._over.set()
        if self._job.ranks > 1:
            self._thread.join()
            with self._lock:
                self._store.set(f"over/{self._job.rank}", "1")

    def _end(self, failure: str) -> None:
        file = self._job.model.parent / "output" / "failure"
        if self._job.local_rank == 0 or not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(failure)
        print(failure, file=sys.stderr, flush=True)
        os._exit(1)  # the main thread may wait in a collective
