"""Every command that calls AWS, against AWS's errors: one line that says what to do, an exit code, and nothing half done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
import typer
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError
from packaging.version import Version

from training_jobs import Account
from training_jobs.cli.main import app, main
from training_jobs.cli.values import message_of

# As a user types them; the name is that of a job, an execution and a workflow at once, which there is not.
COMMANDS = {
    "adopt": ["adopt", "digits"],
    "cost": ["cost", "digits"],
    "describe": ["describe", "digits"],
    "diagnose": ["diagnose", "digits"],
    "download": ["download", "digits", "--to", "model"],
    "export": ["export", "Digits/Training"],
    "init": ["init", "--from-job", "digits", "folder"],
    "list": ["list"],
    "logs": ["logs", "digits"],
    "open": ["open", "digits"],
    "dry-run": ["dry-run", "Digits/Training"],
    "report": ["report", "digits"],
    "resume": ["resume", "digits"],
    "ssh": ["ssh", "digits"],
    "start": ["start", "Digits/Training"],
    "stop": ["stop", "digits"],
    "watch": ["watch", "digits"],
}
# `doctor` reports errors as its findings; `check`, `fits`, `lint`, `local`, `measure` and `prove` do not call AWS,
# nor does `plan` without `--price-list`.
NOT_HERE = {"check", "doctor", "fits", "lint", "local", "measure", "plan", "prove"}
WRITES = ("Start", "Stop", "Create", "Put", "Delete")


def refused(code: str, message: str) -> Callable[[str], Exception]:
    return lambda operation: ClientError({"Error": {"Code": code, "Message": message.format(operation)}}, operation)


ERRORS: dict[str, tuple[Callable[[str], Exception], str]] = {
    "no credentials": (lambda operation: NoCredentialsError(), "no AWS credentials; `aws sso login`"),
    "expired": (refused("ExpiredTokenException", "The security token is expired"), "have expired; `aws sso login`"),
    "wrong region": (
        lambda operation: EndpointConnectionError(endpoint_url="https://sagemaker.nowhere.amazonaws.com"),
        "check the region, the network",
    ),
    "access denied": (
        refused(
            "AccessDeniedException",
            "User: arn:aws:iam::1:user/a is not authorized to perform: service:{} on resource: arn:thing because no "
            "identity-based policy allows it",
        ),
        'policy of your user or role: {"Effect": "Allow", "Action": "service:',
    ),
    "throttling": (refused("ThrottlingException", "Rate exceeded"), "after several retries; try again in a minute"),
}


class Refusing:
    """A client that refuses each call, and remembers them.

    A double, since only AWS itself expires credentials and throttles all calls; the errors are built as botocore builds them.
    """

    def __init__(self, error: Callable[[str], Exception], calls: list[str]) -> None:
        self._error, self._calls = error, calls
        self.exceptions = SimpleNamespace(ClientError=ClientError)
        self.meta = SimpleNamespace(region_name="us-east-1")

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(**parameters: Any) -> Any:
            operation = "".join(word.capitalize() for word in method.split("_"))
            self._calls.append(operation)
            raise self._error(operation)

        return call

    def get_paginator(self, method: str) -> Any:
        return SimpleNamespace(paginate=lambda **parameters: iter(self._pages(method)))

    def _pages(self, method: str) -> Iterator[Any]:
        yield getattr(self, method)()


@pytest.fixture(scope="module")
def session() -> boto3.Session:
    """One for all commands, since making it takes longer than they do."""
    return boto3.Session(region_name="us-east-1")


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, session: boto3.Session, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(boto3, "Session", lambda **arguments: session)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    return tmp_path


Run = Callable[[str, Refusing], tuple[int, str]]


@pytest.fixture
def run(empty_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in an empty folder, where it writes nothing; returns its exit code and its only line."""

    def run(command: str, client: Refusing) -> tuple[int, str]:
        monkeypatch.setattr(Account, "client", lambda account, service: client)
        monkeypatch.setattr(sys, "argv", ["training-jobs", *COMMANDS[command]])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        [line] = captured.err.splitlines()
        assert captured.out == ""
        assert list(empty_folder.iterdir()) == []
        assert isinstance(ended.value.code, int)
        return ended.value.code, line

    return run


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_in_one_line_what_to_do_and_does_nothing(command: str, error: str, run: Run) -> None:
    raised, words = ERRORS[error]
    calls: list[str] = []
    code, line = run(command, Refusing(raised, calls))
    assert words in line
    assert code == 3
    assert len(calls) == 1
    assert not calls[0].startswith(WRITES)


class Empty(Refusing):
    """A client of an account in which there is nothing, as AWS answers there."""

    def _pages(self, method: str) -> Iterator[Any]:
        self._calls.append(method)
        yield {"stateMachines": [], "TrainingJobSummaries": []}


@pytest.mark.parametrize("command", sorted({*COMMANDS} - {"list"}))
def test_a_command_says_in_one_line_that_there_is_no_such_job_or_workflow(command: str, run: Run) -> None:
    calls: list[str] = []
    code, line = run(command, Empty(refused("ValidationException", "Requested resource not found."), calls))
    assert line.startswith("training-jobs: no ")
    assert code == 2
    assert [call for call in calls if call.startswith(WRITES)] == []


def test_each_command_is_here() -> None:
    assert {str(it.name) for it in app.registered_commands} == {*COMMANDS, *NOT_HERE}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("lint --hosts two", "'--hosts': must be a whole number, like 4, got 'two'"),
        ("lint --hosts 0", "'--hosts': must be at least 1, like 1, got '0'"),
        ("plan measured.json --spot half", "'--spot': must be a number, like 0.5, got 'half'"),
        ("plan measured.json --local-share 7", "'--local-share': must be at most 1, like 1, got '7'"),
        ("lint --compiler tvm", "'--compiler': 'tvm' is not one of 'inductor', 'xla'"),
    ],
)
def test_a_value_that_an_option_does_not_take_is_named_with_the_rule_and_an_example(
    words: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["training-jobs", *words.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    if Version(typer.__version__) >= Version("0.29"):  # older ones say the value, and of what type it is none
        assert f"Error: Invalid value for {told}" in printed
    assert words.split()[-1] in printed


def test_what_another_rule_says_is_said_with_the_value() -> None:
    error = {"type": "literal_error", "msg": "Input should be 'inductor' or 'xla'", "input": "tvm"}
    assert message_of(error) == "Input should be 'inductor' or 'xla', got 'tvm'"
