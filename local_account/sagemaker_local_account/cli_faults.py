"""`local-account break ...`: let something go wrong in the account that runs on the state folder."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from . import control
from .faults import (
    Capacity,
    Fault,
    FullDisk,
    Interruption,
    LateHost,
    LostHost,
    Quota,
    ScheduledPlan,
    SlowS3,
    Throttling,
)
from .state import AccountError, RunningAccount, running_account

app = typer.Typer(help="Let something go wrong; `mend` ends it.", no_args_is_help=True)

Times = Annotated[int | None, typer.Option(help="How often; until it is mended, unless said.")]
Once = Annotated[int, typer.Option(help="How often.")]
Job = Annotated[str, typer.Option(help="Only jobs with this in their names.")]
InstanceType = Annotated[str, typer.Argument(help="Like ml.p4d.24xlarge.")]
Host = Annotated[str, typer.Argument(help="Like algo-2.")]
At = Annotated[str | None, typer.Option(help="When a line matches this regular expression, like 'step 20 '.")]
Within = Annotated[float, typer.Option(help="Else at a moment drawn from the first seconds of training.")]
Seed = Annotated[int, typer.Option(help="With which that moment is drawn.")]


@app.command()
def capacity(context: typer.Context, instance_type: InstanceType, times: Times = None, job: Job = "") -> None:
    """No machine of a type is to be had: jobs fail with a CapacityError, or wait for it with max_pending."""
    _add(context, Capacity(instance_type, times=times, job=job))


@app.command("training-plan")
def training_plan(
    context: typer.Context,
    plan: Annotated[str, typer.Argument(help="Its ARN.")],
    job: Job = "",
) -> None:
    """A training plan has not started: its jobs stay Pending until this is mended."""
    _add(context, ScheduledPlan(plan, times=None, job=job))


@app.command()
def quota(
    context: typer.Context,
    instance_type: InstanceType,
    limit: Annotated[int, typer.Option(help="Machines of the type that may be used at a time.")] = 0,
    times: Times = None,
    job: Job = "",
) -> None:
    """CreateTrainingJob is refused with ResourceLimitExceeded beyond a number of machines."""
    _add(context, Quota(instance_type, limit, times=times, job=job))


@app.command()
def throttling(
    context: typer.Context,
    operation: Annotated[str, typer.Argument(help="Of SageMaker.")] = "CreateTrainingJob",
    times: Once = 1,
) -> None:
    """An operation is refused as called too often."""
    _add(context, Throttling(operation, times=times))


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
    """Spot machines are taken back from managed spot training jobs."""
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
    """A machine is lost, with all that runs on it."""
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
    context: typer.Context, name: Annotated[str, typer.Argument(help="As `faults` shows it; all unless said.")] = ""
) -> None:
    """Let a fault, or all of them, not happen any more."""
    account = _running(context)
    for each in [name] if name else control.ask(account, "ListFaults", {}):
        control.ask(account, "MendFault", {"name": each})


def faults(context: typer.Context) -> None:
    """What is still to go wrong."""
    for name, fault in control.ask(_running(context), "ListFaults", {}).items():
        said = ", ".join(f"{key} {value}" for key, value in fault.items() if key != "kind" and value not in (None, ""))
        print(f"{name}: {said}")


def _add(context: typer.Context, fault: Fault) -> None:
    members: dict[str, Any] = {"kind": type(fault).__name__, **dataclasses.asdict(fault)}
    print(control.ask(_running(context), "AddFault", members))


def _running(context: typer.Context) -> RunningAccount:
    state = context.find_root().obj.state
    running = running_account(state)
    if running is None:
        raise AccountError(f"no local account runs on the state folder {state}; start one, or say --state")
    return running
