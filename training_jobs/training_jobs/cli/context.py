"""The account that a command is for, and what its argument names."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from training_jobs.client.account import Account
    from training_jobs.client.jobs import Job

# Variables that say which account is meant.
_CHOSEN = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ENDPOINT_URL", "AWS_ROLE_ARN")
LOCAL_STATE = Path(".local-account")
_MOST_COMPLETED = 100

# Of a command that starts a script: what follows the script is its own.
SCRIPT_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
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
        local = local_environment(_state())
        if local:
            os.environ.update(local)
            print(f"training-jobs: the local account of this folder ({_state()}); --aws for AWS", file=sys.stderr)
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
    described = _running(_state())
    is_meant = f"http://localhost:{described.get('port')}" == os.environ.get("AWS_ENDPOINT_URL")
    return described.get("web_url") if is_meant else None


def _state() -> Path:
    return Path(os.environ.get("SAGEMAKER_LOCAL_ACCOUNT_STATE") or LOCAL_STATE)


def _running(state: Path) -> dict[str, Any]:
    """The description of the local account that runs on a state folder; empty where none does."""
    try:
        described: dict[str, Any] = json.loads((state / "account.json").read_text())
        os.kill(described["pid"], 0)  # the file of an account that was killed remains
    except (OSError, ValueError, KeyError):
        return {}
    return described


def find_job(account: Account, name: str | None) -> Job:
    """Return the job that a command's argument names.

    Args:
        account: The account.
        name: The argument.

    Raises:
        NotFoundError: There is no such job, execution or workflow.
    """
    from training_jobs.client.jobs import Job
    from training_jobs.client.names import find

    found = find(account, name)
    return found if isinstance(found, Job) else found.job()


def complete_name(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of the newest jobs that begin with what was typed, for the shell's completion.

    Args:
        context: The command's context.
        incomplete: What was typed.
    """
    return _completed(incomplete, lambda: [it.name for it in connect(context).jobs(limit=_MOST_COMPLETED)])


def complete_workflow(context: typer.Context, incomplete: str) -> list[str]:
    """Return the construct paths of the workflows that begin with what was typed, for the shell's completion.

    Args:
        context: The command's context.
        incomplete: What was typed.
    """
    return _completed(incomplete, lambda: [it.path for it in connect(context).workflows()])


def _completed(incomplete: str, names: Callable[[], list[str]]) -> list[str]:
    try:
        # The shell shows what is printed to stderr in the middle of the line that is typed.
        with contextlib.redirect_stderr(io.StringIO()):
            return [name for name in names() if name.startswith(incomplete)]
    except Exception:  # without an account nothing is completed
        return []


Target = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="A job, an execution (its ARN, or its name), or a workflow's construct path for its newest execution; a part is "
        "enough that only one name has; by default that of the only workflow.",
        show_default=False,
        autocompletion=complete_name,
    ),
]
