"""The command ``training-jobs``: starts, shows and ends training jobs, in AWS and in the local account.

It imports little, so that ``--help`` and the shell's completion take no longer than Python's own start; each command imports what
it needs.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from training_jobs.cli import adopt, check, fits, init, lint, local, measure, show, start, stop, watch
from training_jobs.cli.context import SCRIPT_SETTINGS, Options
from training_jobs.cli.diagnose import diagnose
from training_jobs.cli.doctor import doctor
from training_jobs.cli.errors import INTERRUPTED, REFUSED, USAGE, one_line
from training_jobs.cli.plan import plan
from training_jobs.cli.prove import prove
from training_jobs.cli.report import report
from training_jobs.cli.ssh import ssh
from training_jobs.cli.values import Command

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # half of the time that --help takes
    help="Start, watch and stop SageMaker training jobs of TrainingWorkflow, in AWS and in the local account.\n\n"
    "Exit codes: 0 success, 1 the job failed or was stopped, 2 wrong use, 3 a call to AWS failed, 130 Ctrl-C; the job goes on.",
)
app.command("init", short_help="Write a deployable app: stack, training code, data.")(init.init)
app.command("adopt", short_help="Print the stack of a job or of a script of the SDK.")(adopt.adopt)
app.command("export", short_help="Print the SDK's call of the job that starts next.")(adopt.export)
app.command("start", short_help="Start a workflow.")(start.start)
app.command("watch", short_help="Show a job live: states, hosts, metrics, cost, log.")(watch.watch)
app.command("logs", short_help="Print the log lines of all hosts, by time.")(show.logs)
app.command("list", short_help="List jobs, the newest first, or workflows.")(show.list_jobs)
app.command("describe", short_help="Describe a job.")(show.describe)
app.command("stop", short_help="Stop a job, and print where its last checkpoint is.")(stop.stop)
app.command("resume", short_help="Go on from the checkpoints of an older execution.")(start.resume)
app.command("download", short_help="Download the model, or the checkpoints.")(stop.download)
app.command("cost", short_help="Print machines' time so far and at most, and dollars.")(show.cost)
app.command("dry-run", short_help="Print the request that the next start sends.")(start.dry_run)
app.command(
    "measure", short_help="Measure steps and batches of a script on this machine.", context_settings=SCRIPT_SETTINGS
)(measure.measure)
app.command(
    "check",
    short_help="Run a script here, interrupt it, and compare what it does.",
    context_settings=SCRIPT_SETTINGS,
)(check.check)
app.command("plan", short_help="Predict time and cost of configurations of machines.")(plan)
app.command("ssh", short_help="Open a shell on a host of a running job.")(ssh)
app.command("fits", short_help="Predict whether a model fits the memory of GPUs.", context_settings=fits.SETTINGS)(
    fits.fits
)
app.command("lint", short_help="Find mistakes in training scripts.")(lint.lint)
app.command("prove", short_help="Explore every execution of an app's state machines.")(prove)
app.command("diagnose", short_help="Find what bounds a job, and what to change.")(diagnose)
app.command("open", short_help="Print links to a job in AWS's console.")(show.open_links)
app.command("report", short_help="Write a job, or two side by side, as one HTML page.")(report)
app.command("doctor", short_help="Check what a deployment and a job need.")(doctor)
app.command(
    "local",
    short_help="The account on this machine: up, status, stop, logs.",
    context_settings=local.SETTINGS,
    add_help_option=False,
)(local.local)

for _registered in app.registered_commands:
    _registered.cls = Command


def _print_version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(version("training-jobs"))
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    profile: Annotated[str | None, typer.Option(help="A profile of AWS's configuration.")] = None,
    region: Annotated[str | None, typer.Option(help="By default that of the profile or the environment.")] = None,
    aws: Annotated[bool, typer.Option("--aws", help="AWS, though a local account runs in this folder.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    context.obj = Options(profile, region, aws)


def main() -> None:
    """Run the command line; an error is one line on stderr, with an exit code."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.exit(REFUSED)
    except Exception as error:
        from training_jobs.client.errors import TrainingError

        if isinstance(error, TrainingError):
            print(f"training-jobs: {error}", file=sys.stderr)
            sys.exit(USAGE)
        line = one_line(error)
        if line is None:
            raise
        print(f"training-jobs: {line}", file=sys.stderr)
        sys.exit(REFUSED)
