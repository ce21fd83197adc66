"""The command ``ssh``."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from training_jobs.cli.context import Options, Target, connect, find_job
from training_jobs.cli.output import print_json

_PLUGIN = "session-manager-plugin"


def ssh(
    context: typer.Context,
    name: Target = None,
    host: Annotated[str, typer.Option(help="The job's host.")] = "algo-1",
    only_print: Annotated[
        bool, typer.Option("--print", help="Print the AWS CLI's command instead of running it.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON instead.")] = False,
) -> None:
    """Open a shell on a host of a running job with remote_debug=True, through AWS Systems Manager."""
    from training_jobs.client.errors import TrainingError

    account = connect(context)
    job = find_job(account, name)
    check_reachable(job.describe(), host, [it.name for it in job.hosts()])
    options: Options = context.find_root().obj or Options()
    profile = [] if options.profile is None else ["--profile", options.profile]
    command = [*session_command(job.name, host), "--region", account.region, *profile]
    if as_json:
        print_json(command)
        return
    if only_print:
        typer.echo(shlex.join(command))
        return
    for program in ("aws", _PLUGIN):
        if shutil.which(program) is None:
            raise TrainingError(
                f'{program} is not on the PATH, which a session needs (Systems Manager guide, "Install the Session Manager '
                'plugin for the AWS CLI"); --print shows the command'
            )
    raise typer.Exit(subprocess.run(command, check=False).returncode)


def session_command(job_name: str, host: str) -> list[str]:
    """Return the AWS CLI's command for a session on a host.

    Source: "Access a training container through AWS Systems Manager for remote debugging" in SageMaker's guide, whose policies
    have the target ``sagemaker-training-job:*``, and AWS's examples of Ray, with ``sagemaker-training-job:<job>_algo-<n>``.

    Args:
        job_name: The job.
        host: Such as ``"algo-1"``.
    """
    return ["aws", "ssm", "start-session", "--target", f"sagemaker-training-job:{job_name}_{host}"]


def check_reachable(job: Mapping[str, Any], host: str, hosts: list[str]) -> None:
    """Check that a session can be opened.

    Args:
        job: The response of DescribeTrainingJob.
        host: The host.
        hosts: Names of the job's hosts.

    Raises:
        TrainingError: The job is not training, has no remote debugging, or has no such host.
    """
    from training_jobs.client.errors import TrainingError

    name, phase = job["TrainingJobName"], job["SecondaryStatus"]
    if phase != "Training":
        raise TrainingError(f"{name} is not training but {phase}: a session needs its running containers")
    if not job.get("RemoteDebugConfig", {}).get("EnableRemoteDebug"):
        raise TrainingError(
            f"{name} has no remote debugging: TrainingWorkflow(remote_debug=True), or for this job (API, UpdateTrainingJob) "
            f"`aws sagemaker update-training-job --training-job-name {name} --remote-debug-config EnableRemoteDebug=true`"
        )
    if host not in hosts:
        raise TrainingError(f"{name} has no host {host!r}, but {', '.join(hosts)}")
