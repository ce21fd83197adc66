"""The commands ``start``, ``dry-run`` and ``resume``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from training_jobs.cli.context import AsJson, Target, complete_workflow, connect
from training_jobs.cli.output import print_json

if TYPE_CHECKING:
    from training_jobs.client.account import Account
    from training_jobs.client.executions import Execution
    from training_jobs.client.workflows import Workflow

WorkflowName = Annotated[
    str | None,
    typer.Argument(
        metavar="WORKFLOW",
        help="Its construct path, like Digits/Training; by default the only one.",
        show_default=False,
        autocompletion=complete_workflow,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A member of the execution's input, which the stack reads by sfn.JsonPath; dots lead into objects.",
    ),
]
Input = Annotated[Path | None, typer.Option("--input", help="A JSON file with the execution's input.")]
Name = Annotated[str | None, typer.Option(help="The execution's name; by default a random one.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Watch it to its end; the exit code is that of the job.")]


def start(
    context: typer.Context,
    workflow: WorkflowName = None,
    set: Set = None,
    input: Input = None,
    name: Name = None,
    follow: Follow = False,
    as_json: AsJson = False,
) -> None:
    """Start a workflow."""
    account = connect(context)
    found = account.workflow(workflow)
    execution = found.start(execution_input(input, set, found), name=name)
    _started(account, execution, follow=follow, as_json=as_json)


def resume(
    context: typer.Context,
    name: Target = None,
    set: Set = None,
    follow: Follow = False,
    as_json: AsJson = False,
) -> None:
    """Start a workflow again from the checkpoints of an older execution, with that one's input."""
    from training_jobs.client.errors import TrainingError
    from training_jobs.client.jobs import Job
    from training_jobs.client.names import find
    from training_jobs.client.planned_request import value_at
    from training_jobs.client.workflows import set_at

    account = connect(context)
    found = find(account, name)
    arn = found.execution_arn() if isinstance(found, Job) else found.arn
    if arn is None:
        raise TrainingError(f"{found.name} was not started by a workflow, so there is nothing to resume")
    older = account.execution(arn)
    workflow = _workflow_of(account, older)
    path = workflow.resume_path()
    if path is None:
        raise TrainingError(
            f"{workflow.path} does not take resume_from of the input: deploy it with checkpoints=S3Prefix(...) and "
            "resume_from=sfn.JsonPath.string_at('$.resume_from')"
        )
    input = older.input()
    # An execution that resumed another one wrote its checkpoints there.
    set_at(input, path, value_at(input, path) or older.name)
    _apply(input, set, workflow)
    _started(account, workflow.start(input), follow=follow, as_json=as_json)


def dry_run(
    context: typer.Context,
    workflow: WorkflowName = None,
    set: Set = None,
    input: Input = None,
    name: Name = None,
    price: Annotated[
        list[str] | None, typer.Option(metavar="TYPE=DOLLARS", help="Dollars an hour of a machine.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print what the next start would send: the request of each job, and its machines' time at most.

    Alternatives are printed too; the time is that of the first choice.
    """
    from training_jobs.cli.cost_text import cost_json, cost_line, prices_of
    from training_jobs.client.cost import machine_times

    account = connect(context)
    found = account.workflow(workflow)
    chosen, complete = found.prepare(execution_input(input, set, found), name)
    requests = found.planned_requests(complete, name=chosen)
    runs = found.planned_requests(complete, name=chosen, alternatives=False)
    times = [time for request in runs for time in machine_times(request)]
    prices = prices_of(price)
    if as_json:
        print_json({"workflow": found.path, "input": complete, "requests": requests, "cost": cost_json(times, prices)})
        return
    for request in requests:
        print_json(request)
    typer.echo(
        f"workflow  {found.path}\ninput     {json.dumps(complete)}\nat most   {cost_line(times, prices, at_most=True)}"
    )


def execution_input(file: Path | None, members: list[str] | None, workflow: Workflow | None = None) -> dict[str, Any]:
    """Return the input of an execution.

    Args:
        file: A JSON file with an object.
        members: ``KEY=VALUE`` each, which go before the file's. A value that is JSON is taken as such, else as text.
        workflow: The workflow, which has to read each of the members.

    Raises:
        BadParameter: The file holds no object, or a member no ``=``, or the workflow does not read it.
    """
    input: Any = {}
    if file is not None:
        try:
            input = json.loads(file.read_text())
        except (OSError, ValueError) as error:
            raise typer.BadParameter(f"{file} cannot be read as JSON: {error}", param_hint="--input") from error
        if not isinstance(input, dict):
            raise typer.BadParameter(f"{file} must hold an object, like {{}}", param_hint="--input")
    _apply(input, members, workflow)
    return dict(input)


def _apply(input: dict[str, Any], members: list[str] | None, workflow: Workflow | None) -> None:
    from training_jobs.client.workflows import set_at

    for member in members or []:
        key, separator, text = member.partition("=")
        if not key or not separator:
            raise typer.BadParameter(f"must be KEY=VALUE, like epochs=3, got {member!r}", param_hint="--set")
        if workflow is not None and not workflow.reads(key):
            taken = ", ".join(workflow.input_paths()) or "nothing"
            raise typer.BadParameter(f"{workflow.path} takes {taken} of the input, got {member!r}", param_hint="--set")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        set_at(input, key, value)


def _workflow_of(account: Account, execution: Execution) -> Workflow:
    arn = execution.arn.replace(":execution:", ":stateMachine:").rpartition(":")[0]
    return next((it for it in account.workflows() if it.arn == arn), account.workflow(arn))


def _started(account: Account, execution: Execution, *, follow: bool, as_json: bool) -> None:
    if as_json:
        print_json({"execution": execution.arn, "name": execution.name})
    else:
        typer.echo(f"started {execution.name}; watch it with `training-jobs watch {execution.name}`")
    if follow:
        from training_jobs.cli.watch import watch_to_the_end

        raise typer.Exit(watch_to_the_end(account, execution.name, execution=execution, as_json=as_json))
