"""The state folder of an account: its lock, the file that describes a running account, and the environment of its clients."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import shutil
import struct
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from sagemaker_local_account.core import atomic_files
from sagemaker_local_account.core.json_files import read_object

ACCOUNT_ID = "123456789012"  # moto's default; documented, so that stacks may pin it
REGION = "us-east-1"  # the default region
DEFAULT_STATE = Path(".local-account")
BIN = "bin"  # the folder of the account's own commands
CONFIG = "aws-config"  # which AWS's clients read instead of ~/.aws/config and ~/.aws/credentials

# The variables of the caller that environment() passes on: paths, and settings for package indexes and terminals. None of AWS's:
# an inherited profile, token or endpoint could lead to a real account.
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

# The defaults file of SageMaker's Python SDK, instead of the user's own, which would name a real account's roles and buckets.
# Without it the SDK calls sts.amazonaws.com for its bucket's name, whatever AWS_ENDPOINT_URL is, and sends telemetry to AWS.
SDK_DEFAULTS = "sagemaker-config.yaml"
# A write lock on all of a file, as fcntl(2) takes it: its type, whence, start, length (0: to the end) and process (0).
_WHOLE_FILE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


class AccountError(Exception):
    """The account cannot start, or does not run; the message says why and what to do."""


@dataclass(frozen=True)
class RunningAccount:
    """The content of `account.json`: the process, port, root keys, regions and web page of a running account."""

    pid: int
    port: int
    access_key_id: str
    secret_access_key: str
    regions: Sequence[str] = (REGION,)
    account_id: str = ACCOUNT_ID
    web_url: str | None = None  # with its token

    @property
    def region(self) -> str:
        """The default region of its clients: the first that it was started with."""
        return self.regions[0]

    @property
    def endpoint_url(self) -> str:
        """The URL of its endpoint, for AWS_ENDPOINT_URL."""
        # "localhost", not 127.0.0.1: moto parses the first label of any other host as a bucket's name.
        return f"http://localhost:{self.port}"


def environment_of(account: RunningAccount, state: Path) -> dict[str, str]:
    """Returns the environment for a command that uses an account.

    Of the caller's environment only `PASSED_ON` is inherited, so that no variable leads to another account.
    PATH begins with the account's own commands, then this Python's (node, cdk's jsii and local-account); the AWS configuration
    file also has the account's endpoint and region; the endpoint is excluded from proxies.
    """
    environment = {
        name: value for name, value in os.environ.items() if name in PASSED_ON or name.startswith(PASSED_ON_PREFIXES)
    }
    environment.setdefault("LANG", "C.UTF-8")
    # As npm does, the commands of the project in this folder come before the system's.
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
        # Inherited from the terminal into which the lines are pasted, "true" would disable the endpoint.
        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "false",
        # Clients of some operations prefix the endpoint's host, as in "data-localhost", which does not resolve.
        "AWS_DISABLE_HOST_PREFIX_INJECTION": "true",
        "AWS_PAGER": "",
        "NO_PROXY": "localhost,127.0.0.1,.localhost",
        "no_proxy": "localhost,127.0.0.1,.localhost",
        "CDK_DEFAULT_ACCOUNT": account.account_id,
        "CDK_DEFAULT_REGION": account.region,
        "CDK_DOCKER": str(state / BIN / "docker"),
        # By default the CLI keeps its caches in ~/.cdk, and sends telemetry to AWS.
        "CDK_HOME": str(state / "cdk"),
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        "CDK_DISABLE_VERSION_CHECK": "true",
        "CDK_NOTICES": "false",
        "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "true",
        "SAGEMAKER_LOCAL_ACCOUNT_STATE": str(state),
    }
    return environment


def running_account(state: Path) -> RunningAccount | None:
    """Returns the account that runs on a state folder, in any process; None where none does.

    Raises:
        AccountError: one does, and its description is damaged; the message says how to end it.
    """
    try:
        with open(state.absolute() / "account.lock", "rb") as file:
            asked = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _WHOLE_FILE)
        if struct.unpack_from("h", asked)[0] == fcntl.F_UNLCK:
            return None
        owner = (state.absolute() / "account.lock").read_text()
        remedy = (
            f"the account of process {owner} runs there: `kill {owner}` ends it, and `local-account up` starts another"
        )
        described = read_object(state.absolute() / "account.json", AccountError, remedy)
    except FileNotFoundError:
        return None
    try:
        found = RunningAccount(**described)
    except TypeError as error:  # of another release
        raise AccountError(f"{state.absolute() / 'account.json'} cannot be read ({error}); {remedy}") from None
    # Until an account has started, the file may be that of one that was killed.
    return found if str(found.pid) == owner else None


def make_private(state: Path) -> None:
    """Makes the state folder, with mode 0700.

    Raises:
        AccountError: it cannot be made or written to.
    """
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        state.chmod(0o700)
        # Empty until the account has started: the account's own process uses it too, instead of the user's configuration.
        atomic_files.write(state / CONFIG, "", mode=0o600)
    except OSError as error:
        raise AccountError(f"the state folder {state} cannot be used: {error}") from error


def lock(state: Path) -> IO[str]:
    """Locks the state folder; the kernel releases the lock when the process ends.

    A lock of the open file description, of which `running_account` can ask whether it is held without taking it: an account
    that starts at that moment would be refused.

    Returns:
        The open lock file, whose closing releases the lock.

    Raises:
        AccountError: another process holds the lock; the message has its process id.
        OSError: the disk is full.
    """
    file = open(state / "account.lock", "a+")  # noqa: SIM115 - held for as long as the account runs
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _WHOLE_FILE)
    except BlockingIOError:
        file.seek(0)
        owner = file.read().strip() or "unknown"
        file.close()
        raise AccountError(
            f"a local account already uses the state folder {state} (process {owner}); "
            "end it with `local-account stop`, or choose another folder with --state"
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
    """Writes the configuration files of an account's clients, and last `account.json` (mode 0600), which other terminals read."""
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
    """Writes the commands that come first on the PATH of the account's clients.

    ``docker`` is the value of CDK_DOCKER: CDK starts it without a shell, so it must be one executable file. ``aws`` is the AWS
    CLI with the account's endpoint as an option: version 1 has built-in endpoints for sqs, emr, rds, docdb, neptune and health,
    which take precedence over AWS_ENDPOINT_URL (aws/aws-cli, overridesslcommonname.py).
    """
    source = str(Path(__file__).resolve().parents[2])
    code = f"import sys; sys.path.insert(0, {source!r}); from sagemaker_local_account.images.docker import main; sys.exit(main())"
    _write_command(state, "docker", f'exec {shlex.quote(sys.executable)} -c {shlex.quote(code)} "$@"')
    aws = shutil.which("aws", path=os.pathsep.join([f"{sys.prefix}/bin", os.environ.get("PATH", os.defpath)]))
    if aws is not None and Path(aws).parent != state / BIN:
        _write_command(state, "aws", f'exec {shlex.quote(aws)} --endpoint-url "$AWS_ENDPOINT_URL" "$@"')


def _write_command(state: Path, name: str, line: str) -> None:
    path = state / BIN / name
    path.parent.mkdir(exist_ok=True)
    atomic_files.write(path, f"#!/bin/sh\n{line}\n", mode=0o700)
