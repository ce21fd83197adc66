"""A running account seen from outside: its folder, the file that describes it, and the environment of its clients."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from . import atomic_files

ACCOUNT_ID = "123456789012"  # moto's default; documented, so that stacks may pin it
REGION = "us-east-1"  # that of an account that is started without any
DEFAULT_STATE = Path(".local-account")
BIN = "bin"  # the folder of the account's own commands
CONFIG = "aws-config"  # what AWS's clients read in place of ~/.aws/config and ~/.aws/credentials

# What else of the caller's environment goes on into environment(): where to look and how to talk to package indexes and
# terminals. Nothing of AWS's: an inherited profile, token or endpoint could lead to a real account.
PASSED_ON = (
    "HOME",
    "LANG",
    "LC_ALL",
    "TERM",
    "TMPDIR",
    "USER",
    "COLUMNS",
    "NO_COLOR",
    "VIRTUAL_ENV",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "JSII_RUNTIME_PACKAGE_CACHE_ROOT",
    "SAGEMAKER_LOCAL_ACCOUNT_VENVS",
)
PASSED_ON_PREFIXES = ("PIP_", "UV_", "npm_config_", "NPM_CONFIG_", "XDG_")

# The defaults file of SageMaker's Python SDK, in place of the user's own, which would name a real account's roles and
# buckets. Without it the SDK asks sts.amazonaws.com for its bucket's name, whatever AWS_ENDPOINT_URL says, and tells AWS of
# each of its uses.
SDK_DEFAULTS = "sagemaker-config.yaml"


class AccountError(Exception):
    """The account cannot start, or is not there: the message says why and what to do."""


@dataclass(frozen=True)
class RunningAccount:
    """Where an account answers and the root keys that it issued at its start: what `account.json` holds."""

    pid: int
    port: int
    access_key_id: str
    secret_access_key: str
    regions: Sequence[str] = (REGION,)
    account_id: str = ACCOUNT_ID

    @property
    def region(self) -> str:
        """The region of its clients that name none: the first that it was started with."""
        return self.regions[0]

    @property
    def endpoint_url(self) -> str:
        # "localhost", not 127.0.0.1: of any other host moto would take the first label for a bucket's name.
        return f"http://localhost:{self.port}"


def environment_of(account: RunningAccount, state: Path) -> dict[str, str]:
    """The environment of a command that shall use an account: built from nothing, so that nothing inherited leads elsewhere.

    PATH begins with the account's own commands, then this Python's (node, cdk's jsii and local-account); the AWS configuration
    file has the account's endpoint and region once more; there is no proxy between a client and the account.
    """
    environment = {
        name: value for name, value in os.environ.items() if name in PASSED_ON or name.startswith(PASSED_ON_PREFIXES)
    }
    environment.setdefault("LANG", "C.UTF-8")
    # As npm does it, what the project in this folder has installed goes before what the system has.
    node_modules = Path.cwd() / "node_modules" / ".bin"
    own = [str(state / BIN), f"{sys.prefix}/bin", *([str(node_modules)] if node_modules.is_dir() else [])]
    environment["PATH"] = os.pathsep.join([*own, os.environ.get("PATH", os.defpath)])
    config = state / CONFIG
    environment |= {
        "AWS_ACCESS_KEY_ID": account.access_key_id,
        "AWS_SECRET_ACCESS_KEY": account.secret_access_key,
        "AWS_REGION": account.region,
        "AWS_DEFAULT_REGION": account.region,
        "AWS_ENDPOINT_URL": account.endpoint_url,
        "AWS_CONFIG_FILE": str(config),
        "AWS_SHARED_CREDENTIALS_FILE": str(config),
        "SAGEMAKER_ADMIN_CONFIG_OVERRIDE": str(state / SDK_DEFAULTS),
        "SAGEMAKER_USER_CONFIG_OVERRIDE": str(state / SDK_DEFAULTS),
        "AWS_EC2_METADATA_DISABLED": "true",
        # Inherited where the lines are pasted into a terminal, it would take the endpoint away.
        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "false",
        # Clients of some services and operations put a name before the endpoint's, as in "data-localhost", which is no host.
        "AWS_DISABLE_HOST_PREFIX_INJECTION": "true",
        "AWS_PAGER": "",
        "NO_PROXY": "localhost,127.0.0.1,.localhost",
        "no_proxy": "localhost,127.0.0.1,.localhost",
        "CDK_DEFAULT_ACCOUNT": account.account_id,
        "CDK_DEFAULT_REGION": account.region,
        "CDK_DOCKER": str(state / BIN / "docker"),
        # The CLI keeps its caches and its notices' cache in ~/.cdk otherwise, and tells AWS of its use.
        "CDK_HOME": str(state / "cdk"),
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        "CDK_DISABLE_VERSION_CHECK": "true",
        "CDK_NOTICES": "false",
        "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "true",
        "SAGEMAKER_LOCAL_ACCOUNT_STATE": str(state),
    }
    return environment


def running_account(state: Path) -> RunningAccount | None:
    """The account that runs on a state folder, in whatever process; None where none does."""
    try:
        lock(state.absolute()).close()
    except AccountError:
        path = state.absolute() / "account.json"
        found = RunningAccount(**json.loads(path.read_text())) if path.exists() else None
        # Until an account has started, the file may be of one that was killed.
        owner = (state.absolute() / "account.lock").read_text()
        return found if found is not None and str(found.pid) == owner else None
    except FileNotFoundError:
        return None
    return None


def make_private(state: Path) -> None:
    """Make the state folder, for this user's eyes only."""
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        state.chmod(0o700)
        # Empty until the account answers: the account itself has it as its own, so that none of the user's is read.
        atomic_files.write(state / CONFIG, "", mode=0o600)
    except OSError as error:
        raise AccountError(f"the state folder {state} cannot be used: {error}") from error


def lock(state: Path) -> IO[str]:
    """Take the state folder, or say who has it. The kernel gives it free when its owner ends, however it ends.

    Raises AccountError where another has it, and OSError where its disk is full.
    """
    file = open(state / "account.lock", "a+")  # noqa: SIM115 - held for as long as the account runs
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        owner = file.read().strip() or "unknown"
        file.close()
        raise AccountError(
            f"another local account uses the state folder {state} (process {owner}); "
            "stop it, or choose another folder with --state"
        ) from None
    try:
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
    except OSError:
        with contextlib.suppress(OSError):
            file.close()
        raise
    return file


def describe(state: Path, account: RunningAccount) -> None:
    """Write what an account's clients read, and last `account.json`, by which another terminal finds it; its keys are for this
    user's eyes only."""
    config = f"[default]\nregion = {account.region}\nendpoint_url = {account.endpoint_url}\n"
    atomic_files.write(state / CONFIG, config, mode=0o600)
    modules = {
        "Session": {"DefaultS3Bucket": f"sagemaker-{account.region}-{account.account_id}"},
        "TelemetryOptOut": True,
    }
    defaults = {"SchemaVersion": "1.0", "SageMaker": {"PythonSDK": {"Modules": modules}}}
    atomic_files.write(state / SDK_DEFAULTS, json.dumps(defaults))
    atomic_files.write(state / "account.json", json.dumps(asdict(account)), mode=0o600)


def write_commands(state: Path) -> None:
    """The commands that come first on the PATH of the account's clients.

    ``docker`` is what CDK_DOCKER names: CDK starts it without a shell, so that it must be one executable file. ``aws`` is the
    AWS CLI with the account's endpoint as an option: version 1 has endpoints of its own for sqs, emr, rds, docdb, neptune and
    health, whatever AWS_ENDPOINT_URL says, and would leave this machine (aws/aws-cli, overridesslcommonname.py).
    """
    source = str(Path(__file__).resolve().parent.parent)
    code = (
        f"import sys; sys.path.insert(0, {source!r}); from sagemaker_local_account.docker import main; sys.exit(main())"
    )
    _write_command(state, "docker", f'exec {shlex.quote(sys.executable)} -c {shlex.quote(code)} "$@"')
    aws = shutil.which("aws", path=os.pathsep.join([f"{sys.prefix}/bin", os.environ.get("PATH", os.defpath)]))
    if aws is not None and Path(aws).parent != state / BIN:
        _write_command(state, "aws", f'exec {shlex.quote(aws)} --endpoint-url "$AWS_ENDPOINT_URL" "$@"')


def _write_command(state: Path, name: str, line: str) -> None:
    path = state / BIN / name
    path.parent.mkdir(exist_ok=True)
    atomic_files.write(path, f"#!/bin/sh\n{line}\n", mode=0o700)
