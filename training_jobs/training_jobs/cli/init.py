"""The command ``init``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from training_jobs.cli.adopt import AccountNumber, PythonOfSdk, Sdk, adopted_job, adopted_script
from training_jobs.cli.context import AsJson
from training_jobs.cli.output import print_json


def init(
    context: typer.Context,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="script (one of your own to begin with), data-parallel, heterogeneous, compiled, model-parallel, "
            "huggingface or resnet-tensorflow; none with --from-script, --from-job and --from-sdk.",
        ),
    ] = "",
    directory: Annotated[str, typer.Argument(metavar="DIRECTORY", help="The app's folder, by default this one.")] = "",
    from_script: Annotated[
        Path | None, typer.Option(metavar="SCRIPT.py", help="A stack that runs this training script as it is.")
    ] = None,
    from_job: Annotated[
        str | None, typer.Option(metavar="JOB_NAME", help="The stack that `adopt JOB_NAME` prints.")
    ] = None,
    from_sdk: Annotated[
        Path | None, typer.Option(metavar="SCRIPT.py", help="The stack that `adopt --sdk SCRIPT.py` prints.")
    ] = None,
    account_number: AccountNumber = "123456789012",
    python: PythonOfSdk = sys.executable,
    as_json: AsJson = False,
) -> None:
    """Write a deployable app of a kind into DIRECTORY: app.py, cdk.json, the training code, and data to try it with."""
    from training_jobs.cli.apps import write_adopted, write_app
    from training_jobs.cli.doctor import tools
    from training_jobs.cli.script_apps import write_first_script, write_script_app

    adopts = from_job is not None or from_sdk is not None
    sources = [one for one in (from_script, from_job, from_sdk) if one is not None]
    if len(sources) > 1 or (sources and directory):
        raise typer.BadParameter(
            "--from-script, --from-job and --from-sdk take a DIRECTORY only, like `init --from-job digits my_app`"
        )
    folder = Path((kind if sources else directory) or ".")
    try:
        if from_job is not None:
            written = write_adopted(adopted_job(context, from_job).source, folder)
        elif from_sdk is not None:
            script = Sdk(from_sdk, account=account_number, python=python)
            written = write_adopted(adopted_script(context, script, folder).source, folder)
        elif from_script is not None:
            written = write_script_app(from_script, folder)
        elif kind == "script":
            written = write_first_script(folder)
        else:
            written = write_app(kind or "data-parallel", folder)
    except (ValueError, FileExistsError) as error:
        raise typer.BadParameter(str(error)) from error
    if as_json:
        print_json([str(path) for path in written])
    else:
        for path in written:
            typer.echo(path)
    for name, ok, detail in tools():
        if not ok:
            typer.echo(f"training-jobs: {name}: {detail}", err=True)
    if as_json:
        return
    within = "" if folder.resolve() == Path.cwd() else f"`cd {folder}`, then "
    then = "`cdk deploy`, and" if adopts else "`training-jobs local up`, and"
    typer.echo(f"\nNext: {within}{then} `training-jobs start --follow`; see README.md")
