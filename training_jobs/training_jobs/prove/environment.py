"""What may happen next around executions, as ``facts`` has it: calls, jobs, events, timers and people, one move at a time."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from training_jobs.prove import deployment, functions
from training_jobs.prove.evaluator import (
    Address,
    Answered,
    Call,
    Elapsed,
    Ended,
    Event,
    Execution,
    Failed,
    Position,
    Timer,
    start,
    step,
    wants,
)
from training_jobs.prove.templates import App, machine_of, readers, request_of, tasks
from training_jobs.prove.values import Scope, UnsupportedError

ONCE = {"throttled", "lost answer", "late"}  # the faults of one call
# The status of a service job by that of its training job.
_SERVICE = {"InProgress": "RUNNING", "Completed": "SUCCEEDED", "Failed": "FAILED", "Stopped": "FAILED"}
_A_DAY = 86_400  # without MaxRuntimeInSeconds (API, StoppingCondition)
LATEST = 60  # seconds: a call that takes effect late does so before (facts, "late")
_REFUSED = "The request was rejected because the training job is in status Completed"
_MISSING = "Requested resource not found."
# Calls whose answer tells nothing of jobs, with the answer.
_OTHERS: Mapping[str, Any] = {
    "sns:publish": {"MessageId": "message"},
    "aws-sdk:cloudwatch:putMetricData": {},
    "aws-sdk:sns:publish": {"MessageId": "message"},
    "events:putEvents": {"Entries": [{"EventId": "event"}], "FailedEntryCount": 0},
    "sqs:sendMessage": {"MessageId": "message"},
    "aws-sdk:s3:putObject": {"ETag": "etag"},
    "aws-sdk:sagemaker:createModelPackage": {"ModelPackageArn": "arn:model-package/1"},
}
_NOW = "2026-01-01T00:00:00Z"
_READS = ("listObjectsV2", "describeExecution", "listTrainingJobs", "listTags")
_SAGEMAKER = ("createTrainingJob", "describeTrainingJob", "stopTrainingJob")
_BATCH = ("submitServiceJob", "describeServiceJob", "listServiceJobs", "terminateServiceJob")
_CREATES = ("createTrainingJob", "submitServiceJob")
_BY_BATCH = "AWSBatch"  # begins the name of a service job's training job
Effect = tuple[str, "Event | None", "World", tuple[tuple[Address, str, str, str], ...]]


class Job(NamedTuple):
    """A training job: its name, its status as DescribeTrainingJob has it, what created it and where, and its tags as JSON.

    With ``service`` it is a service job of AWS Batch, together with its training job. ``seconds`` are those for which its
    instances together can be billed, None where its request does not say, ``checkpoints`` where it writes them, ``image`` its
    image, ``metrics`` the names that it has definitions of, ``logged`` the last value of each, None where it logged none, and
    ``queue`` the logical id of a service job's queue.
    """

    name: str
    status: str
    owner: str
    at: Address
    tags: str
    service: bool = False
    seconds: int | None = None
    checkpoints: str = ""
    image: str = ""
    metrics: tuple[str, ...] = ()
    logged: float | None = 1.0
    queue: str = ""


@dataclass(frozen=True)
class Run:
    """An execution in the account.

    Attributes:
        id: The name of the execution, which no other has.
        machine: Logical id of its state machine.
        role: "workflow" of the one that is explored, "child" of those it starts, "guard" of those that rules start.
        execution: As the evaluator has it.
        waits: What its calls with .sync wait for: the position's address, its state, and the name of a job or an execution.
        parent: ARN of the execution that started it and waits for it; empty where none does.
    """

    id: str
    machine: str
    role: str
    execution: Execution
    waits: tuple[tuple[Address, str, str, str], ...] = ()
    parent: str = ""

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.execution.status == "RUNNING"

    @cached_property
    def key(self) -> str:
        """What distinguishes it from others, as text."""
        return f"{self.id}{self.waits}{self.execution.key}"


@dataclass(frozen=True)
class World:
    """All that may still act: executions, jobs, late effects, events on their way, and the faults that are left."""

    runs: tuple[Run, ...]
    jobs: tuple[Job, ...] = ()
    late: tuple[Job, ...] = ()
    events: tuple[tuple[str, str], ...] = ()  # the state machine that it starts, and its input as JSON
    started: int = 0
    faults: int = 0
    spent: tuple[str, ...] = ()
    interrupted: bool = False
    stopped_well: bool = False
    alarm: bool = False
    told: bool = False  # a rule of the user's has told to stop a job
    cut: bool = False  # an update has stopped an execution whose state machine stays
    stack: str = ""  # "deleting" or "updating" once CloudFormation has begun to, then "deleted" or "updated"

    @property
    def key(self) -> str:
        """What distinguishes it from others, as text."""
        # Of which kind the faults were matters to a property where there was one alone.
        spent = len(self.spent) == 1 and self.spent[0] in ONCE
        of = (self.jobs, self.late, self.events, self.started, self.faults, spent, self.interrupted)
        return repr((*of, self.stopped_well, self.alarm, self.told, self.cut, self.stack)) + "".join(
            run.key for run in self.runs
        )

    @property
    def quiet(self) -> bool:
        """Whether nothing but jobs goes on."""
        return self.stack not in ("deleting", "updating") and not (
            self.late or self.events or any(run.running for run in self.runs)
        )


class Move(NamedTuple):
    """What happens, in plain words, the fact and the API behind it, and the world after it."""

    text: str
    fact: str
    api: str
    world: World


class Environment:
    """What AWS and people may do to the executions of an app.

    Args:
        app: State machines and rules.
        interrupts: How the workflow is interrupted: "ended" by a person or its time-out, its stack is "deleted", or "either".
        after: To what its stack is updated meanwhile, and then it may be ended. Default: it is not.
        items: What each ItemReader reads. Default: two rows, of a sweep of this library.
    """

    def __init__(
        self, app: App, *, interrupts: str = "ended", after: App | None = None, items: Sequence[Any] | None = None
    ) -> None:
        """Refuse, by name, calls whose effect is not known."""
        self.app, self.interrupts, self._target = app, interrupts, after
        merged = None if after is None else deployment.merged(app, after)
        self._updated = None if merged is None else Environment(merged, interrupts="either", items=items)
        self._steps: dict[tuple[str, ...], Execution] = {}
        self._reads_metrics = any("FinalMetricDataList" in repr(one) for one in app.machines.values())
        self._items: dict[str, Sequence[Any]] = {}
        for machine in {*app.starters, *app.sweeps, *(guard.target for guard in app.guards)}:
            for name, state in tasks(app.machines[machine]):
                self._check(machine, name, state)
            for name in readers(app.machines[machine]):
                found = items if items is not None else functions.rows(app.machines[machine])
                if found is None:
                    rule = "must be given, in JSON, like --items '[1, 2]'"
                    raise UnsupportedError(f"{machine}: the items that the state {name!r} reads {rule}")
                self._items[machine] = found

    def _check(self, machine: str, name: str, state: Mapping[str, Any]) -> None:
        api, request = _api(state["Resource"]), request_of(state)
        known = api in _OTHERS or api.rpartition(":")[2] in (*_SAGEMAKER, *_BATCH, *_READS, "stopExecution")
        known = known or (api == "lambda:invoke" and functions.is_known(request.get("Payload", {})))
        if api.endswith(":startExecution"):
            target = machine_of(request.get("StateMachineArn"))
            if target not in self.app.machines:
                raise UnsupportedError(
                    f"{machine}: the state {name!r} must start a state machine of the app, got {target!r}"
                )
            known = True
        if not known:
            raise UnsupportedError(
                f"{machine}: the state {name!r} must make a call that the model knows, got {state['Resource']!r}"
            )

    def begin(self, machine: str, given: Any, faults: int, id: str = "workflow") -> World:
        """The world once an execution of a state machine has been started, by its name."""
        run = self._run(id, machine, "workflow", given)
        return self._settled(World((run,), faults=faults), run)

    def _run(self, id: str, machine: str, role: str, given: Any) -> Run:
        context = {
            "Execution": {
                "Id": self.arn(machine, id),
                "Name": id,
                "Input": given,
                "RedriveCount": 0,
                "StartTime": _NOW,
            },
            "StateMachine": {"Id": f"{{{machine}}}", "Name": machine},
        }
        key = (machine, id, role, repr(given))
        if key not in self._steps:
            self._steps[key] = start(self.app.machines[machine], given, context)
        return Run(id, machine, role, self._steps[key])

    def arn(self, machine: str, id: str) -> str:
        """The ARN of an execution."""
        return f"arn:aws:states:us-east-1:123456789012:execution:{self.app.names[machine]}:{id}"

    def _at(self, run: Run, address: Address) -> str:
        """The ARN of the execution that is at a position: of a Distributed Map's item that of its own."""
        arn, position = self.arn(run.machine, run.id), run.execution.top
        for number in address:
            position = position.children[number]
        return f"{arn.rpartition(':')[0]}/{position.child}" if position.child else arn

    def _goes_on(self, world: World, arn: str) -> bool:
        """Whether the execution of an ARN runs; of a Distributed Map's item, whether the item does."""
        if "/" in arn.partition(":execution:")[2]:
            return self._of_item(world, arn) is not None
        return any(run.running and run.id == arn.rpartition(":")[2] for run in world.runs)

    def _of_item(self, world: World, arn: str) -> tuple[Run, Any] | None:
        """The execution whose Distributed Map runs the item of an ARN, and the item's input."""
        machine, _, item = arn.partition(":execution:")[2].partition("/")
        for run in world.runs:
            if run.running and self.app.names[run.machine] == machine and item in (items := _items(run.execution.top)):
                return run, items[item]
        return None

    def _belongs(self, world: World, run: Run) -> bool:
        """Whether what started an execution and waits for it goes on, and what started that, and so on."""
        if not run.parent:
            return True
        item = self._of_item(world, run.parent)
        of = item[0] if item else next((one for one in world.runs if self.arn(one.machine, one.id) == run.parent), None)
        return self._goes_on(world, run.parent) and (of is None or self._belongs(world, of))

    @property
    def updates(self) -> bool:
        """Whether the stack is updated meanwhile."""
        return self._target is not None

    def moves(self, world: World) -> Iterator[Move]:
        """All that may happen next."""
        if self._target is not None:
            yield from deployment.update(self, world, self._target)
        yield from (self._updated if self._updated is not None and world.stack else self)._moves(world)

    def _moves(self, world: World) -> Iterator[Move]:
        for run in world.runs:
            if run.running:
                for want in wants(run.execution):
                    yield from (
                        self._timer(world, run, want) if isinstance(want, Timer) else self._call(world, run, want)
                    )
        if self.interrupts in ("deleted", "either") and world.stack != "updating":
            yield from deployment.deletion(self, world)
        if self.interrupts in ("ended", "either") and self._target is None:
            yield from self._interruptions(world)
        for job in world.jobs:
            if job.status == "InProgress":
                for status, ended in self._ends(job):
                    yield Move(f"the job {_short(job.name)} ends: {status}", "job ends", "", _with(world, ended))
        for job in world.late:
            rest = replace(world, late=tuple(one for one in world.late if one != job))
            yield Move(
                f"the late call takes effect: the job {_short(job.name)} starts", "late", "", self.created(rest, job)
            )
        yield from self._events(world)
        yield from self.sweeps(world)

    def _ends(self, job: Job) -> Iterator[tuple[str, Job]]:
        """The ends of a job, in words and as it is then; values of its metrics differ where a definition reads them."""
        yield "Completed", (completed := job._replace(status="Completed"))
        yield "Failed", job._replace(status="Failed")
        if self._reads_metrics and job.metrics:
            yield "Completed, each of its metrics 0", completed._replace(logged=0.0)
            yield "Completed, without its metrics", completed._replace(logged=None)

    def sweeps(self, world: World) -> Iterator[Move]:
        """What the state machines that schedules start would stop now.

        Each runs at once and meets no fault: it changes nothing but jobs of executions that have ended, which stay ended, and
        executions whose parent has; one that fails is followed by another.
        """
        if self._updated is not None and world.stack:
            yield from self._updated.sweeps(world)
            return
        if world.stack == "deleted" or not any(job.status == "InProgress" for job in world.jobs):
            return
        for machine in self.app.sweeps:
            run, after = self._run("sweep", machine, "guard", {}), world
            while run.running:
                want = wants(run.execution)[0]
                event: Event | None = Elapsed(want.at)
                if isinstance(want, Call):
                    operation = _api(want.resource).rpartition(":")[2]
                    _, event, after, _ = next(self._effects(after, run, want, operation))
                assert event is not None
                run = self._next(run, event)
            stopped = [one for one, now in zip(world.jobs, after.jobs, strict=True) if one.status != now.status]
            going = {one.id for one in after.runs if one.running}
            cut = [one for one in world.runs if one.running and one.id not in going]
            if stopped or cut:
                runs = {one.id: one for one in world.runs if one.running}
                own = {id for id, one in runs.items() if self._belongs(world, one)}
                well = any(job.owner in own for job in stopped) or any(one.id in own for one in cut)
                names = ", ".join([*(one.id for one in cut), *(_short(job.name) for job in stopped)])
                after = replace(after, stopped_well=world.stopped_well or well)
                yield Move(f"a schedule starts {machine}, which stops {names}", "schedule", "", after)

    def _timer(self, world: World, run: Run, timer: Timer) -> Iterator[Move]:
        if world.late and not (timer.seconds is not None and timer.seconds < LATEST):
            return
        what = "retries" if timer.retries else "has waited in"
        yield Move(f"{_who(run)} {what} {timer.state}", "", "", self.stepped(world, run, Elapsed(timer.at)))

    def _call(self, world: World, run: Run, call: Call) -> Iterator[Move]:
        held = next((one for one in run.waits if one[0] == call.at), None)
        if held is not None:
            answers = self._token_answers if held[2] == "token" else self._sync_answers
            yield from answers(world, run, call, held)
            return
        api = _api(call.resource)
        operation = api.rpartition(":")[2]
        service = _service(api)
        where = f"{_who(run)}, {call.state}: {operation[0].upper()}{operation[1:]}"
        for text, event, after, waits in self._effects(world, run, call, operation):
            if "waitForTaskToken" in call.resource and isinstance(event, Answered):
                event, waits = None, ((call.at, call.state, "token", ""),)
            done = self.stepped(after, replace(run, waits=(*run.waits, *waits)), event)
            yield Move(f"{where} {text}", "", operation, done)
            if event is None or isinstance(event, Answered):
                yield from self._lost(world, run, call, where, after, f"{service}.SdkClientException", operation)
        if world.faults:
            refused = self._throttling(api, service)
            once, lasting = (
                Failed(call.at, refused, "Rate exceeded"),
                Failed(call.at, refused, "Rate exceeded", lasting=True),
            )
            yield Move(
                f"{where} is throttled", "throttled", operation, self.stepped(_spent(world, "throttled"), run, once)
            )
            if call.tries == 0:
                outage = _spent(world, "outage")
                yield Move(
                    f"{where} fails for as long as its retriers last",
                    "outage",
                    operation,
                    self.stepped(outage, run, lasting),
                )
            if operation in _CREATES:
                after = _spent(world, "late")
                after = replace(after, late=(*after.late, _new_job(call, run)))
                failed = Failed(call.at, f"{service}.SdkClientException", "timed out")
                yield Move(
                    f"{where} fails, and will take effect late", "late", operation, self.stepped(after, run, failed)
                )

    def _lost(
        self, world: World, run: Run, call: Call, where: str, after: World, error: str, operation: str
    ) -> Iterator[Move]:
        if world.faults and operation in (*_CREATES, "stopTrainingJob", "terminateServiceJob", "startExecution"):
            spent = _spent(after, "lost answer")
            failed = Failed(call.at, error, "Unable to execute HTTP request: Read timed out")
            text = f"{where} takes effect, and its answer is lost"
            yield Move(text, "lost answer", operation, self.stepped(spent, run, failed))

    @staticmethod
    def _throttling(api: str, service: str) -> str:
        if api == "s3:getObject":  # of an ItemReader
            return "States.ItemReaderFailed"
        optimised = not api.startswith("aws-sdk:")
        names = {
            "SageMaker": "SageMaker.AmazonSageMakerException",
            "StepFunctions": "StepFunctions.AWSStepFunctionsException",
            "Lambda": "Lambda.TooManyRequestsException",
        }
        return names[service] if optimised and service in names else f"{service}.{service}Exception"

    def _effects(self, world: World, run: Run, call: Call, operation: str) -> Iterator[Effect]:
        """What a call does without a fault: words, the event, the world, and what it then waits for."""
        if operation in _BATCH:
            if operation == "submitServiceJob" and self._is_gone(world, _queue(call)):
                yield "finds no such queue", Failed(call.at, "Batch.ClientException", "no such queue"), world, ()
            else:
                yield from _of_batch(world, run, call, operation)
            return
        job = _found(world, _name(call)) if operation in _SAGEMAKER else None
        error = "SageMaker.SageMakerException"
        if operation == "createTrainingJob":
            if job is not None:
                taken = "Training job names must be unique within an AWS account and region"
                yield (
                    "fails, since the name is in use",
                    Failed(call.at, "SageMaker.ResourceInUseException", taken),
                    world,
                    (),
                )
                return
            after = _with(world, _new_job(call, run))
            if ".sync" in call.resource:
                yield "starts a job and waits for it", None, after, ((call.at, call.state, "job", _name(call)),)
            else:
                yield "starts a job", Answered(call.at, {"TrainingJobArn": f"arn:{_name(call)}"}), after, ()
        elif operation == "describeTrainingJob":
            found = Failed(call.at, error, _MISSING) if job is None else Answered(call.at, _described(job))
            yield f"says {job.status if job else 'that there is no such job'}", found, world, ()
        elif operation == "stopTrainingJob":
            if job is None:
                yield "finds no such job", Failed(call.at, error, _MISSING), world, ()
            elif job.status != "InProgress":
                yield "finds that the job has ended", Failed(call.at, error, _REFUSED), world, ()
            else:
                yield "stops the job", Answered(call.at, {}), _stopped(world, run, job), ()
        elif operation == "listTrainingJobs":
            asked = call.parameters
            created = [one for one in world.jobs if not one.service]
            jobs = [one for one in created if one.status == asked.get("StatusEquals", one.status)]
            listed = [one for one in jobs if asked.get("NameContains", "") in one.name]
            summaries = [{"TrainingJobName": one.name, "TrainingJobArn": f"arn:{one.name}"} for one in listed]
            yield f"lists {len(listed)} jobs", Answered(call.at, {"TrainingJobSummaries": summaries}), world, ()
        elif operation == "invoke":
            for answer in functions.answers(call.parameters["Payload"]):
                told = replace(world, told=world.told or answer.tells)
                yield answer.text, Answered(call.at, {"Payload": answer.payload}), told, ()
        elif operation == "getObject":
            yield f"reads {len(self._items[run.machine])} items", Answered(call.at, self._items[run.machine]), world, ()
        elif operation == "listTags":
            tags = next(one.tags for one in world.jobs if f"arn:{one.name}" == call.parameters["ResourceArn"])
            yield "lists the tags", Answered(call.at, {"Tags": json.loads(tags)}), world, ()
        elif operation == "listObjectsV2":
            yield "finds the model", Answered(call.at, {"KeyCount": 1}), world, ()
            yield "finds no model", Answered(call.at, {"KeyCount": 0}), world, ()
        elif operation == "describeExecution":
            id = call.parameters["ExecutionArn"].rpartition(":")[2]
            of = next((one.execution for one in world.runs if one.id == id), None)
            ended = "SUCCEEDED" if of is None else of.status
            status = "RUNNING" if self._goes_on(world, call.parameters["ExecutionArn"]) else ended
            described = {"Status": status, "ExecutionArn": call.parameters["ExecutionArn"]}
            whole = "IncludedData" not in call.parameters
            if whole and (item := self._of_item(world, call.parameters["ExecutionArn"])):
                described["Input"] = json.dumps(item[1])
            if whole and of is not None:
                described["Input"] = json.dumps(of.context["Execution"]["Input"])
                ends = {
                    "SUCCEEDED": {"Output": json.dumps(of.top.data)},
                    "FAILED": {"Error": of.error, "Cause": of.cause},
                }
                described |= ends.get(status, {})
            yield f"says {status}", Answered(call.at, described), world, ()
        elif operation == "stopExecution":
            id = call.parameters["ExecutionArn"].rpartition(":")[2]
            stopped = next(one for one in world.runs if one.id == id)
            after = self.stepped(world, stopped, Ended("ABORTED")) if stopped.running else world
            yield f"stops {id}", Answered(call.at, {"StopDate": _NOW}), after, ()
        elif operation == "startExecution":
            yield self._child(world, run, call)
        else:
            yield "succeeds", Answered(call.at, _OTHERS[_api(call.resource)]), world, ()

    def _child(self, world: World, run: Run, call: Call) -> Effect:
        machine = machine_of(call.parameters["StateMachineArn"])
        of = world.runs[0].id
        child_id = f"child-{world.started + 1}" if of == "workflow" else f"child-{world.started + 1}-of-{of}"
        id = str(call.parameters.get("Name", child_id))
        existing = next((one for one in world.runs if one.id == id), None)
        if existing is not None and existing.machine != machine:
            raise UnsupportedError(
                f"executions of {machine} and {existing.machine} must have different names, got {id!r}"
            )
        after = world
        if existing is None:
            given = call.parameters.get("Input", {})
            child = self._run(id, machine, "child", json.loads(given) if isinstance(given, str) else given)
            child = replace(child, parent=self._at(run, call.at) if ".sync" in call.resource else "")
            after = replace(world, runs=(*world.runs, child), started=world.started + 1)
            after = self._settled(after, child)
        elif not existing.running:
            return (
                "finds the name taken",
                Failed(call.at, "StepFunctions.ExecutionAlreadyExistsException", id),
                world,
                (),
            )
        if ".sync" in call.resource:
            return f"starts {id}", None, after, ((call.at, call.state, "execution", id),)
        return f"starts {id}", Answered(call.at, {"ExecutionArn": self.arn(machine, id)}), after, ()

    def _sync_answers(self, world: World, run: Run, call: Call, held: tuple[Address, str, str, str]) -> Iterator[Move]:
        """The answer of a call with .sync, once what it waits for has ended."""
        event: Event | None = None
        if held[2] == "job":
            job = next(one for one in world.jobs if one.name == held[3])
            if job.status == "Completed":
                event = Answered(call.at, _described(job))
            elif job.status != "InProgress":
                event = Failed(call.at, "States.TaskFailed", json.dumps(_described(job)))
        else:
            child = next(one for one in world.runs if one.id == held[3])
            ended = child.execution
            if ended.status == "SUCCEEDED":
                output = ended.top.data if ":2" in call.resource else json.dumps(ended.top.data)
                event = Answered(
                    call.at,
                    {
                        "ExecutionArn": self.arn(child.machine, child.id),
                        "Output": output,
                        "Status": "SUCCEEDED",
                    },
                )
            elif not child.running:
                cause = json.dumps({"Error": ended.error, "Cause": ended.cause, "Status": ended.status})
                event = Failed(call.at, "States.TaskFailed", cause)
        if event is not None:
            after = replace(run, waits=tuple(one for one in run.waits if one != held))
            text = f"{_who(run)}, {call.state}: .sync answers that {_short(held[3])} has ended"
            yield Move(text, "sync waits", "", self.stepped(world, after, event))

    def _token_answers(self, world: World, run: Run, call: Call, held: tuple[Address, str, str, str]) -> Iterator[Move]:
        """The answer of who has the token of a task, who may refuse with each error that the state has a Catch for."""
        after = replace(run, waits=tuple(one for one in run.waits if one != held))
        state = dict(tasks(self.app.machines[run.machine]))[call.state]
        caught = [error for one in state.get("Catch", []) for error in one["ErrorEquals"]]
        refusals = [error for error in caught if not error.startswith("States.")] or ["TaskRefused"]
        where = f"{_who(run)}, {call.state}"
        yield Move(f"{where}: its token is answered", "token", "", self.stepped(world, after, Answered(call.at, {})))
        for error in refusals:
            refused = Failed(call.at, error, "refused")
            yield Move(f"{where}: its token is answered with {error}", "token", "", self.stepped(world, after, refused))
        if "TimeoutSeconds" in state or "TimeoutSecondsPath" in state:
            late = Failed(call.at, "States.Timeout", "not answered in time")
            yield Move(f"{where}: its token is not answered in time", "", "", self.stepped(world, after, late))

    def created(self, world: World, job: Job) -> World:
        """The world once a job was created, unless its name is in use or its queue is gone."""
        return world if self._is_gone(world, job.queue) else _with(world, job)

    def _is_gone(self, world: World, queue: str) -> bool:
        return world.stack == "updated" and queue in self.app.gone_queues

    def stepped(self, world: World, run: Run, event: Event | None) -> World:
        """The world after an event in one of its executions."""
        return self._settled(world, run if event is None else self._next(run, event))

    def _next(self, run: Run, event: Event) -> Run:
        """The run after an event, which it meets beside many states of the rest of the world."""
        key = (run.machine, run.id, run.execution.key, repr(event))
        if key not in self._steps:
            self._steps[key] = step(run.execution, event)
        return replace(run, execution=self._steps[key])

    def _settled(self, world: World, run: Run, *, cancels: bool = True) -> World:
        """The world with one execution as it is now: its ended waits are cancelled, and its end is an event."""
        dropped = []
        if run.waits:
            at = {(want.at, want.state) for want in wants(run.execution)}
            dropped = [one for one in run.waits if one[:2] not in at]
            run = replace(run, waits=tuple(one for one in run.waits if one not in dropped))
        world = replace(world, runs=tuple(run if one.id == run.id else one for one in world.runs))
        for _, _, kind, name in dropped if cancels else []:
            if kind == "job":
                job = next(one for one in world.jobs if one.name == name)
                world = _with(world, job._replace(status="Stopped")) if job.status == "InProgress" else world
            elif kind == "execution":
                child = next(one for one in world.runs if one.id == name)
                if child.running:
                    world = self.stepped(world, child, Ended("ABORTED"))
        return world if run.running else self._ended(world, run)

    def _ended(self, world: World, run: Run) -> World:
        of = run.execution
        detail = {
            "executionArn": self.arn(run.machine, run.id),
            "stateMachineArn": f"arn:aws:states:us-east-1:123456789012:stateMachine:{self.app.names[run.machine]}",
            "name": run.id,
            "status": of.status,
            "error": of.error or None,
            "cause": of.cause or None,
        }
        for guard in self.app.guards:
            if run.machine in guard.watched and of.status in guard.statuses:
                given = Scope({"source": "aws.states", "detail": detail}, {}, {}).found(guard.input_path)
                world = replace(world, events=(*world.events, (guard.target, json.dumps(given))))
        if run.role == "guard":
            world = replace(world, runs=tuple(one for one in world.runs if one.id != run.id))
            return replace(world, alarm=world.alarm or of.status != "SUCCEEDED")
        return world

    def _interruptions(self, world: World) -> Iterator[Move]:
        run = world.runs[0]
        if world.interrupted or not run.running:
            return
        ways = [("a person stops the execution", "person stops", "ABORTED")]
        if "TimeoutSeconds" in run.execution.definition:
            ways.append(("the execution times out", "times out", "TIMED_OUT"))
        waiting = {one[0] for one in run.waits}
        calls = [want for want in wants(run.execution) if isinstance(want, Call) and want.at not in waiting]
        creates = [want for want in calls if _api(want.resource).rpartition(":")[2] in _CREATES]
        for text, fact, status in ways:
            after = self._next(run, Ended(status))
            base = replace(world, interrupted=True)
            yield Move(text, fact, "", self._settled(base, after))
            for want in creates:
                late = replace(base, late=(*base.late, _new_job(want, run)))
                yield Move(f"{text} while {want.state} is on its way", "in flight", "", self._settled(late, after))
            if any(kind != "token" for _, _, kind, _ in run.waits) and world.faults:
                uncancelled = self._settled(_spent(base, "not cancelled"), after, cancels=False)
                yield Move(
                    f"{text}, and Step Functions does not cancel what it waits for", "not cancelled", "", uncancelled
                )

    def _events(self, world: World) -> Iterator[Move]:
        for index, (target, given) in enumerate(world.events):
            rest = replace(world, events=(*world.events[:index], *world.events[index + 1 :]))
            yield Move(f"EventBridge starts {target}", "event arrives", "", self._guarded(rest, target, given))
            if world.faults:
                lost = "EventBridge does not deliver the event of the execution's end"
                yield Move(lost, "lost event", "", _spent(rest, "lost event"))
                twice = self._guarded(self._guarded(_spent(rest, "event twice"), target, given), target, given)
                yield Move(f"EventBridge starts {target} twice", "event twice", "", twice)

    def _guarded(self, world: World, machine: str, given: str) -> World:
        number = next(one for one in range(len(world.runs) + 1) if all(run.id != f"guard-{one}" for run in world.runs))
        run = self._run(f"guard-{number}", machine, "guard", json.loads(given))
        return self._settled(replace(world, runs=(*world.runs, run)), run)


def _items(position: Position) -> dict[str, Any]:
    """The inputs of the items that run at a position and below, by what their ARNs end with."""
    found = {position.child: position.given} if position.child and not position.done else {}
    for one in position.children:
        found |= _items(one)
    return found


def _new_job(call: Call, run: Run) -> Job:
    tags = json.dumps(call.parameters.get("Tags", {} if "JobName" in call.parameters else []))
    service = "TrainingJobName" not in call.parameters
    request = json.loads(call.parameters["ServiceRequestPayload"]) if service else call.parameters
    checkpoints = str(request.get("CheckpointConfig", {}).get("S3Uri", ""))
    algorithm = request.get("AlgorithmSpecification", {})
    metrics = tuple(one["Name"] for one in algorithm.get("MetricDefinitions", []))
    image = str(algorithm.get("TrainingImage", ""))
    job = Job(_name(call), "InProgress", run.id, call.at, tags, service, _longest(request), checkpoints)
    return job._replace(image=image, metrics=metrics, queue=_queue(call))


def _queue(call: Call) -> str:
    """The logical id of the queue of a service job; empty where the call has none."""
    return machine_of(call.parameters.get("JobQueue", "")).partition(".")[0]


def _longest(request: Mapping[str, Any]) -> int | None:
    """The seconds for which the instances of a job run at most, together; None where the request does not say."""
    seconds = request.get("StoppingCondition", {}).get("MaxRuntimeInSeconds", _A_DAY)
    config = request.get("ResourceConfig", {})
    counts = [group.get("InstanceCount") for group in config.get("InstanceGroups", [config])]
    if not all(isinstance(one, int) for one in (seconds, *counts)):
        return None
    return int(seconds) * int(sum(counts))


def _found(world: World, name: str) -> Job | None:
    """The job of a training job's name, which of a service job's is one that Batch has made."""
    by_batch = name.startswith(_BY_BATCH)
    name = name.removeprefix(_BY_BATCH)
    return next((one for one in world.jobs if one.name == name and one.service == by_batch), None)


def _stopped(world: World, run: Run, job: Job) -> World:
    well = run.role != "guard" and not world.interrupted and bool(world.spent) and not world.told
    return replace(_with(world, job._replace(status="Stopped")), stopped_well=world.stopped_well or well)


def _of_batch(world: World, run: Run, call: Call, operation: str) -> Iterator[Effect]:
    """What a call of AWS Batch does without a fault."""
    jobs = [one for one in world.jobs if one.service]
    if operation == "submitServiceJob":
        if any(one.name == _name(call) for one in jobs):
            refused = Failed(call.at, "Batch.ClientException", "a service job was submitted with the client token")
            yield "fails, since its token is in use", refused, world, ()
            return
        answer = Answered(call.at, {"JobId": _name(call), "JobName": _name(call)})
        yield "submits a job", answer, _with(world, _new_job(call, run)), ()
    elif operation == "listServiceJobs":
        if "Filters" in call.parameters:
            [pattern] = call.parameters["Filters"][0]["Values"]
            listed = [one for one in jobs if fnmatch.fnmatchcase(one.name, pattern)]
        else:
            status = call.parameters.get("JobStatus", "RUNNING")
            listed = [one for one in jobs if _SERVICE[one.status] == status]
        summaries = [{"JobId": one.name, "JobName": one.name, "Status": _SERVICE[one.status]} for one in listed]
        yield f"lists {len(listed)} jobs", Answered(call.at, {"JobSummaryList": summaries}), world, ()
    else:
        job = next((one for one in jobs if one.name == call.parameters["JobId"]), None)
        if job is None:
            yield "finds no such job", Failed(call.at, "Batch.ClientException", "no such job"), world, ()
        elif operation == "terminateServiceJob":
            after = _stopped(world, run, job) if job.status == "InProgress" else world
            yield "terminates the job", Answered(call.at, {}), after, ()
        else:
            terminated = {"IsTerminated": True} if job.status == "Stopped" else {}
            tags = {"Tags": json.loads(job.tags)}
            said = {"JobId": job.name, "Status": _SERVICE[job.status], "StatusReason": job.status, **terminated, **tags}
            arn = {"LatestAttempt": {"ServiceResourceId": {"Value": f"arn:training-job/{_BY_BATCH}{job.name}"}}}
            yield f"says {_SERVICE[job.status]}", Answered(call.at, {**said, **arn}), world, ()
            if job.status in ("Failed", "Stopped"):
                yield f"says {_SERVICE[job.status]}, before a machine", Answered(call.at, said), world, ()


def _with(world: World, job: Job) -> World:
    """The world with a job as it is now; a job whose name is in use is not created."""
    existing = next((one for one in world.jobs if one.name == job.name), None)
    if existing is None:
        return replace(world, jobs=(*world.jobs, job))
    if job.status == "InProgress":
        return world
    return replace(world, jobs=tuple(job if one.name == job.name else one for one in world.jobs))


def _spent(world: World, fact: str) -> World:
    return replace(world, faults=world.faults - 1, spent=(*world.spent, fact))


def _described(job: Job) -> dict[str, Any]:
    status = "Training" if job.status == "InProgress" else job.status
    described = {
        "TrainingJobName": job.name,
        "TrainingJobArn": f"arn:{job.name}",
        "TrainingJobStatus": job.status,
        "SecondaryStatus": status,
        "AlgorithmSpecification": {"TrainingImage": job.image},
        "ModelArtifacts": {"S3ModelArtifacts": f"s3://bucket/{job.name}/output/model.tar.gz"},
        "FinalMetricDataList": [
            {"MetricName": name, "Value": job.logged, "Timestamp": _NOW}
            for name in job.metrics
            if job.logged is not None
        ],
    }
    return {**described, "FailureReason": "AlgorithmError: exit code 1"} if job.status == "Failed" else described


def _api(resource: str) -> str:
    """`aws-sdk:sagemaker:createTrainingJob` of a state's Resource."""
    return resource.partition(":states:::")[2].partition(".")[0]


def _service(api: str) -> str:
    names = {
        "sagemaker": "SageMaker",
        "s3": "S3",
        "sfn": "Sfn",
        "states": "StepFunctions",
        "sns": "Sns",
        "cloudwatch": "CloudWatch",
    }
    name = api.split(":")[-2]
    return names.get(name, name.capitalize())


def _name(call: Call) -> str:
    return str(call.parameters.get("TrainingJobName", call.parameters.get("JobName")))


def _who(run: Run) -> str:
    return (
        "the execution" if run.role == "workflow" else f"the {'guard' if run.role == 'guard' else 'execution'} {run.id}"
    )


def _short(name: str) -> str:
    return name if len(name) < 40 else f"{name[:16]}...{name[-4:]}"
