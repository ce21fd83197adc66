"""The command ``prove``: every execution of an app's state machines, explored instead of sampled."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from training_jobs.cli.context import AsJson
from training_jobs.cli.errors import JOB_FAILED
from training_jobs.cli.output import print_json

if TYPE_CHECKING:
    from training_jobs.prove.explorer import Proof


def prove(
    path: Annotated[Path, typer.Argument(help="A folder of `cdk synth`, or a template.")] = Path("cdk.out"),
    faults: Annotated[int, typer.Option(min=0, max=3, help="How many faults an execution may meet.")] = 1,
    given: Annotated[
        str | None, typer.Option("--input", help="The executions' input, in JSON. Default: {}, or a sweep's row.")
    ] = None,
    items: Annotated[
        str | None, typer.Option(help="What an ItemReader reads, in JSON. Default: two rows, of a sweep.")
    ] = None,
    update_from: Annotated[
        Path | None,
        typer.Option(help="The app that is deployed: explore its executions while PATH updates it."),
    ] = None,
    most_states: Annotated[int, typer.Option(min=1, help="Where each search ends, and says so.")] = 400_000,
    replay: Annotated[
        int | None, typer.Option(min=1, help="Print the commands that replay this violation in the local account.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Explore all executions of each state machine that starts training jobs; exit code 1 if a property does not always hold.

    Nothing is run and nothing is called: the state machines of the template are evaluated beside a model of what AWS may do.
    """
    import json

    from training_jobs.prove.explorer import prove as explored

    def parsed(option: str, text: str, example: str) -> Any:
        try:
            return json.loads(text)
        except ValueError:
            raise typer.BadParameter(f"must be JSON, like '{example}', got {text!r}", param_hint=option) from None

    read = None if items is None else parsed("--items", items, "[1, 2]")
    if read is not None and not isinstance(read, list):
        raise typer.BadParameter(f"must be an array, like '[1, 2]', got {items!r}", param_hint="--items")
    value = None if given is None else parsed("--input", given, "{}")
    proofs = explored(path, faults=faults, given=value, most_states=most_states, items=read, update_from=update_from)
    violations = [one for proof in proofs for one in proof.violations]
    if replay is not None:
        from training_jobs.prove.replay import commands

        if replay > len(violations):
            raise typer.BadParameter(f"must be at most {len(violations)}, got {replay}", param_hint="--replay")
        for line in commands(violations[replay - 1]):
            typer.echo(line)
        return
    if as_json:
        print_json([asdict(proof) for proof in proofs])
    else:
        for proof in proofs:
            typer.echo(_summary(proof))
        for at, violation in enumerate(violations, 1):
            typer.echo(f"\n[{at}] {violation}")
    if violations:
        raise typer.Exit(JOB_FAILED)


def _summary(proof: Proof) -> str:
    faults = "1 fault" if proof.faults == 1 else f"{proof.faults} faults"
    jobs = "1 job" if proof.jobs == 1 else f"{proof.jobs} jobs"
    hours = "unknown" if proof.instance_hours is None else f"{proof.instance_hours:,.0f}"
    searched = f"{proof.states:,} states, {proof.seconds:.1f} s; at most {jobs} of an execution, {hours} instance-hours"
    bound = "" if proof.complete else "; NOT COMPLETE: the search ended at its bound"
    broken = ", ".join(sorted({one.property for one in proof.violations})) or "every property holds"
    return f"{proof.machine}, {faults}: {broken} ({searched}{bound})"
