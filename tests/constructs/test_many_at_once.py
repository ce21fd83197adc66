"""Executions that start together against SageMaker's rate of calls, by the evaluator of definitions and a clock of its own."""

from __future__ import annotations

import heapq
import itertools
import random
from typing import Any

import pytest
from stacks import UserStack

from training_jobs.prove import values
from training_jobs.prove.evaluator import Answered, Call, Elapsed, Execution, Failed, Timer, start, step, wants
from training_jobs.prove.templates import read

THROTTLED = "Rate exceeded (Service: SageMaker, Status Code: 400, Request ID: 05f50214-59f0)"


class Rate:
    """A bucket that gains a token each second and holds one: CreateTrainingJob of an account is taken to be that slow."""

    def __init__(self) -> None:
        self.free = 0.0

    def takes(self, now: float) -> bool:
        if now < self.free:
            return False
        self.free = now + 1
        return True


def run(definition: Any, number: int) -> tuple[list[float], list[Execution], int]:
    """Start executions at once; returns when their jobs were created, what became of them, and the calls of CreateTrainingJob."""
    rate, order, created, ended, calls = Rate(), itertools.count(), list[float](), list[Execution](), 0
    queue: list[tuple[float, int, Execution]] = []
    for one in range(number):
        context = {"Execution": {"Id": f"arn:execution:{one}", "Name": str(one), "Input": {}, "RedriveCount": 0}}
        queue.append((random.random(), next(order), start(definition, {}, context)))
    heapq.heapify(queue)
    while queue:
        now, _, execution = heapq.heappop(queue)
        if execution.status != "RUNNING":
            ended.append(execution)
            continue
        [want] = wants(execution)
        later = now
        if isinstance(want, Timer):
            event: Any = Elapsed(want.at)
        else:
            assert isinstance(want, Call)
            creates, event = "createTrainingJob" in want.resource, Answered(want.at, {"TrainingJobStatus": "Completed"})
            calls += creates
            if creates and rate.takes(now):
                created.append(now)
            elif creates:
                event = Failed(want.at, "SageMaker.AmazonSageMakerException", THROTTLED)
        execution = step(execution, event)
        timers = [one for one in wants(execution) if isinstance(one, Timer)] if execution.status == "RUNNING" else []
        later += timers[0].seconds or 0 if timers else 0.1
        heapq.heappush(queue, (later, next(order), execution))
    return created, ended, calls


@pytest.mark.parametrize("number", [20, 100, 1_000])
def test_executions_that_start_together_all_create_their_jobs(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = random.Random(7)
    monkeypatch.setitem(values.FUNCTIONS, "States.MathRandom", lambda first, last: drawn.randrange(first, last))
    random.seed(7)
    stack = UserStack()
    stack.workflow(missing_model="ignore")
    [definition] = [
        one for name, one in read(stack.template()).machines.items() if name.startswith("TrainingStateMachine")
    ]
    created, ended, calls = run(definition, number)
    assert (len(created), {one.status for one in ended}) == (number, {"SUCCEEDED"})
    assert number - 1 <= created[-1] < 12 * number
    assert calls < 12 * number
