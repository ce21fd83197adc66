"""The command ``training-jobs``: starts, shows and ends training jobs, in AWS and in the local account.

It imports little, so that ``--help`` and the shell's completion take no longer than Python's own start; each command imports what
it needs.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cdk_sagemaker_training.cli import adopt, fits, init, local, measure, show, start, stop, watch
from cdk_sagemaker_training.cli.context import Options
from cdk_sagemaker_training.cli.diagnose import diagnose
from cdk_sagemaker_training.cli.diff_upgrade import diff_upgrade
from cdk_sagemaker_training.cli.doctor import doctor
from cdk_sagemaker_training.cli.errors import INTERRUPTED, REFUSED, USAGE, one_line
from cdk_sagemaker_training.cli.plan import plan
from cdk_sagemaker_training.cli.report import report
from cdk_sagemaker_training.cli.ssh import ssh

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # half of the time that --help takes
    help="Start, watch and stop SageMaker training jobs of TrainingWorkflow, in AWS and in the local account.\n\n"
    "Exit codes: 1 the job failed or was stopped, 2 wrong use, 3 a call to AWS failed, 130 Ctrl-C; the job goes on.",
)
app.command("init")(init.init)
app.command("adopt")(adopt.adopt)
app.command("export")(adopt.export)
app.command("start")(start.start)
app.command("watch")(watch.watch)
app.command("logs")(show.logs)
app.command("list")(show.list_jobs)
app.command("describe")(show.describe)
app.command("stop")(stop.stop)
app.command("resume")(start.resume)
app.command("download")(stop.download)
app.command("cost")(show.cost)
app.command("dry-run")(start.dry_run)
app.command("measure", context_settings=measure.SETTINGS)(measure.measure)
app.command("plan")(plan)
app.command("ssh")(ssh)
app.command("fits", context_settings=fits.SETTINGS)(fits.fits)
app.command("diagnose")(diagnose)
app.command("diff-upgrade")(diff_upgrade)
app.command("open")(show.open_links)
app.command("report")(report)
app.command("doctor")(doctor)
app.command("local", context_settings=local.SETTINGS, add_help_option=False)(local.local)


@app.callback()
def _options(
    context: typer.Context,
    profile: Annotated[str | None, typer.Option(help="A profile of AWS's configuration.")] = None,
    region: Annotated[str | None, typer.Option(help="By default that of the profile or the environment.")] = None,
    aws: Annotated[bool, typer.Option("--aws", help="AWS, though a local account runs in this folder.")] = False,
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
        from cdk_sagemaker_training.client.errors import TrainingError

        if isinstance(error, TrainingError):
            print(f"training-jobs: {error}", file=sys.stderr)
            sys.exit(USAGE)
        line = one_line(error)
        if line is None:
            raise
        print(f"training-jobs: {line}", file=sys.stderr)
        sys.exit(REFUSED)
