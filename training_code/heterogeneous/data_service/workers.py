"""The worker processes of a data host, or of a training host that has cores to spare: one that dies is replaced."""

from __future__ import annotations

import contextlib
import itertools
import os
import selectors
import threading
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .epochs import Plan
from .making import Answer, Order, Raised, work
from .processes import Payload, Processes, ending
from .slots import Slot, Slots

DEATHS = 3  # workers that a batch may end in a row, before it counts as its own fault
LONG = 4096  # samples whose numbers fill a pipe, so that a worker is sent one such order at a time

Answered = Callable[[Answer, Slot | None], object]


@dataclass(eq=False)
class _Task:
    order: Order
    answered: Answered
    slot: Slot | None = None  # once a worker is given it: so there are few, and they stay in the caches
    deaths: int = 0

    def begin(self, slots: Slots) -> Order:
        """What to tell a worker."""
        self.slot = self.slot or slots.take()
        return self.order._replace(path=self.slot.path)


@dataclass(eq=False)
class _Worker:
    number: int
    process: Any
    orders: Any
    ready: bool = False
    tasks: deque[_Task] = field(default_factory=deque)  # what it was sent, the first of which it is at
    own: deque[_Task] = field(default_factory=deque)  # batches of the shards that are its


class Workers:
    """``count`` processes that make batches of the dataset in ``payload``, each in a slot of shared memory.

    ``answered`` is called on a thread of this object's, with what has become of the batch, and where it is if it was made.
    """

    def __init__(self, payload: Payload, plan: Plan, count: int, *, nice: int = 0) -> None:
        if count < 1:
            raise ValueError(f"workers must be at least 1, like 4, got {count}")
        self.count = count
        self._processes = Processes(payload.modules)
        self._arguments = (payload.pickled, plan)
        self._plan, self._nice = plan, nice
        self._slots = Slots()
        self._waiting: deque[_Task] = deque()
        self._never_ready = 0
        self._broken: Raised | None = None
        self._stopping = False
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake = os.pipe()
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._workers = [_Worker(number, None, None) for number in range(count)]
        self._foreman = threading.Thread(target=self._lead, daemon=True)
        self._foreman.start()

    def submit(self, epoch: int, shard: int | None, number: int, answered: Answered) -> None:
        """Have a batch made."""
        samples = self._plan.samples(epoch, number) if shard is None else []
        task = _Task(Order(epoch, shard, number, samples), answered)
        with self._lock:
            broken = self._broken
            if broken is None:
                self._put(task, first=False)
                self._give_out()
        if broken is not None:
            answered(broken, None)

    def pids(self) -> list[int]:
        """Of the processes that are there now."""
        return [worker.process.pid for worker in self._workers if worker.process is not None]

    def stop(self) -> None:
        """End the processes, and free the memory of all slots that nobody holds."""
        self._stopping = True
        os.write(self._wake, b"x")
        self._foreman.join()
        for worker in self._workers:
            if worker.process is not None:
                worker.process.kill()
        for worker in self._workers:
            if worker.process is not None:
                worker.process.join()
        self._slots.close()

    def _lead(self) -> None:
        try:
            for worker in self._workers:
                if not self._stopping:
                    self._start(worker)
            while not self._stopping:
                for key, _ in self._selector.select():
                    if key.data is None:  # woken up, to end
                        break
                    worker, kind = key.data
                    if kind == "answer" and key.fileobj is worker.orders:
                        self._hear(worker)
                    elif kind == "end" and key.fd == worker.process.sentinel:
                        self._replace(worker)
        except Exception:
            self._break(Raised(f"the worker processes cannot be led:\n{traceback.format_exc()}"))

    def _start(self, worker: _Worker) -> None:
        worker.orders, theirs = self._processes.pipe()
        worker.ready = False
        worker.process = self._processes.start(work, theirs, *self._arguments, worker.number, self.count, self._nice)
        theirs.close()
        self._selector.register(worker.orders, selectors.EVENT_READ, (worker, "answer"))
        self._selector.register(worker.process.sentinel, selectors.EVENT_READ, (worker, "end"))

    def _hear(self, worker: _Worker) -> None:
        try:
            answer = worker.orders.recv()
        except (EOFError, OSError):  # it has ended, which its sentinel will tell
            with contextlib.suppress(KeyError):
                self._selector.unregister(worker.orders)
            return
        if not worker.ready:
            worker.ready, self._never_ready = True, 0
            if answer is not None:
                self._break(answer)
            with self._lock:
                self._give_out()
            return
        with self._lock:
            task = worker.tasks.popleft()
            self._give_out()
        task.answered(answer, task.slot)

    def _replace(self, worker: _Worker) -> None:
        for file in (worker.orders, worker.process.sentinel):
            with contextlib.suppress(KeyError):
                self._selector.unregister(file)
        worker.process.join()
        code = worker.process.exitcode
        guilty = None
        with self._lock:
            if not worker.ready:
                self._never_ready += 1
            elif worker.tasks:
                worker.tasks[0].deaths += 1
                guilty = worker.tasks.popleft() if worker.tasks[0].deaths == DEATHS else None
            worker.ready = False
            for task in reversed(worker.tasks):
                self._put(task, first=True)
            worker.tasks.clear()
        worker.orders.close()
        if guilty is not None:
            guilty.answered(Raised(_blame(guilty.order, code)), guilty.slot)
        if self._never_ready >= max(DEATHS, self.count):
            self._break(Raised(f"a worker process {ending(code)} before it had loaded the dataset"))
        elif self._broken is None:
            self._start(worker)

    def _put(self, task: _Task, *, first: bool) -> None:
        shard = task.order.shard
        queue = self._waiting if shard is None else self._workers[shard % self.count].own
        (queue.appendleft if first else queue.append)(task)

    def _give_out(self) -> None:
        """Send every worker that is up what it can take: one batch to be at, and one more where all are at one."""
        most = 1 if self._plan.batch_size > LONG else 2
        for depth in range(1, most + 1):
            for worker in self._workers:
                queue = worker.own or self._waiting
                if worker.ready and queue and len(worker.tasks) < depth:
                    worker.tasks.append(queue.popleft())
                    with contextlib.suppress(OSError):  # it has ended, and will be replaced
                        worker.orders.send(worker.tasks[-1].begin(self._slots))

    def _break(self, why: Raised) -> None:
        """Answer all that wait, and whatever comes, with why there will be no batch."""
        with self._lock:
            self._broken = why
            left = [task for worker in self._workers for task in (*worker.tasks, *worker.own)] + list(self._waiting)
            for queue in itertools.chain.from_iterable((worker.tasks, worker.own) for worker in self._workers):
                queue.clear()
            self._waiting.clear()
        for task in left:
            task.answered(why, task.slot)


def _blame(order: Order, code: int) -> str:
    of = f"samples {order.samples}" if order.shard is None else f"shard {order.shard}"
    return (
        f"batch {order.number} of epoch {order.epoch} ended {DEATHS} worker processes in a row, "
        f"of which the last {ending(code)}; it is of {of}"
    )
