"""`local-account break ...` and `advance`: faults and the clock of the account that runs on the state folder."""

from __future__ import annotations

import dataclasses
import re
from typing import Annotated, Any

import typer

from sagemaker_local_account import control_api
from sagemaker_local_account.cli_lifecycle import running_in
from sagemaker_local_account.core.state import AccountError, RunningAccount
from sagemaker_local_account.faults import (
    Capacity,
    Fault,
    FullDisk,
    Interruption,
    LateHost,
    LostAnswer,
    LostEvent,
    LostHost,
    NotCancelled,
    Quota,
    ScheduledPlan,
    SlowS3,
    Throttling,
)

app = typer.Typer(help="Inject a fault; `mend` removes it.", no_args_is_help=True)

Times = Annotated[int | None, typer.Option(help="How often; by default until it is mended.")]
Once = Annotated[int, typer.Option(help="How often.")]
Job = Annotated[str, typer.Option(help="Only jobs with this in their names.")]
InstanceType = Annotated[str, typer.Argument(help="Like ml.p4d.24xlarge.")]
Host = Annotated[str, typer.Argument(help="Like algo-2.")]
Operation = Annotated[str, typer.Argument(help="Of any service, like CreateTrainingJob or StartExecution.")]
Caller = Annotated[
    str,
    typer.Option(help="Only calls of those with this in their ARN, like assumed-role for what state machines call."),
]
At = Annotated[str | None, typer.Option(help="When a line matches this regular expression, like 'step 20 '.")]
Within = Annotated[float, typer.Option(help="Else at a random time in the first seconds of training.")]
Seed = Annotated[int, typer.Option(help="The seed of that random time.")]


@app.command()
def capacity(context: typer.Context, instance_type: InstanceType, times: Times = None, job: Job = "") -> None:
    """There is no capacity for an instance type: jobs fail with a CapacityError, or wait with max_pending."""
    _add(context, Capacity(instance_type, times=times, job=job))


@app.command("training-plan")
def training_plan(
    context: typer.Context,
    plan: Annotated[str, typer.Argument(help="Its ARN.")],
    job: Job = "",
) -> None:
    """A training plan has not started: its jobs are Pending until this is mended."""
    _add(context, ScheduledPlan(plan, times=None, job=job))


@app.command()
def quota(
    context: typer.Context,
    instance_type: InstanceType,
    limit: Annotated[int, typer.Option(help="Machines of the type that may be used at a time.")] = 0,
    in_use: Annotated[int, typer.Option(help="Machines of them that others than these jobs use.")] = 0,
    times: Times = None,
    job: Job = "",
) -> None:
    """CreateTrainingJob fails with ResourceLimitExceeded beyond a number of machines."""
    _add(context, Quota(instance_type, limit, in_use, times=times, job=job))


@app.command()
def throttling(
    context: typer.Context,
    operation: Operation = "CreateTrainingJob",
    times: Once = 1,
    caller: Caller = "",
) -> None:
    """An operation fails with ThrottlingException."""
    _add(context, Throttling(operation, caller, times=times))


@app.command("lost-answer")
def lost_answer(
    context: typer.Context,
    operation: Operation = "CreateTrainingJob",
    times: Once = 1,
    caller: Caller = "",
) -> None:
    """An operation succeeds, and its answer is lost."""
    _add(context, LostAnswer(operation, caller, times=times))


@app.command("not-cancelled")
def not_cancelled(context: typer.Context, times: Once = 1) -> None:
    """What an execution waits for is not stopped with it."""
    _add(context, NotCancelled(times=times))


@app.command("lost-event")
def lost_event(
    context: typer.Context,
    status: Annotated[str, typer.Argument(help="Of executions that end so, like ABORTED; by default any.")] = "",
    machine: Annotated[str, typer.Option(help="Only of state machines with this in their names.")] = "",
    times: Once = 1,
) -> None:
    """EventBridge does not deliver the event of an execution's end."""
    _add(context, LostEvent(status, machine, times=times))


@app.command()
def interruption(
    context: typer.Context,
    at: At = None,
    within: Within = 0,
    seed: Seed = 0,
    away: Annotated[float, typer.Option(help="Seconds until there are machines again.")] = 0,
    times: Once = 1,
    job: Job = "",
) -> None:
    """Managed spot training jobs are interrupted."""
    _add(context, Interruption(at, within, seed, away, times=times, job=job))


@app.command("lost-host")
def lost_host(
    context: typer.Context,
    host: Host,
    at: At = None,
    within: Within = 0,
    seed: Seed = 0,
    times: Once = 1,
    job: Job = "",
) -> None:
    """A machine fails, with all its processes."""
    _add(context, LostHost(at, within, seed, host, times=times, job=job))


@app.command("late-host")
def late_host(
    context: typer.Context,
    host: Host,
    seconds: Annotated[float, typer.Argument(help="After the others.")],
    times: Once = 1,
    job: Job = "",
) -> None:
    """A host's container starts late."""
    _add(context, LateHost(host, seconds, times=times, job=job))


@app.command("full-disk")
def full_disk(
    context: typer.Context,
    host: Host,
    mebibytes: Annotated[int, typer.Argument(help="What fits under /opt/ml.")],
    times: Once = 1,
    job: Job = "",
) -> None:
    """A host's volume is small."""
    _add(context, FullDisk(host, mebibytes, times=times, job=job))


@app.command("slow-s3")
def slow_s3(
    context: typer.Context,
    bytes_per_second: Annotated[float, typer.Option(help="0: as fast as it can.")] = 0,
    latency: Annotated[float, typer.Option(help="Seconds before each answer.")] = 0,
    times: Times = None,
) -> None:
    """S3 answers slowly."""
    _add(context, SlowS3(bytes_per_second, latency, times=times))


def mend(
    context: typer.Context, name: Annotated[str, typer.Argument(help="As printed by `faults`; by default all.")] = ""
) -> None:
    """Remove a fault, or all faults."""
    account = _running(context)
    for fault in [name] if name else control_api.call_operation(account, "ListFaults", {}):
        control_api.call_operation(account, "MendFault", {"name": fault})


def faults(context: typer.Context) -> None:
    """List the injected faults."""
    for name, fault in control_api.call_operation(_running(context), "ListFaults", {}).items():
        values = ", ".join(
            f"{key} {value}" for key, value in fault.items() if key != "kind" and value not in (None, "")
        )
        print(f"{name}: {values}")


def advance(context: typer.Context, time: Annotated[str, typer.Argument(help="Like 90s, 20m, 6h or 2d.")]) -> None:
    """Advance the account's clock: waits of state machines, and limits of jobs, pass at once."""
    parsed = re.fullmatch(r"(\d+)([smhd])", time)
    if parsed is None:
        raise AccountError(f"the time must be a number and s, m, h or d, like 20m, got {time!r}")
    seconds = int(parsed[1]) * {"s": 1, "m": 60, "h": 3_600, "d": 86_400}[parsed[2]]
    print(control_api.call_operation(_running(context), "AdvanceClock", {"seconds": seconds}))


def _add(context: typer.Context, fault: Fault) -> None:
    members: dict[str, Any] = {"kind": type(fault).__name__, **dataclasses.asdict(fault)}
    print(control_api.call_operation(_running(context), "AddFault", members))


def _running(context: typer.Context) -> RunningAccount:
    return running_in(context)[1]
