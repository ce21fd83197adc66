"""What ``training-jobs prove`` says of executions whose stack is deleted or updated while they run."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from stacks import UserStack
from test_prove import FEW, broken, with_task

from cdk_sagemaker_training import Grid, NumberField, Silence, TrainingPipeline, TrainingQueue, TrainingSweep
from training_jobs.prove.explorer import Proof, prove


def of_workflow(id: str = "Training", **props: Any) -> UserStack:
    stack = UserStack()
    stack.workflow(id, **props)
    return stack


def pipeline() -> UserStack:
    stack = UserStack()
    TrainingPipeline(stack, "Pipeline", steps=[stack.workflow(), stack.workflow("Second")])
    return stack


def sweep(**props: Any) -> UserStack:
    stack = UserStack()
    workflow = stack.workflow(input_fields={"rate": NumberField(0, 1)})
    place = stack.place("sweeps/")
    rates = Grid({"rate": [0.1, 0.2]})
    TrainingSweep(stack, "Sweep", workflow=workflow, over=rates, results=place, concurrency=2, **props)
    return stack


def task(*, guarded: bool = True, **props: Any) -> UserStack:
    stack = UserStack()
    state = stack.task(**props)
    machine = stack.machine_of(state)
    if guarded:
        state.guard(machine)
    return stack


def queue(*, there: bool = True, used: bool = True) -> UserStack:
    stack = UserStack()
    made = {"queue": TrainingQueue(stack, "Queue", capacity=8)} if there else {}
    stack.workflow(**(made if used else {}))
    return stack


def proof_of(stack: UserStack, machine: str, **options: Any) -> Proof:
    proofs = prove(stack.template(), **{"most_states": FEW, **options})
    return next(one for one in proofs if one.machine.startswith(machine))


SOAK = pytest.mark.soak


@pytest.mark.parametrize(
    ("make", "machine"),
    [
        (of_workflow, "Training"),
        pytest.param(lambda: of_workflow(integration="poll"), "Training", marks=SOAK),
        pytest.param(lambda: of_workflow(retain_jobs=True), "Training", marks=SOAK),
        (queue, "Training"),
        pytest.param(pipeline, "Pipeline", marks=SOAK),
        pytest.param(sweep, "Sweep", marks=SOAK),
        pytest.param(lambda: sweep(tolerated_failure_count=1), "Sweep", marks=SOAK),
        (task, "Machine"),
    ],
    ids=["workflow", "polled", "retained", "queue", "pipeline", "sweep", "tolerant sweep", "guarded task"],
)
def test_no_job_runs_once_its_stack_is_deleted(make: Callable[[], UserStack], machine: str) -> None:
    assert "left-by-deletion" not in broken(proof_of(make(), machine))


def without(resource: str, template: dict[str, Any]) -> dict[str, Any]:
    mutant = deepcopy(template)
    custom = [name for name, one in mutant["Resources"].items() if one["Type"].startswith("Custom::SageMaker")]
    [name] = [one for one in custom if one.startswith(resource)]
    del mutant["Resources"][name]
    return mutant


@pytest.mark.parametrize(
    ("make", "resource"),
    [
        (of_workflow, "TrainingDeletion"),
        pytest.param(lambda: sweep(tolerated_failure_count=1), "SweepDeletion", marks=SOAK),
        (task, "TrainDeletion"),
    ],
)
def test_a_stack_without_what_stops_its_executions_leaves_a_job(make: Any, resource: str) -> None:
    template = without(f"{resource}", make().template())
    assert any("left-by-deletion" in broken(proof) for proof in prove(template, most_states=FEW))


def test_a_task_without_a_guard_leaves_its_job_when_its_stack_is_deleted() -> None:
    assert "left-by-deletion" in broken(proof_of(with_task(), "Machine"))


UPDATES: dict[str, tuple[Callable[[], UserStack], Callable[[], UserStack]]] = {
    "nothing": (of_workflow, of_workflow),
    "another prefix of names": (of_workflow, lambda: of_workflow(job_name_prefix="Other")),
    "polls, no more .sync": (of_workflow, lambda: of_workflow(integration="poll")),
    ".sync, no more polls": (lambda: of_workflow(integration="poll"), of_workflow),
    "another id": (of_workflow, lambda: of_workflow("Renamed")),
    "another workflow beside it": (of_workflow, pipeline),
    "jobs are retained": (of_workflow, lambda: of_workflow(retain_jobs=True)),
    "jobs are no longer retained": (lambda: of_workflow(retain_jobs=True), of_workflow),
    "retries": (of_workflow, lambda: of_workflow(retries=1)),
    "no retries": (lambda: of_workflow(retries=1), of_workflow),
    "a rule": (of_workflow, lambda: of_workflow(stop_when=[Silence()])),
    "into a queue": (lambda: queue(there=False, used=False), queue),
    "out of a queue": (queue, lambda: queue(used=False)),
    "out of a queue that goes": (queue, lambda: queue(there=False, used=False)),
    "a task's prefix": (task, lambda: task(job_name_prefix="Other")),
    "a guard for a task": (lambda: task(guarded=False), task),
}


# Those that every change waits for have two forms of the guard and of the name, and a queue that goes.
OFTEN = ("another id", "out of a queue that goes", "a guard for a task")


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in OFTEN else SOAK) for name in UPDATES])
def test_an_update_leaves_stops_and_doubles_no_job_of_an_execution_that_runs(name: str) -> None:
    before, after = (make().template() for make in UPDATES[name])
    [proof, *_] = prove(after, update_from=before, most_states=FEW)
    known = {"one-failed-call"} if "task" in name else set()
    assert broken(proof) == known


@pytest.mark.soak
def test_a_lost_event_after_an_update_of_a_prefix_of_ones_own_to_another_leaves_a_job() -> None:
    before, after = (of_workflow(job_name_prefix=name).template() for name in ("One", "Other"))
    [proof] = prove(after, update_from=before, most_states=20_000)
    assert broken(proof) == {"left-running"}
    [story] = [one.story for one in proof.violations]
    assert "lost event" in {step.fact for step in story}


def test_an_update_that_takes_a_guard_from_a_task_stops_the_execution_that_runs() -> None:
    [proof] = prove(task(guarded=False).template(), update_from=task().template(), faults=0)
    assert broken(proof) == {"stopped-by-update"}


def test_an_update_that_takes_the_guard_from_a_workflow_leaves_a_job() -> None:
    after = of_workflow().template()
    for name in [name for name, one in after["Resources"].items() if one["Type"] == "AWS::Events::Rule"]:
        del after["Resources"][name]
    [proof] = prove(after, update_from=of_workflow().template(), faults=1)
    assert broken(proof) == {"left-running"}


def test_an_update_that_takes_what_stops_jobs_from_a_workflow_that_stays_stops_the_execution_that_runs() -> None:
    after = without("TrainingDeletion", of_workflow().template())
    [proof] = prove(after, update_from=of_workflow().template(), faults=0)
    assert broken(proof) >= {"stopped-by-update"}
