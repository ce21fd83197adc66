"""The commands ``adopt``, with what ``init`` shares with it, and ``export``."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from training_jobs.cli.context import AsJson, Options, connect
from training_jobs.cli.output import print_json
from training_jobs.cli.start import Input, Name, Set, WorkflowName, execution_input

if TYPE_CHECKING:
    from training_jobs.adopt import Adopted

AccountNumber = Annotated[
    str, typer.Option(help="With a script: the number of its account, as in the name of its default bucket.")
]
PythonOfSdk = Annotated[
    str, typer.Option(help="With a script: the Python that has the SDK, if not this one.", show_default=False)
]


@dataclass(frozen=True)
class Sdk:
    """A script of SageMaker's SDK, and how it is run.

    Attributes:
        script: The script.
        arguments: Its arguments.
        account: The number of its account.
        python: The Python that has the SDK.
    """

    script: Path
    arguments: tuple[str, ...] = ()
    account: str = "123456789012"
    python: str = sys.executable


def adopt(
    context: typer.Context,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="JOB_NAME", help="A job; with --sdk the script's arguments.")
    ] = None,
    sdk: Annotated[
        Path | None, typer.Option(metavar="SCRIPT.py", help="A script of SageMaker's SDK; it runs without a network.")
    ] = None,
    account_number: AccountNumber = "123456789012",
    python: PythonOfSdk = sys.executable,
    as_json: AsJson = False,
) -> None:
    """Print the Python of a stack whose workflow sends the request of a job, of any tool, or of a script of SageMaker's SDK."""
    given = tuple(arguments or ())
    if sdk is None and len(given) != 1:
        raise typer.BadParameter("name one job, like `training-jobs adopt digits-2026-01-31`, or --sdk SCRIPT.py")
    adopted = (
        adopted_job(context, given[0])
        if sdk is None
        else adopted_script(context, Sdk(sdk, given, account_number, python))
    )
    if as_json:
        print_json({"source": adopted.source, "differences": [asdict(it) for it in adopted.differences]})
        return
    typer.echo(adopted.source, nl=False)
    say_differences(adopted)


def export(
    context: typer.Context,
    workflow: WorkflowName = None,
    set: Set = None,
    input: Input = None,
    name: Name = None,
    form: Annotated[
        Literal["sdk", "request", "definition"],
        typer.Option(
            "--as",
            help="The call of SageMaker's Python SDK; the request as JSON, for other SDKs and the AWS CLI; "
            "or the state machine's definition in the Amazon States Language.",
        ),
    ] = "sdk",
    as_json: AsJson = False,
) -> None:
    """Print what the next start would do, for other tools: a call of SageMaker's SDK, the request, or the state machine."""
    from training_jobs.adopt.export import own_request, sdk_call

    account = connect(context)
    found = account.workflow(workflow)
    if form == "definition":
        print_json(found.definition())
        return
    shape = account.client("sagemaker").meta.service_model.operation_model("CreateTrainingJob").input_shape
    requests = found.planned_requests(execution_input(input, set, found), name=name, alternatives=False)
    begins = found.path.rpartition("/")[2].lower()
    if form == "request":
        names = [begins] if len(requests) == 1 else [f"{begins}-{number}" for number in range(1, len(requests) + 1)]
        own = [own_request(request, begins) for request, begins in zip(requests, names, strict=True)]
        print_json(own[0] if len(own) == 1 else own)
        return
    calls = [sdk_call(request, shape, begins) for request in requests]
    if as_json:
        print_json([{"request": request, "source": call} for request, call in zip(requests, calls, strict=True)])
        return
    for call in calls:
        typer.echo(call)


def adopted_job(context: typer.Context, name: str) -> Adopted:
    """Return the stack of a job.

    Args:
        context: The command's context.
        name: The job's name, or its ARN.

    Raises:
        TrainingError: There is no such job, or no stack for it.
    """
    from training_jobs.adopt import adopted_stack
    from training_jobs.adopt.from_job import request_of_job, subnets_of
    from training_jobs.client.errors import TrainingError

    account = connect(context)
    request = request_of_job(account, name.rpartition("/")[2])
    try:
        return adopted_stack(request, region=account.region, subnets=subnets_of(account, request))
    except ValueError as error:
        raise TrainingError(f"{name} cannot be adopted: {error}") from error


def adopted_script(context: typer.Context, sdk: Sdk, beside: Path | None = None) -> Adopted:
    """Return the stack of what a script would send.

    Args:
        context: The command's context.
        sdk: The script.
        beside: The folder in which the stack runs; None for the working directory.

    Raises:
        TrainingError: The script starts no job, or there is no stack for it.
    """
    from training_jobs.adopt import adopted_stack
    from training_jobs.adopt.from_sdk import request_of_script
    from training_jobs.client.errors import TrainingError

    options: Options = context.find_root().obj or Options()
    caught = request_of_script(sdk.script, sdk.arguments, account=sdk.account, region=options.region, python=sdk.python)
    try:
        return adopted_stack(
            caught.request, region=caught.region, uploads=caught.uploads, source_code=caught.source, beside=beside
        )
    except ValueError as error:
        raise TrainingError(f"{sdk.script} cannot be adopted: {error}") from error


def say_differences(adopted: Adopted) -> None:
    """Say on stderr how many members differ.

    Args:
        adopted: The stack.
    """
    count = len(adopted.differences)
    typer.echo(
        f"training-jobs: {count} members of the request differ, as the comments above TrainingWorkflow say", err=True
    )
