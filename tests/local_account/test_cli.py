"""The command `local-account`, as a user types it."""

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import psutil
import pytest

from sagemaker_local_account import cli_lifecycle
from sagemaker_local_account.core.state import AccountError, lock, running_account

COMMAND = str(Path(sys.prefix) / "bin" / "local-account")


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *arguments], cwd=folder, env={**os.environ, **environment}, text=True, capture_output=True
    )


@contextmanager
def started(folder: Path) -> Iterator[tuple["subprocess.Popen[str]", dict[str, str]]]:
    """The account in the first terminal, and what it prints to export."""
    with subprocess.Popen([COMMAND], cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        exports = {}
        for line in process.stdout:
            if line.startswith("export "):
                name, value = line.removeprefix("export ").strip().split("=", 1)
                exports[name] = value
            if "Ctrl-C" in line:
                break
        yield process, exports
        process.kill()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the account of `exports` runs."""
    return tmp_path_factory.mktemp("terminal")


@pytest.fixture(scope="module")
def exports(folder: Path) -> Iterator[dict[str, str]]:
    with started(folder) as (_, exports):
        yield exports


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.soak), signal.SIGTERM])
def test_a_signal_ends_the_account_and_leaves_no_process(tmp_path: Path, number: int) -> None:
    with started(tmp_path) as (process, _):
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        assert process.wait() == 0
        assert not [child for child in children if child.is_running()]


def test_what_it_prints_is_all_that_the_aws_cli_needs(exports: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [str(Path(sys.prefix) / "bin" / "aws"), "sts", "get-caller-identity", "--query", "Account", "--output", "text"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **exports},
        text=True,
        capture_output=True,
    )
    assert done.stdout == "123456789012\n", done.stderr


def test_run_uses_the_account_of_the_folder_and_ends_as_its_command_ends(exports: dict[str, str], folder: Path) -> None:
    done = run(folder, "run", "--", "sh", "-c", "echo $AWS_ENDPOINT_URL; exit 7")
    assert (done.stdout.strip(), done.returncode) == (exports["AWS_ENDPOINT_URL"], 7)


@pytest.mark.soak  # starts one account more
def test_run_brings_an_account_of_its_own_where_there_is_none_and_ends_as_its_command_ends(tmp_path: Path) -> None:
    command = ("sh", "-c", "aws s3 ls && exit 7")
    done = run(tmp_path, "run", "--", *command, AWS_PROFILE="another", AWS_ENDPOINT_URL_S3="http://127.0.0.1:9")
    assert (done.returncode, done.stderr) == (7, "")


@pytest.mark.usefixtures("exports")
def test_a_command_that_is_not_there_is_named(folder: Path) -> None:
    done = run(folder, "run", "--", "no-such-command")
    assert done.returncode == 1
    assert done.stderr == "local-account: the command 'no-such-command' is not on the PATH\n"


def test_devices_that_are_no_number_are_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "--devices", "ml.g5.xlarge", "run", "--", "true")
    assert done.stderr == "local-account: --devices must be TYPE=N, like ml.p4d.24xlarge=2, got 'ml.g5.xlarge'\n"


@pytest.mark.soak  # starts an account; test_devices.py has the rule
def test_devices_of_a_type_that_is_not_known_are_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "--devices", "ml.g5.tiny=1", "run", "--", "true")
    assert done.returncode == 1
    assert done.stderr.startswith(
        "local-account: instance_type must be one whose accelerators are known, like 'ml.g5.xlarge'"
    )


@pytest.fixture(scope="module")
def detached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """The folder of an account that outlives its terminal, and what `env` prints to export."""
    folder = tmp_path_factory.mktemp("detached")
    started = run(folder, "up")
    assert started.returncode == 0, started.stderr
    exports = {}
    for line in run(folder, "env").stdout.splitlines():
        if line.startswith("export "):
            name, value = shlex.split(line)[1].split("=", 1)
            exports[name] = value
    yield folder, exports
    run(folder, "reset", "--yes")


def test_a_detached_account_has_a_session_of_its_own_which_a_closed_terminal_does_not_end(
    detached: tuple[Path, dict[str, str]],
) -> None:
    folder, _ = detached
    [line] = [line for line in run(folder, "status").stdout.splitlines() if line.startswith("process ")]
    process = int(line.split()[1].rstrip(","))
    assert os.getsid(process) == process
    assert psutil.Process(process).terminal() is None


def test_up_again_finds_the_account_that_runs(detached: tuple[Path, dict[str, str]]) -> None:
    folder, exports = detached
    assert run(folder, "up").stdout.startswith(f"the account listens at {exports['AWS_ENDPOINT_URL']} ")


def test_faults_are_injected_from_any_folder_with_the_exported_variables(
    detached: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    _, exports = detached
    name = run(tmp_path, "break", "throttling", **exports).stdout.strip()
    assert run(tmp_path, "faults", **exports).stdout.startswith(f"{name}: ")
    assert run(tmp_path, "mend", **exports).returncode == 0
    assert run(tmp_path, "faults", **exports).stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_the_log_has_the_calls(detached: tuple[Path, dict[str, str]]) -> None:
    folder, exports = detached
    command = [str(Path(sys.prefix) / "bin" / "aws"), "sts", "get-caller-identity"]
    subprocess.run(command, env={**os.environ, **exports}, check=True, capture_output=True)
    assert " GetCallerIdentity " in run(folder, "logs").stdout


def test_a_command_for_an_account_that_does_not_run_says_so(tmp_path: Path) -> None:
    for command in ("status", "stop", "env"):
        done = run(tmp_path, command)
        assert done.returncode == 1
        assert done.stderr.startswith("local-account: no local account runs on the state folder ")


def test_a_port_that_is_in_use_is_named(detached: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    port = detached[1]["AWS_ENDPOINT_URL"].rpartition(":")[2]
    done = run(tmp_path, "--port", port, "--detach")
    assert done.returncode == 1
    assert port in done.stderr


def test_prune_deletes_environments_and_only_of_an_account_that_does_not_run(
    detached: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    assert "a local account already uses" in run(detached[0], "prune").stderr
    state = tmp_path / ".local-account"
    (state / "venvs" / "one").mkdir(parents=True)
    (state / "venvs" / "one" / "module.py").write_bytes(bytes(2**21))
    (state / "account.lock").touch()
    assert run(tmp_path, "prune").stdout == "2 MiB of environments are deleted\n"
    assert not (state / "venvs").exists()


def test_asking_whether_an_account_runs_never_refuses_the_account_that_starts_meanwhile(tmp_path: Path) -> None:
    # `up` asks until the account that it started answers; a lock that is taken to ask would refuse that account.
    lock(tmp_path).close()
    done = threading.Event()
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(lambda: [running_account(tmp_path) for _ in iter(done.is_set, True)])
        for _ in range(3000):
            lock(tmp_path).close()
        done.set()
        assert set(asked.result()) == {None}


def test_reset_deletes_an_accounts_folder_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    refused = run(tmp_path, "--state", "kept", "reset", "--yes")
    assert refused.stderr == f"local-account: {tmp_path / 'kept'} is no account's folder\n"
    assert (tmp_path / "kept").is_dir()


def test_the_version_is_that_of_the_package(tmp_path: Path) -> None:
    assert run(tmp_path, "--version").stdout.strip() == version("sagemaker-local-account")


def test_up_deploys_with_the_cdk_cli_or_where_it_is_not_installed_with_the_one_that_npx_fetches(tmp_path: Path) -> None:
    with pytest.raises(AccountError, match="neither cdk nor npx is on the PATH"):
        cli_lifecycle._cdk(str(tmp_path))
    found = []
    for name in ("npx", "cdk"):
        (tmp_path / name).touch(mode=0o755)
        found.append(cli_lifecycle._cdk(str(tmp_path)))
    assert found == [["npx", "--yes", "aws-cdk@2"], ["cdk"]]
