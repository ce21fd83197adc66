"""What happens to executions and jobs when their stack is deleted or updated, each in two steps, as ``facts`` has it.

CloudFormation deletes what nothing depends on first, and in an update after all else. So the custom resources of this library
stop executions and their jobs, and then the state machines, their guards and their roles go. In between, executions that nothing
has stopped go on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from training_jobs.prove.evaluator import Ended
from training_jobs.prove.templates import App, Deletion

if TYPE_CHECKING:
    from training_jobs.prove.environment import Environment, Job, Move, Run, World


def deletion(environment: Environment, world: World) -> Iterator[Move]:
    """The next step of the stack's deletion: it begins while the execution runs, and ends at any time after."""
    from training_jobs.prove.environment import Move

    deletions = environment.app.deletions
    if world.stack in ("", "updated") and world.runs[0].running:
        text = "the stack is deleted: what stops jobs before their state machine is deleted does so"
        after = _stopped(environment, replace(world, stack="deleting", interrupted=True), deletions)
        yield Move(text, "stack deleted", "", after)
    elif world.stack == "deleting":
        after = _gone(world, environment.app.machines, deletions)
        after = replace(after, runs=tuple(run for run in after.runs if run.role != "guard"), events=())
        yield Move("CloudFormation has deleted the stack", "", "", replace(after, stack="deleted"))


def update(environment: Environment, world: World, after: App) -> Iterator[Move]:
    """The next step of the stack's update to another template: it begins while the execution runs."""
    from training_jobs.prove.environment import Move

    if not world.stack and world.runs[0].running:
        yield Move("the stack is updated", "stack updated", "", replace(world, stack="updating"))
    elif world.stack == "updating":
        before = environment.app
        gone = {name for name, of in before.names.items() if after.names.get(name) != of}
        deletions = {name: of for name, of in before.deletions.items() if name not in after.deletions or name in gone}
        cut = {run.machine for run in world.runs if run.running and run.machine in deletions.keys() - gone}
        stopped = _stopped(environment, replace(world, cut=world.cut or bool(cut)), deletions)
        cleaned = _gone(stopped, gone, deletions)
        jobs = tuple(_terminated(job, before, after) for job in cleaned.jobs)
        cleaned = replace(cleaned, jobs=jobs, stack="updated")
        yield Move("CloudFormation has deleted what the update removes", "", "", cleaned)


def merged(before: App, after: App) -> App:
    """What there is once an update has begun: all of the new template, and state machines of the old one that run."""
    machines = {**before.machines, **after.machines}
    gone = tuple(queue for queue in before.queues if queue not in after.queues)
    return replace(after, machines=machines, names={**after.names, **before.names}, gone_queues=gone)


def _stopped(environment: Environment, world: World, deletions: Mapping[str, Deletion]) -> World:
    """The world once the executions have ended, and their jobs, that custom resources stop: those of late calls too."""
    for machine, of in deletions.items():
        if of.retain:
            continue
        for run in [one for one in world.runs if one.machine == machine and one.running]:
            world = environment.stepped(world, run, Ended("ABORTED"))
        late = tuple(job for job in world.late if _is_of(environment, world, job, machine, of))
        world = replace(world, late=tuple(job for job in world.late if job not in late))
        for job in late:
            world = environment.created(world, job)
        jobs = (
            job._replace(status="Stopped")
            if job.status == "InProgress" and _is_of(environment, world, job, machine, of)
            else job
            for job in world.jobs
        )
        world = replace(world, jobs=tuple(jobs))
    return world


def _is_of(environment: Environment, world: World, job: Job, machine: str, of: Deletion) -> bool:
    """Whether a state machine's custom resource knows a job: by its name, or by the tag with its execution."""
    arns = [environment.arn(run.machine, run.id) for run in world.runs if run.machine == machine]
    if of.tagged:
        return job.name.startswith(f"{of.tagged}-") and any(json.dumps(arn) in job.tags for arn in arns)
    return any(hashlib.md5(arn.encode()).hexdigest() in job.name for arn in arns)


def _gone(world: World, machines: Collection[str], deletions: Mapping[str, Deletion]) -> World:
    """The world without state machines; jobs that are retained go on, and are nobody's to stop."""
    retained = {machine for machine, of in deletions.items() if of.retain}
    owners = {run.id for run in world.runs if run.machine in retained}

    def ended(run: Run) -> Run:
        if run.machine not in machines or not run.running:
            return run
        return replace(run, execution=replace(run.execution, status="ABORTED"), waits=())

    jobs = tuple(job for job in world.jobs if job.owner not in owners)
    late = tuple(job for job in world.late if job.owner not in owners)
    return replace(world, runs=tuple(map(ended, world.runs)), jobs=jobs, late=late)


def _terminated(job: Job, before: App, after: App) -> Job:
    """A job whose queue was deleted is terminated with it."""
    gone = job.queue in before.queues and job.queue not in after.queues
    return job._replace(status="Stopped") if gone and job.status == "InProgress" else job
