"""The account that a command is for, and what its argument names."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from training_jobs.client.account import Account
    from training_jobs.client.executions import Execution
    from training_jobs.client.jobs import Job

# Variables that say which account is meant.
_CHOSEN = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ENDPOINT_URL", "AWS_ROLE_ARN")
LOCAL_STATE = Path(".local-account")

Target = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="A job, an execution (its ARN, or its name), or a workflow's construct path for its newest execution; "
        "by default that of the only workflow.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True)
class Options:
    """The options before the command."""

    profile: str | None = None
    region: str | None = None
    aws: bool = False


def connect(context: typer.Context, region: str | None = None) -> Account:
    """Return the account: the local one that runs in this folder unless the environment chooses one, else AWS's.

    Args:
        context: The command's context.
        region: Another region than the one chosen, for a service that is there only.
    """
    import boto3

    from training_jobs.client.account import Account

    options: Options = context.find_root().obj or Options()
    if not options.aws and options.profile is None and not any(os.environ.get(name) for name in _CHOSEN):
        local = local_environment()
        if local:
            os.environ.update(local)
            print(f"training-jobs: the local account of this folder ({LOCAL_STATE}); --aws for AWS", file=sys.stderr)
    return Account(boto3.Session(profile_name=options.profile), region=region or options.region)


def local_environment(state: Path = LOCAL_STATE) -> dict[str, str]:
    """Return the variables for the local account that runs on a state folder; none where none runs.

    Args:
        state: The account's state folder.
    """
    described = _running(state)
    if not described:
        return {}
    return {
        "AWS_ACCESS_KEY_ID": described["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": described["secret_access_key"],
        # The one is boto3's, the other that of AWS's newer SDKs.
        "AWS_DEFAULT_REGION": described["regions"][0],
        "AWS_REGION": described["regions"][0],
        "AWS_ENDPOINT_URL": f"http://localhost:{described['port']}",
    }


def local_page() -> str | None:
    """Return the address of the web page of the local account that the environment names; None where there is none."""
    described = _running(Path(os.environ.get("SAGEMAKER_LOCAL_ACCOUNT_STATE") or LOCAL_STATE))
    is_meant = f"http://localhost:{described.get('port')}" == os.environ.get("AWS_ENDPOINT_URL")
    return described.get("web_url") if is_meant else None


def _running(state: Path) -> dict[str, Any]:
    """The description of the local account that runs on a state folder; empty where none does."""
    try:
        described: dict[str, Any] = json.loads((state / "account.json").read_text())
        os.kill(described["pid"], 0)  # the file of an account that was killed remains
    except (OSError, ValueError, KeyError):
        return {}
    return described


def find_execution(account: Account, name: str | None) -> Execution | None:
    """Return the execution that a command's argument names; None for the name of a job.

    Args:
        account: The account.
        name: The argument.

    Raises:
        NotFoundError: There is no such execution, or no workflow.
    """
    from training_jobs.client.errors import NotFoundError

    if name is not None and ":execution:" in name:
        return account.execution(name)
    if name is not None and not name.startswith("arn:") and "/" not in name:
        try:
            account.job(name).describe()
        except NotFoundError:
            found = _execution_named(account, name)
            if found is not None:
                return found
        else:
            return None
    try:
        workflow = account.workflow(name)
    except NotFoundError as error:
        if name is None or "/" in name:
            raise
        raise NotFoundError(f"no job or execution {name!r}, and {error}") from None
    latest = workflow.latest()
    if latest is None:
        raise NotFoundError(f"{workflow.path} was never started: `training-jobs start {workflow.path}`")
    return latest


def find_job(account: Account, name: str | None) -> Job:
    """Return the job that a command's argument names.

    Args:
        account: The account.
        name: The argument.

    Raises:
        NotFoundError: There is no such job, execution or workflow.
    """
    if name is not None and ":training-job/" in name:
        return account.job(name.rpartition("/")[2])
    execution = find_execution(account, name)
    return account.job(str(name)) if execution is None else execution.job()


def _execution_named(account: Account, name: str) -> Execution | None:
    from training_jobs.client.errors import NotFoundError

    for workflow in account.workflows():
        execution = account.execution(f"{workflow.arn.replace(':stateMachine:', ':execution:')}:{name}")
        try:
            execution.describe()
        except NotFoundError:
            continue
        return execution
    return None
