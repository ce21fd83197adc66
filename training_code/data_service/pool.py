"""Worker processes without a thread of their own: their pipes are served by the event loop of who owns the pool.

A batch's slot is an anonymous file in memory (memfd), which workers open by its path under /proc. So nothing is left behind
however processes end, and the size of /dev/shm, 64 MB in a container unless it is set, is no limit.
"""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import pickle
import selectors
import signal
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import context, forkserver, popen_forkserver, spawn
from types import ModuleType
from typing import Any
from unittest import mock

from torch.utils.data import Dataset

from .plan import Plan
from .worker import Failed, Made, Order, Result, describe, work

NICE = 10  # of workers: the process that sends their batches, or the training step, goes first
MAX_DEATHS = 3  # workers that a batch may end in a row, before it counts as its own fault
PRELOADED = ("torch", "torch.utils.data", "data_service")
# Seconds, and how many batches that are made in less are ordered at once: a message costs a change of process on either side.
QUICK, QUICK_ORDERS = 0.002, 4
START_ATTEMPTS, START_PAUSE = 20, 0.1  # seconds

Done = Callable[[Result, "Slot | None"], object]


@dataclass(frozen=True)
class Payload:
    """A dataset and what goes with it, pickled for the workers; ``modules`` are those that they come from."""

    pickled: bytes
    modules: tuple[str, ...]

    @staticmethod
    def of(
        dataset: Dataset[Any],
        collate_fn: Callable[[list[Any]], Any] | None = None,
        sampler: Any = None,
        worker_init_fn: Callable[[int], object] | None = None,
    ) -> Payload:
        """Raises ``ValueError`` where they cannot be pickled."""
        parts = (dataset, collate_fn, sampler, worker_init_fn)
        try:
            data = pickle.dumps(parts)
        except Exception as error:
            raise ValueError(
                "dataset, collate_fn, sampler and worker_init_fn go to worker processes, so they must be picklable, like objects "
                f"of a module's classes and functions (no lambda, no open file), got {type(dataset).__qualname__}: {error}"
            ) from error
        if b"__main__" not in data:
            return Payload(data, tuple(_module(part) for part in parts))
        imported = {_module(one) for one in vars(sys.modules["__main__"]).values()}  # or names from it
        return Payload(data, ("__main__", *sorted(imported - {"__main__"})))


def _module(one: object) -> str:
    """The name of a module, or of the one that defines a class, a function, or an object's class."""
    name = one.__name__ if isinstance(one, ModuleType) else getattr(one, "__module__", None)
    return name if isinstance(name, str) else type(one).__module__


_PATCHING, _prepared = threading.Lock(), spawn.get_preparation_data


class _Popen(popen_forkserver.Popen):  # type: ignore[misc]
    """As multiprocessing's, but the process does not import the script that starts it.

    multiprocessing would import it into each process, with all that it imports, and would refuse a script without
    ``if __name__ == "__main__":``, which a DataLoader's workers do not need on Linux.
    """

    def _launch(self, process: Any) -> None:
        def without_script(name: str) -> dict[str, Any]:
            found = _prepared(name)
            return {key: value for key, value in found.items() if not key.startswith("init_main_")}

        with _PATCHING, mock.patch.object(spawn, "get_preparation_data", without_script):
            super()._launch(process)


class _Process(context.ForkServerProcess):
    """A process that does not import the script."""

    @staticmethod
    def _Popen(process: Any) -> Any:
        return _Popen(process)


def start_process(modules: tuple[str, ...], target: Callable[..., None], *arguments: Any, daemon: bool = True) -> Any:
    """Start a process, forked from a server that has ``modules`` and torch loaded and no threads, in a hundredth of a second.

    Only if ``modules`` has ``"__main__"``, of a dataset that the script itself defines, it imports the script first. Raises
    ``OSError`` where no process can be started. The forkserver ends with the process that is killed while it sends it a request
    (``recvfds`` raises in its loop), so the request after that begins with a forkserver of its own.
    """
    kind = context.ForkServerProcess if "__main__" in modules else _Process
    forkserver.set_forkserver_preload([*PRELOADED, *(name for name in modules if name != "__main__")])
    for _ in range(START_ATTEMPTS):
        process = kind(target=target, args=arguments, daemon=daemon)
        with contextlib.suppress(ConnectionError, EOFError):
            process.start()
            return process
        time.sleep(START_PAUSE)  # until it is seen to have ended
    raise OSError("multiprocessing's forkserver has ended, and no other could be started")


def _fork(target: Callable[..., None], *arguments: Any) -> Any:
    """Fork this process, which must have no other thread: ``target`` runs without the sockets that are no pipe of its own."""
    process = multiprocessing.get_context("fork").Process(target=_forked, args=(target, *arguments), daemon=True)
    process.start()
    return process


def _forked(target: Callable[..., None], pipe: Any, *arguments: Any) -> None:
    # A connection of which a worker held a copy would not end with the process that serves it.
    for file in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # the folder that was listed
            if stat.S_ISSOCK(os.fstat(file).st_mode) and file != pipe.fileno():
                os.close(file)
    target(pipe, *arguments)


def describe_exit(code: int) -> str:
    """How a process has ended, as a sentence's verb."""
    if code == -signal.SIGKILL:
        return "was killed (-9), as by the kernel when memory runs out"
    if code < 0:
        return f"was ended by {signal.Signals(-code).name} ({code})"
    return f"ended with {code}"


class _File:
    """A slot's memory; ``path`` is what another process of this user opens."""

    def __init__(self) -> None:
        self._file = os.memfd_create("batch")
        self.path = f"/proc/{os.getpid()}/fd/{self._file}"
        self._mapped: mmap.mmap | bytes = b""

    def view(self, size: int) -> memoryview:
        if size > len(self._mapped):  # a worker has made it larger
            self._mapped = mmap.mmap(self._file, os.fstat(self._file).st_size)
        return memoryview(self._mapped)[:size]

    def __del__(self) -> None:
        os.close(self._file)


class Slot:
    """A batch's place, free for another one when the last reference is gone; ``view`` is of its first bytes."""

    def __init__(self, free: deque[_File]) -> None:
        self._free = free
        self._file = free.pop() if free else _File()  # the last that was freed may still be in the caches
        self.path, self.view = self._file.path, self._file.view

    def __del__(self) -> None:
        self._free.append(self._file)  # on any thread: a deque needs no lock


@dataclass(eq=False)
class _Task:
    order: Order
    done: Done
    slot: Slot | None = None  # once a worker has the task: so there are few, and they stay in the caches
    deaths: int = 0


@dataclass(eq=False)
class _Worker:
    number: int
    waiting: deque[_Task]  # of all workers, or the batches of the shards that are its
    process: Any = None
    pipe: Any = None
    ready: bool = False
    tasks: deque[_Task] = field(default_factory=deque)  # what it was sent, the first of which it is making


class WorkerPool:
    """``count`` processes that make batches of the dataset in ``payload``, each batch in a slot of shared memory.

    All methods are called on the thread of the event loop of ``selector``, which calls its data with the events. A task's
    ``done`` is called there with the result, and the slot where it was made. ``forks``: workers are forked from this process,
    which has no other thread.
    """

    def __init__(
        self,
        payload: Payload,
        plan: Plan,
        count: int,
        selector: selectors.BaseSelector,
        *,
        forks: bool = False,
        nice: int = 0,
    ) -> None:
        self.count, self.busy_seconds = count, 0.0
        self._start_process = _fork if forks else partial(start_process, payload.modules)
        self._payload, self._plan, self._nice, self._selector = payload, plan, nice, selector
        self._free: deque[_File] = deque()
        self._never_ready, self._orders = 0, 1
        self._shards: dict[tuple[int, int], int] = {}  # of an epoch, and the worker that each is at
        self._broken: Failed | None = None
        waiting: deque[_Task] = deque()
        self._workers = [_Worker(number, waiting if plan.shards is None else deque()) for number in range(count)]

    def start(self) -> None:
        for worker in self._workers:
            self._start(worker)

    def submit(self, order: Order, done: Done) -> None:
        """Have a batch made."""
        if self._broken is not None:
            done(self._broken, None)
            return
        number = 0
        if order.shard is not None:
            if (order.epoch, order.shard) not in self._shards:  # another epoch's are other shards
                self._shards = {key: at for key, at in self._shards.items() if key[0] >= order.epoch - 1}
                others = [at for (epoch, _), at in self._shards.items() if epoch == order.epoch]
                self._shards[order.epoch, order.shard] = min(range(self.count), key=others.count)
            number = self._shards[order.epoch, order.shard]
        self._workers[number].waiting.append(_Task(order, done))
        self._dispatch()

    def stop(self) -> None:
        """End the processes."""
        started = [worker.process for worker in self._workers if worker.process is not None]
        for process in started:
            process.kill()
        for process in started:
            process.join()

    def _start(self, worker: _Worker) -> None:
        worker.pipe, theirs = multiprocessing.Pipe()
        worker.ready = False
        arguments = (theirs, self._payload.pickled, self._plan, worker.number, self.count, self._nice)
        worker.process = self._start_process(work, *arguments)
        theirs.close()
        self._selector.register(worker.pipe, selectors.EVENT_READ, partial(self._handle, worker))

    def _handle(self, worker: _Worker, _: int) -> None:
        """Take a worker's results, or its end, in which its pipe ends."""
        try:
            results = worker.pipe.recv()
        except (EOFError, OSError):
            self._replace(worker)
            return
        if not worker.ready:  # this is the first message, and None where it has loaded the dataset
            worker.ready, self._never_ready = True, 0
            if results is not None:
                self._fail(results)
            self._dispatch()
        elif worker.tasks:  # else all have been finished with an error
            made = [result.seconds for result in results if isinstance(result, Made)]
            self.busy_seconds += sum(made)
            self._orders = QUICK_ORDERS if made and max(made) < QUICK else 1
            tasks = [worker.tasks.popleft() for _ in results]
            self._dispatch()
            for task, result in zip(tasks, results, strict=True):
                task.done(result, task.slot)

    def _replace(self, worker: _Worker) -> None:
        self._selector.unregister(worker.pipe)
        worker.pipe.close()
        worker.process.join()
        ended, fatal = describe_exit(worker.process.exitcode), None
        if not worker.ready:
            self._never_ready += 1
        elif worker.tasks:
            worker.tasks[0].deaths += 1
            fatal = worker.tasks.popleft() if worker.tasks[0].deaths == MAX_DEATHS else None
        worker.ready = False
        worker.waiting.extendleft(reversed(worker.tasks))
        worker.tasks.clear()
        if fatal is not None:
            fatal.done(Failed(self._describe_fatal(fatal.order, ended)), None)
        if self._never_ready >= max(MAX_DEATHS, self.count):
            self._fail(Failed(f"a worker process {ended} before it had loaded the dataset"))
        elif self._broken is None:
            try:
                self._start(worker)
            except OSError as error:
                self._fail(Failed(f"no worker process can be started: {error}"))

    def _dispatch(self) -> None:
        """Send every worker that is ready a message with orders to carry out, and one more where all have one."""
        for most in (0, self._orders):
            for worker in self._workers:
                if worker.ready and worker.waiting and len(worker.tasks) <= most:
                    self._order(worker)

    def _order(self, worker: _Worker) -> None:
        """Send a worker what is waiting: several batches if they are quick, and one that may have ended a worker by itself."""
        tasks = [worker.waiting.popleft()]
        while worker.waiting and len(tasks) < self._orders and not (tasks[-1].deaths or worker.waiting[0].deaths):
            tasks.append(worker.waiting.popleft())
        worker.tasks += tasks
        orders = []
        for task in tasks:
            task.slot = task.slot or Slot(self._free)
            orders.append(task.order._replace(path=task.slot.path))
        with contextlib.suppress(OSError):  # it has ended, and will be replaced
            worker.pipe.send_bytes(pickle.dumps(orders))

    def _fail(self, why: Failed) -> None:
        """Finish all tasks, and whatever is submitted, with why there will be no batch."""
        self._broken = why
        for queue in (queue for worker in self._workers for queue in (worker.tasks, worker.waiting)):
            while queue:
                queue.popleft().done(why, None)

    def _describe_fatal(self, order: Order, ended: str) -> str:
        of = f"shard {order.shard}"
        if order.shard is None:
            of = f"samples {self._plan.samples(order.epoch, order.first, order.size)}"
            of = f"places {order.first} to {order.first + order.size - 1} of the sampler" if self._plan.sampler else of
        last = f"of which the last {ended}; it is of {of}"
        return f"{describe(order)} ended {MAX_DEATHS} worker processes in a row, {last}"
