"""Explores every order of what may happen, breadth first, so that the first story of a violation is a shortest one."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training_jobs.prove import functions
from training_jobs.prove.environment import Environment, Move, World
from training_jobs.prove.properties import PROPERTIES, broken, failed_well
from training_jobs.prove.templates import read
from training_jobs.prove.values import UnsupportedError

MOST_STATES = 400_000


@dataclass(frozen=True)
class Step:
    """A line of a story: what happens, and the fact and the API behind it, empty where nothing is out of the ordinary."""

    text: str
    fact: str
    api: str


@dataclass(frozen=True)
class Violation:
    """A property that does not hold of a state machine, and the shortest story that shows it.

    ``machine`` is its logical id, which is part of its name too unless the template has a ``name``.
    """

    machine: str
    name: str
    property: str
    story: tuple[Step, ...]

    def __str__(self) -> str:
        """The property and the story, a line a step."""
        lines = [f"{self.machine}: {self.property}: not always: {PROPERTIES[self.property]}"]
        return "\n".join([*lines, *(f"  {at}. {one.text}" for at, one in enumerate(self.story, 1))])


@dataclass
class Proof:
    """What exploring one state machine showed.

    Attributes:
        machine: Its logical id.
        faults: How many faults each execution may meet.
        states: How many different states were reached.
        complete: False where the search ended at its bound.
        jobs: The most jobs that one execution started.
        instance_hours: The longest that their instances together can be billed; None where a request does not say.
        seconds: Of the search.
        checkpoints: The places to which jobs write them.
        errors: With which an execution failed whose jobs were well.
        violations: The first of each property.
    """

    machine: str
    faults: int
    states: int = 0
    complete: bool = True
    jobs: int = 0
    instance_hours: float | None = 0.0
    seconds: float = 0.0
    checkpoints: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)


def prove(
    template: Path | Mapping[str, Any],
    *,
    faults: int = 1,
    given: Any = None,
    most_states: int = MOST_STATES,
    items: Sequence[Any] | None = None,
    update_from: Path | Mapping[str, Any] | None = None,
) -> list[Proof]:
    """Explore all executions of each state machine that starts training jobs.

    Args:
        template: A synthesized template, a file of one, or a folder of ``cdk synth``.
        faults: How many faults each execution may meet.
        given: The executions' input. Default: ``{}``, or a row where a sweep starts them.
        most_states: Where each search ends, which is then not complete.
        items: What each ItemReader of a Distributed Map reads. Default: two rows, of a sweep of this library.
        update_from: The template that is deployed: executions of its state machines are explored, while ``template`` updates the
            stack, in place of the template's own. Default: none.

    Raises:
        UnsupportedError: There is no such state machine, or it uses what the model does not know, which the message names.
    """
    app = read(template)
    if update_from is not None:
        before = read(update_from)
        updated = Environment(before, after=app, items=items)
        return [_updated(updated, machine, faults, given, most_states) for machine in before.starters]
    environment = Environment(app, items=items)
    deleted = Environment(app, items=items, interrupts="deleted")
    proofs: list[Proof] = []
    for machine in app.starters:
        value = functions.input_of(machine, app.machines) if given is None else given
        without = explore(environment, machine, 0, value, most_states)
        proof = explore(environment, machine, faults, value, most_states, without.errors) if faults else without
        _add(proof, explore(deleted, machine, faults, value, most_states, without.errors))
        proofs.append(proof)
        if without.checkpoints:
            another = explore(environment, machine, 0, value, most_states, id="another")
            others = {"another of its own": another}
            others |= {f"one of {one.machine} with the same name": one for one in proofs[:-1]}
            proof.violations += _shared(environment, without, others)
    return proofs


def _updated(environment: Environment, machine: str, faults: int, given: Any, most_states: int) -> Proof:
    """The search of a state machine's executions during an update."""
    value = functions.input_of(machine, environment.app.machines) if given is None else given
    without = explore(environment, machine, 0, value, most_states)
    return explore(environment, machine, faults, value, most_states, without.errors) if faults else without


def _add(proof: Proof, other: Proof) -> None:
    """Add another search of the same state machine to a proof, with the violations of properties that have none."""
    known = {one.property for one in proof.violations}
    proof.states += other.states
    proof.seconds += other.seconds
    proof.complete &= other.complete
    proof.violations += [one for one in other.violations if one.property not in known]


def _shared(environment: Environment, proof: Proof, others: Mapping[str, Proof]) -> list[Violation]:
    """The first place that an execution shares with one of others, in words, as a violation."""
    for words, other in others.items():
        for place in proof.checkpoints:
            if place in other.checkpoints:
                step = Step(f"an execution, and {words}, write their checkpoints to {place}", "", "")
                return [Violation(proof.machine, _named(environment, proof.machine), "shared-place", (step,))]
    return []


def _named(environment: Environment, machine: str) -> str:
    name = environment.app.names[machine]
    return machine if "{" in name else name


def explore(
    environment: Environment,
    machine: str,
    faults: int,
    given: Any,
    most_states: int,
    on_purpose: Collection[str] = (),
    *,
    id: str = "workflow",
) -> Proof:
    """Explore all executions of one state machine; ``on_purpose`` is as of ``broken``, ``id`` the execution's name.

    Raises:
        UnsupportedError: None of them starts a job, so that nothing would be proved.
    """
    began = time.monotonic()
    proof = Proof(machine, faults)
    named, places = _named(environment, machine), set[str]()
    first = environment.begin(machine, given, faults, id)
    numbers = {_hash(first.key): 0}
    came: list[tuple[int, Step | None]] = [(-1, None)]
    before: list[list[int]] = [[]]
    waiting, ends, found = deque([(0, first)]), [], set[str]()
    while waiting:
        number, world = waiting.popleft()
        proof.jobs = max(proof.jobs, len(world.jobs))
        proof.instance_hours = _most_hours(proof.instance_hours, world)
        places.update(job.checkpoints for job in world.jobs if job.checkpoints)
        over = world.quiet or not world.runs[0].running
        swept = over and any(True for _ in environment.sweeps(world))
        # What the deployed template does before it is updated is not the update's.
        counts = world.stack or not environment.updates
        names = list(broken(world, on_purpose, swept=swept)) if counts else []
        error = failed_well(world)
        if error is not None and error not in proof.errors:
            proof.errors.append(error)
        for name in names:
            if name not in found:
                found.add(name)
                proof.violations.append(Violation(machine, named, name, _story(came, number)))
        if names or (world.quiet and not swept):
            ends.append(number)
            continue
        for move in environment.moves(world):
            key = _hash(move.world.key)
            if key not in numbers:
                if len(numbers) >= most_states:
                    proof.complete = False
                    continue
                numbers[key] = len(came)
                came.append((number, Step(move.text, move.fact, move.api)))
                before.append([])
                waiting.append((numbers[key], move.world))
            if _by_itself(move):
                before[numbers[key]].append(number)
    if proof.jobs == 0 and proof.complete:
        of = first.runs[0].execution
        why = f": {of.error}: {of.cause}" if of.error else ""
        raise UnsupportedError(
            f"an execution of {machine} must start a job with the input {given!r}, which none does{why}"
        )
    proof.states, proof.seconds, proof.checkpoints = len(came), time.monotonic() - began, sorted(places)
    stuck = _without_end(before, ends) if proof.complete else None
    if stuck is not None:
        proof.violations.append(Violation(machine, named, "no-end", _story(came, stuck)))
    return proof


def _most_hours(hours: float | None, world: World) -> float | None:
    seconds = [job.seconds for job in world.jobs]
    known = [one for one in seconds if one is not None]
    return None if hours is None or len(known) < len(seconds) else max(hours, sum(known) / 3_600)


def _by_itself(move: Move) -> bool:
    """Whether a move needs neither a person nor a fault."""
    return move.fact in ("", "job ends", "late", "sync waits", "event arrives", "schedule")


def _without_end(before: list[list[int]], ends: list[int]) -> int | None:
    """The first state from which no end is reached without a person."""
    reached, waiting = set(ends), list(ends)
    while waiting:
        for number in before[waiting.pop()]:
            if number not in reached:
                reached.add(number)
                waiting.append(number)
    return next((number for number in range(len(before)) if number not in reached), None)


def _story(came: list[tuple[int, Step | None]], number: int) -> tuple[Step, ...]:
    steps = []
    while number >= 0:
        number, step = came[number]
        if step is not None:
            steps.append(step)
    return tuple(reversed(steps))


def _hash(key: str) -> bytes:
    return hashlib.blake2b(key.encode(), digest_size=16).digest()
