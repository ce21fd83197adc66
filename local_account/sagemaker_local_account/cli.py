"""The command `local-account`: an AWS account on this machine.

It imports little: a command for an account in another terminal does not need the account's own modules.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sagemaker_local_account import cli_faults, cli_lifecycle, cli_permissions
from sagemaker_local_account.core.state import DEFAULT_STATE, REGION, AccountError, environment_of, running_account
from sagemaker_local_account.runtime.limits import Limits
from sagemaker_local_account.runtime.spec import Fidelity

if TYPE_CHECKING:
    from sagemaker_local_account.account import LocalAccount


@dataclass(frozen=True)
class Options:
    """The options of the command line.

    ``state`` is the folder of an account that is started; ``running_state`` is that of commands for one that runs. ``arguments``
    are the options again, as they are typed, without --state.
    """

    state: Path
    running_state: Path
    arguments: tuple[str, ...]
    port: int
    devices: dict[str, int]
    fidelity: Fidelity
    host_seed: int | None
    limits: Limits
    enforce_iam: bool
    scp: list[Path]
    rates: bool
    regions: list[str]
    web: bool

    def account(self) -> LocalAccount:
        """Returns an account with these options, which is not started."""
        from sagemaker_local_account.account import LocalAccount

        return LocalAccount(
            state=self.state,
            port=self.port,
            devices=self.devices,
            fidelity=self.fidelity,
            host_seed=self.host_seed,
            limits=self.limits,
            enforce_iam=self.enforce_iam,
            scp=self.scp,
            rates=self.rates,
            regions=self.regions,
            web=self.web,
        )


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.add_typer(cli_faults.app, name="break")
app.command("mend")(cli_faults.mend)
app.command("faults")(cli_faults.faults)
app.command("advance")(cli_faults.advance)
app.command("permissions")(cli_permissions.permissions)
app.command("explain")(cli_permissions.explain)
app.command("fidelity")(cli_lifecycle.fidelity)
for _command in (
    cli_lifecycle.up,
    cli_lifecycle.status,
    cli_lifecycle.stop,
    cli_lifecycle.logs,
    cli_lifecycle.env,
    cli_lifecycle.reset,
    cli_lifecycle.prune,
):
    app.command()(_command)

State = Annotated[
    Path | None,
    typer.Option(
        help="The account's folder, by default .local-account; of commands for a running account, the exported one.",
        show_default=False,
    ),
]
Port = Annotated[int, typer.Option(help="The port on 127.0.0.1; 0 for a free one.")]
Devices = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TYPE=N",
        help="N accelerators per machine of an ml.* type, instead of the type's own; also for newer types.",
    ),
]
HowAlike = Annotated[
    Fidelity,
    typer.Option(help="strict: a host's own name is as on AWS's machines, and does not resolve; relaxed: algo-1."),
]
HostSeed = Annotated[
    int | None,
    typer.Option(
        help="Deals algo-1, algo-2, ... to instance groups by this seed, by default the job's name, as SageMaker does at random."
    ),
]
HostMemory = Annotated[
    str, typer.Option(help="The memory limit of each host of a job: a share of this machine's, or a size like 8GiB.")
]
HostProcesses = Annotated[int, typer.Option(help="The limit of processes and threads of each host of a job.")]
HostDisk = Annotated[
    str, typer.Option(help="The disk limit of a job's hosts together: a share of the free space, or a size like 20GiB.")
]
EnforceIam = Annotated[
    bool,
    typer.Option(help="Evaluate the permissions of every role and user, as AWS does; or allow every call."),
]
ServiceControlPolicies = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="A service control policy of the account's organization, by which roles and users are bound; one for each level.",
    ),
]
Rates = Annotated[bool, typer.Option("--rates", help="Throttle calls at the rates of a new AWS account.")]

Web = Annotated[bool, typer.Option(help="Serve a web page that shows what the account has, on a port of its own.")]
Detach = Annotated[bool, typer.Option("--detach", help="Return once it accepts requests; it outlives this terminal.")]

Regions = Annotated[
    list[str] | None,
    typer.Option(
        metavar="REGION",
        help="A region of the account, by default us-east-1; can be repeated. The first is the default of clients.",
    ),
]


def main() -> None:
    """Runs the command line; an error is printed in one line, with exit code 1."""
    try:
        app()
    except (AccountError, ValueError) as error:
        print(f"local-account: {error}", file=sys.stderr)
        sys.exit(1)


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    state: State = None,
    port: Port = 0,
    devices: Devices = None,
    fidelity: HowAlike = "strict",
    host_seed: HostSeed = None,
    host_memory: HostMemory = Limits.memory,
    host_processes: HostProcesses = Limits.processes,
    host_disk: HostDisk = Limits.disk,
    enforce_iam: EnforceIam = True,
    scp: ServiceControlPolicies = None,
    rates: Rates = False,
    region: Regions = None,
    web: Web = True,
    detach: Detach = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """An AWS account on this machine, in which SageMaker training jobs run for real.

    Without a command it starts one, prints what to export, and runs until Ctrl-C.
    """
    limits = Limits(host_memory, host_processes, host_disk)
    running = state or Path(os.environ.get("SAGEMAKER_LOCAL_ACCOUNT_STATE") or DEFAULT_STATE)
    # The options again, for the account's own process.
    given = [
        f"--port={port}",
        f"--fidelity={fidelity}",
        f"--host-memory={host_memory}",
        f"--host-processes={host_processes}",
    ]
    given += [f"--host-disk={host_disk}", *([] if enforce_iam else ["--no-enforce-iam"])]
    given += ["--rates"] if rates else []
    given += [f"--scp={it.absolute()}" for it in scp or []]
    given += [] if host_seed is None else [f"--host-seed={host_seed}"]
    given += [] if web else ["--no-web"]
    given += [f"--devices={it}" for it in devices or []] + [f"--region={it}" for it in region or []]
    context.obj = Options(
        state or DEFAULT_STATE,
        running,
        tuple(given),
        port,
        _devices(devices),
        fidelity,
        host_seed,
        limits,
        enforce_iam,
        scp or [],
        rates,
        region or [REGION],
        web,
    )
    if context.invoked_subcommand is not None:
        return
    if detach:
        started = cli_lifecycle.start_detached(context.obj.state.absolute(), given)
        print(cli_lifecycle.exports(started, context.obj.state.absolute()))
    else:
        _serve(context.obj)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(context: typer.Context, command: Annotated[list[str], typer.Argument(help="What to run, after --.")]) -> None:
    """Run a command with the account that runs on the state folder, else with a new one, which ends with the command."""
    options: Options = context.obj
    running = running_account(options.running_state)
    if running is not None:
        sys.exit(_call(command, environment_of(running, options.running_state.absolute())))
    _warn()
    with dataclasses.replace(options, web=False).account() as account:
        _warn_of_losses(account)
        code = _call(command, account.environment())
    sys.exit(code)


def _serve(options: Options) -> None:
    # Installed before the start, so that an early signal also ends everything.
    stop_requested = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop_requested.set())
    _warn()
    if sys.stderr.isatty():
        print(f"local-account: starting an account on {options.state} ...", file=sys.stderr, flush=True)
    with options.account() as account:
        _warn_of_losses(account)
        print(cli_lifecycle.exports(account.description, account.state))
        print(f"# The account listens at {account.endpoint_url}; its log is {account.state / 'account.log'}.")
        if account.description.web_url is not None:
            print(f"# What it has is shown at {account.description.web_url}")
        print("# Paste the lines above into another terminal. Ctrl-C ends the account and its jobs.", flush=True)
        stop_requested.wait()


def _warn() -> None:
    """Warns where jobs cannot run; the rest of the account works."""
    from sagemaker_local_account.runtime.namespace_check import namespaces_refused

    reason = namespaces_refused()
    if reason:
        print(f"local-account: warning: training jobs cannot run here: {reason}", file=sys.stderr)


def _warn_of_losses(account: LocalAccount) -> None:
    if account.lost is not None:
        print(f"local-account: warning: {account.lost}", file=sys.stderr, flush=True)


def _print_version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        print(version("sagemaker-local-account"))
        raise typer.Exit


def _call(command: list[str], environment: dict[str, str]) -> int:
    """Runs a command; returns its exit code as a shell does."""
    try:
        with subprocess.Popen(command, env=environment) as process:
            # Ctrl-C also reaches the command; this process waits for its end.
            previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
            try:
                code = process.wait()
            finally:
                signal.signal(signal.SIGINT, previous)
    except FileNotFoundError:
        raise AccountError(f"the command {command[0]!r} is not on the PATH") from None
    return code if code >= 0 else 128 - code


def _devices(given: list[str] | None) -> dict[str, int]:
    devices = {}
    for text in given or []:
        instance_type, _, count = text.partition("=")
        if not count.isdecimal():
            raise AccountError(f"--devices must be TYPE=N, like ml.p4d.24xlarge=2, got {text!r}")
        devices[instance_type] = int(count)
    return devices
