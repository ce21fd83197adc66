"""What ends a training before its time: a request to stop, and a rank that is lost.

Each rank counts up, once a second, in the store that torchrun gives; each looks at the next rank's count. The first to
find one that stands still, or to fail itself, says so in the store, and every rank that sees this writes it to the file
that SageMaker takes for the job's FailureReason, and ends: even one that waits in a collective, where neither a signal
nor an exception reaches it.
"""

from __future__ import annotations

import os
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
    """Watches the next rank, and is watched by the one before. A context manager around all that the ranks do together."""

    def __init__(self, job: Job, silence: float, ask_every: int = 1) -> None:
        self._job, self._silence, self._ask_every = job, silence, ask_every
        self._next = (job.rank + 1) % job.ranks
        self._asked_to_stop = False
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def on_signal(self, *_: object) -> None:
        self._asked_to_stop = True

    def ask_for_stop(self, step: int) -> Callable[[], bool]:
        """Begin to ask all ranks whether any was told to stop; what is returned waits for the answer, the same on each.

        They are asked in each ``ask_every``-th step; in the others the answer is no, and costs nothing.
        """
        if step % self._ask_every:
            return lambda: False
        asked = torch.tensor(int(self._asked_to_stop))
        work = dist.all_reduce(asked, dist.ReduceOp.MAX, async_op=True)

        def answer() -> bool:
            work.wait()
            return bool(asked.item())

        return answer

    def __enter__(self) -> Watch:
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
        # An error of communication is most often another rank's end, which its neighbour will name.
        if isinstance(error, RuntimeError) and self._job.ranks > 1:
            time.sleep(self._silence + 3 * SECOND)
        said = f"rank {self._job.rank} on {self._job.host}: {kind.__name__ if kind else ''}: {error}"
        self._end(self._agree(said) if self._job.ranks > 1 else said)

    def _connect(self) -> dist.Store:
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        timeout = timedelta(seconds=max(self._silence, LEAST_STORE_SECONDS))
        # torchrun's agent keeps the store: it is still there when rank 0 is lost.
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
                self._end(
                    f"rank {self._job.rank} on {self._job.host}: the first host of the job was lost, and its store"
                )
            if now != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > self._silence:
                self._end(self._agree(self._lost()))

    def _lost(self) -> str:
        known = self._store.check([f"host/{self._next}"])
        host = self._store.get(f"host/{self._next}").decode() if known else "a host that never joined"
        return f"rank {self._next} on {host} was lost: nothing was heard of it for {self._silence:g} s"

    def _agree(self, said: str) -> str:
        """What the first rank said that said anything."""
        try:
            with self._lock:
                return self._store.compare_set("failure", "", said).decode()
        except dist.DistError:
            return said

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
        os._exit(1)  # the main thread may wait in a collective for a rank that is no more
