"""What must hold of every execution, each by the name that docs and errors use."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from training_jobs.prove.environment import ONCE, World

MOST_JOBS = 20  # of one execution: more are counted as retries without a bound

PROPERTIES: Mapping[str, str] = {
    "left-running": "no job runs once its execution and its guards have ended",
    "left-by-deletion": "no job runs once its stack has been deleted, unless it is retained",
    "stopped-by-update": "an update that keeps a state machine stops none of its executions",
    "two-at-once": "one state of an execution never has two jobs that run at once",
    "false-success": "an execution that succeeded has a last job that completed",
    "stopped-well": "no call that fails has the execution stop a job that is well",
    "one-failed-call": "no single failed call ends an execution",
    "outlives": "no execution that it started outlives it with a job that runs",
    "shared-place": "two executions never write their checkpoints to one place",
    "unbounded": f"an execution starts at most {MOST_JOBS} jobs",
    "lost-cause": "an execution that failed names its error",
    "no-end": "an end is reachable from everywhere without a person",
}


def failed_well(world: World) -> str | None:
    """The error of an execution that failed although nobody interfered and each of its jobs runs or completed."""
    of = world.runs[0].execution
    well = not world.interrupted and all(job.status in ("InProgress", "Completed") for job in world.jobs)
    return of.error or "" if of.status == "FAILED" and well else None


def broken(world: World, on_purpose: Collection[str] = (), *, swept: bool = False) -> Iterator[str]:
    """The names of the properties that a world breaks, but for "no-end", which is one of all worlds together.

    Args:
        world: The world.
        on_purpose: The errors with which an execution fails without a fault whose jobs are well, such as one of a missing model.
        swept: Whether a schedule stops what runs.
    """
    workflow = world.runs[0]
    of = workflow.execution
    running = [job for job in world.jobs if job.status == "InProgress"]
    if running and world.stack == "deleted":
        yield "left-by-deletion"
        return
    settled = world.stack in ("", "updated")
    if running and world.quiet and not swept and settled:
        yield "left-running"
    if len({(job.owner, job.at) for job in running}) < len(running):
        yield "two-at-once"
    own = [job for job in world.jobs if job.owner == workflow.id]
    if of.status == "SUCCEEDED" and own and own[-1].status != "Completed":
        yield "false-success"
    if world.stopped_well:
        yield "stopped-well"
    if world.cut:
        yield "stopped-by-update"
    error = failed_well(world)
    if error is not None and error not in on_purpose and len(world.spent) == 1 and set(world.spent) <= ONCE:
        yield "one-failed-call"
    guarded = world.events or any(run.running and run.role == "guard" for run in world.runs)
    if (
        running
        and not workflow.running
        and not (guarded or swept)
        and settled
        and any(run.running and run.role == "child" for run in world.runs)
    ):
        yield "outlives"
    if len(own) > MOST_JOBS:
        yield "unbounded"
    if of.status == "FAILED" and not of.error:
        yield "lost-cause"
