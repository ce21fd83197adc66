"""A thousand faults, drawn by seeds, through deployed state machines: nothing is lost, doubled or left running.

Each execution has a plan: how often its jobs meet which fault, and how it ends. The plan is also what is expected of it. The
report is a table for each seed, printed and in ``faults.md`` beside the account's log.
"""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from counting import ENDS, WORKFLOWS, Counted, Plan
from deployed import wait_until

pytestmark = pytest.mark.soak

FAULTS_OF_A_SEED = 100
AT_ONCE = 6
OF_CALLS = ("quota", "server error", "lost answer", "throttled create", "throttled describe", "slow S3")


def drawn(seed: int) -> list[Plan]:
    """Executions with at least ``FAULTS_OF_A_SEED`` faults."""
    draw = random.Random(seed)
    plans: list[Plan] = []
    while sum(plan.faults() for plan in plans) < FAULTS_OF_A_SEED:
        workflow = draw.choice(WORKFLOWS)
        plan = Plan(
            workflow,
            f"seed-{seed}-{len(plans)}",
            draw.choices(list(ENDS), [12, 1, 1, 1, 2, 2])[0],
            draw.choices(["capacity", "lost host"], [2, 1], k=draw.choice([0, 0, 1, 1, 2, 3])),
            draw.choice([0, 1, 2]) if workflow.startswith("Spot") else 0,
        )
        for attempt in range(1, plan.last + 1):
            some = {kind: 1 if kind == "lost answer" else draw.choice([1, 2]) for kind in OF_CALLS}
            plan.others[attempt] = {kind: times for kind, times in some.items() if draw.random() < 0.4}
        if draw.random() < 0.4:
            plan.others[plan.last]["late host"] = 1
        plans.append(plan)
    return plans


def report(seed: int, plans: list[Plan], injected: Counter[str], problems: list[str]) -> str:
    """What happened, as a table."""
    jobs = sum(len(plan.statuses) for plan in plans)
    rows = [f"| {kind} | {times} |" for kind, times in (*sorted(injected.items()), ("all", injected.total()))]
    title = f"seed {seed}: {len(plans)} executions, {jobs} jobs, {len(problems)} not as planned"
    return "\n".join([title, "", "| fault | times |", "|---|---|", *rows, *problems, ""])


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_lost_doubled_or_left_running_by_a_hundred_faults(seed: int, counted: Counted, faster: None) -> None:
    before = len(counted.listed())
    counted.injected.clear()
    counted.broken.happened.clear()
    plans = drawn(seed)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        problems = [problem for found in threads.map(counted.run, plans) for problem in found]
    wait_until(lambda: not counted.running())
    counted.mend()
    counted.injected.update(counted.broken.happened)
    table = report(seed, plans, +counted.injected, problems)
    print(table)
    with (counted.account.state / "faults.md").open("a") as file:
        file.write(table)
    assert problems == []
    assert len(counted.listed()) - before == sum(len(plan.statuses) for plan in plans)
    # A fault of an operation, or of S3, needs a call after it.
    assert counted.injected.total() >= 0.9 * FAULTS_OF_A_SEED
