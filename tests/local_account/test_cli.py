"""The command `local-account`, as a user types it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

COMMAND = str(Path(sys.prefix) / "bin" / "local-account")


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *arguments], cwd=folder, env={**os.environ, **environment}, text=True, capture_output=True
    )


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[tuple["subprocess.Popen[str]", dict[str, str]]]:
    """The account in the first terminal, and what it prints to export."""
    with subprocess.Popen([COMMAND], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_account_and_leaves_no_process(
    serving: tuple["subprocess.Popen[str]", dict[str, str]], number: int
) -> None:
    process, _ = serving
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    assert process.wait() == 0
    assert not [child for child in children if child.is_running()]


def test_what_it_prints_is_all_that_the_aws_cli_needs(
    serving: tuple["subprocess.Popen[str]", dict[str, str]], tmp_path: Path
) -> None:
    _, exports = serving
    done = subprocess.run(
        [str(Path(sys.prefix) / "bin" / "aws"), "sts", "get-caller-identity", "--query", "Account", "--output", "text"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **exports},
        text=True,
        capture_output=True,
    )
    assert done.stdout == "123456789012\n", done.stderr


def test_run_uses_the_account_of_the_folder(
    serving: tuple["subprocess.Popen[str]", dict[str, str]], tmp_path: Path
) -> None:
    _, exports = serving
    done = run(tmp_path, "run", "--", "sh", "-c", "echo $AWS_ENDPOINT_URL")
    assert done.stdout.strip() == exports["AWS_ENDPOINT_URL"]


def test_run_brings_an_account_of_its_own_where_there_is_none(tmp_path: Path) -> None:
    done = run(
        tmp_path, "run", "--", "aws", "s3", "ls", AWS_PROFILE="another", AWS_ENDPOINT_URL_S3="http://127.0.0.1:9"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_run_ends_as_its_command_ends(tmp_path: Path) -> None:
    assert run(tmp_path, "run", "--", "sh", "-c", "exit 7").returncode == 7


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, "run", "--", "no-such-command")
    assert done.returncode == 1
    assert done.stderr == "local-account: there is no command 'no-such-command' on the PATH\n"


def test_devices_that_are_no_number_are_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "--devices", "ml.g5.xlarge", "run", "--", "true")
    assert done.stderr == "local-account: --devices must be TYPE=N, like ml.p4d.24xlarge=2, got 'ml.g5.xlarge'\n"


def test_devices_of_a_type_that_is_not_known_are_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "--devices", "ml.g5.tiny=1", "run", "--", "true")
    assert done.returncode == 1
    assert done.stderr.startswith(
        "local-account: instance_type must be one whose accelerators are known, like 'ml.g5.xlarge'"
    )
