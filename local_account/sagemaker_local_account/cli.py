"""The command `local-account`: an AWS account on this machine.

Light to import: a command that runs in an account of another terminal needs none of what the account itself is made of.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import cli_faults
from .limits import Limits
from .spec import Fidelity
from .state import BIN, DEFAULT_STATE, REGION, AccountError, environment_of, running_account

if TYPE_CHECKING:
    from .account import LocalAccount


@dataclass(frozen=True)
class Options:
    """What the command line says of the account."""

    state: Path
    port: int
    devices: dict[str, int]
    fidelity: Fidelity
    limits: Limits
    enforce_iam: bool
    regions: list[str]

    def account(self) -> LocalAccount:
        from .account import LocalAccount

        return LocalAccount(
            state=self.state,
            port=self.port,
            devices=self.devices,
            fidelity=self.fidelity,
            limits=self.limits,
            enforce_iam=self.enforce_iam,
            regions=self.regions,
        )


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.add_typer(cli_faults.app, name="break")
app.command("mend")(cli_faults.mend)
app.command("faults")(cli_faults.faults)

State = Annotated[Path, typer.Option(help="The account's folder.")]
Port = Annotated[int, typer.Option(help="The port of 127.0.0.1 that it listens on; 0 takes a free one.")]
Devices = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TYPE=N", help="N accelerators in each ml.* machine of a type, instead of its own, or of a newer type."
    ),
]
HowAlike = Annotated[
    Fidelity, typer.Option(help="strict: each host has a name of its own that nobody resolves, as AWS's machines have.")
]
HostMemory = Annotated[
    str, typer.Option(help="The most memory of each host of a job: a share of this machine's, or a size like 8GiB.")
]
HostProcesses = Annotated[int, typer.Option(help="The most processes and threads of each host of a job.")]
HostDisk = Annotated[
    str, typer.Option(help="The most disk of the hosts of a job: a share of what is free, or a size like 20GiB.")
]
EnforceIam = Annotated[
    bool, typer.Option("--enforce-iam", help="Evaluate the permissions of every role and user, as AWS does.")
]

Regions = Annotated[
    list[str] | None,
    typer.Option(
        metavar="REGION",
        help="A region of AWS that the account has; several by repeating it, of which clients have the first by default. "
        "us-east-1 unless said.",
    ),
]


def main() -> None:
    """Run the command line; an error of the account's is one line, and exit code 1."""
    try:
        app()
    except (AccountError, ValueError) as error:
        print(f"local-account: {error}", file=sys.stderr)
        sys.exit(1)


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    state: State = DEFAULT_STATE,
    port: Port = 0,
    devices: Devices = None,
    fidelity: HowAlike = "default",
    host_memory: HostMemory = Limits.memory,
    host_processes: HostProcesses = Limits.processes,
    host_disk: HostDisk = Limits.disk,
    enforce_iam: EnforceIam = False,
    region: Regions = None,
) -> None:
    """An AWS account on this machine, in which SageMaker training jobs run for real.

    Without a command it starts one, prints what to export, and runs until Ctrl-C.
    """
    limits = Limits(host_memory, host_processes, host_disk)
    context.obj = Options(state, port, _devices(devices), fidelity, limits, enforce_iam, region or [REGION])
    if context.invoked_subcommand is None:
        _serve(context.obj)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(context: typer.Context, command: Annotated[list[str], typer.Argument(help="What to run, after --.")]) -> None:
    """Run a command with the account that runs on the state folder, else with one of its own, which ends with the command."""
    options: Options = context.obj
    running = running_account(options.state)
    if running is not None:
        sys.exit(_call(command, environment_of(running, options.state.absolute())))
    _warn()
    with options.account() as account:
        _warn_of_losses(account)
        code = _call(command, account.environment())
    sys.exit(code)


def _serve(options: Options) -> None:
    # Before anything is started, so that however early the signal comes, everything is ended.
    told_to_stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: told_to_stop.set())
    _warn()
    with options.account() as account:
        _warn_of_losses(account)
        _print_exports(account.environment(), account.state)
        print(f"# The account answers at {account.endpoint_url}; its log is {account.state / 'account.log'}.")
        print("# Paste the lines above into another terminal. Ctrl-C ends the account and its jobs.", flush=True)
        told_to_stop.wait()


def _warn() -> None:
    """Say beforehand that jobs will fail; the rest of the account works without them."""
    from .hosts import namespaces_refused

    reason = namespaces_refused()
    if reason:
        print(f"local-account: warning: training jobs cannot run here: {reason}", file=sys.stderr)


def _warn_of_losses(account: LocalAccount) -> None:
    if account.lost is not None:
        print(f"local-account: warning: {account.lost}", file=sys.stderr, flush=True)


def _print_exports(environment: dict[str, str], state: Path) -> None:
    for name, value in environment.items():
        if name.startswith(("AWS_", "CDK_", "SAGEMAKER_")):
            print(f"export {name}={shlex.quote(value)}")
    print(f"PATH={shlex.quote(str(state / BIN))}:$PATH")
    # What would lead elsewhere in spite of these.
    print(
        "unset AWS_PROFILE AWS_DEFAULT_PROFILE AWS_SESSION_TOKEN AWS_SECURITY_TOKEN "
        "$(env | sed -n 's/^\\(AWS_ENDPOINT_URL_[^=]*\\)=.*/\\1/p')"
    )


def _call(command: list[str], environment: dict[str, str]) -> int:
    """Run a command to its end; its exit code, as a shell gives it."""
    try:
        with subprocess.Popen(command, env=environment) as process:
            # Ctrl-C reaches the command too; this waits for it to end, and for nothing else.
            previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
            try:
                code = process.wait()
            finally:
                signal.signal(signal.SIGINT, previous)
    except FileNotFoundError:
        raise AccountError(f"there is no command {command[0]!r} on the PATH") from None
    return code if code >= 0 else 128 - code


def _devices(given: list[str] | None) -> dict[str, int]:
    devices = {}
    for text in given or []:
        instance_type, _, count = text.partition("=")
        if not count.isdecimal():
            raise AccountError(f"--devices must be TYPE=N, like ml.p4d.24xlarge=2, got {text!r}")
        devices[instance_type] = int(count)
    return devices
