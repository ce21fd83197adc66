"""The command line and the client, where no account is needed."""

import ast
import inspect
import io
import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
import typer
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ClientError, EndpointConnectionError, SSOTokenLoadError
from botocore.stub import Stubber
from pages import part
from rich.console import Console
from urllib3 import HTTPResponse

import cdk_sagemaker_training
import training_jobs
from training_jobs import Account, Execution, LogLine, LogReader, StateVisit, TrainingError
from training_jobs.cli import doctor, show, stop, watch
from training_jobs.cli.context import local_page
from training_jobs.cli.errors import connection_lost, one_line
from training_jobs.cli.main import app as main_app
from training_jobs.cli.output import figures
from training_jobs.cli.show import console_links, page_links
from training_jobs.cli.ssh import check_reachable, session_command
from training_jobs.cli.start import execution_input
from training_jobs.cli.watch_state import Watched
from training_jobs.cli.watch_view import picture, sparkline
from training_jobs.client import artifacts
from training_jobs.client.hosts import groups_in_log, host_groups, hosts_of
from training_jobs.client.model_trainer import model_trainer
from training_jobs.client.planned_request import planned_request


@pytest.mark.parametrize(
    "program",
    [
        "import training_jobs; training_jobs.Account",
        "import training_jobs.cli.main",
        "from training_jobs.cli.main import app; app(['--help'], standalone_mode=False)",
    ],
)
def test_neither_client_nor_help_imports_the_cdk_or_boto3_before_it_is_needed(program: str) -> None:
    # Each of them takes longer to import than `--help` may take altogether; pydantic is typer's, which reads options with it.
    heavy = ["aws_cdk", "boto3", "botocore", "cdk_sagemaker_training", "constructs", "jsii", "pydantic", "rich"]
    look = f"import sys; {program}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(("limit", "calls"), [(50, 1), (1000, 10), (None, 10)])
def test_jobs_are_listed_in_as_few_calls_as_the_service_has_pages(limit: int | None, calls: int) -> None:
    asked: list[int] = []

    def answer(request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        """A page of an account of 1,000 jobs; `MaxResults` is at most 100, says the service model."""
        members = json.loads(request.body)
        first, count = int(members.get("NextToken", 0)), members["MaxResults"]
        assert count <= 100
        asked.append(first)
        job = {"TrainingJobStatus": "Completed", "CreationTime": 1.0, "TrainingJobArn": "arn"}
        page: dict[str, Any] = {
            "TrainingJobSummaries": [{"TrainingJobName": f"job-{first + n}", **job} for n in range(count)]
        }
        if first + count < 1000:
            page["NextToken"] = str(first + count)
        body = io.BytesIO(json.dumps(page).encode())
        return AWSResponse(request.url, 200, {}, HTTPResponse(body, preload_content=False))

    account = Account(boto3.Session("key", "secret"), region="us-east-1")
    account.client("sagemaker").meta.events.register("before-send.sagemaker.ListTrainingJobs", answer)
    listed = [job.name for job in account.jobs(limit=limit)]
    assert listed == [f"job-{number}" for number in range(limit or 1000)]
    assert asked == [page * 100 for page in range(calls)]


def test_what_editors_see_of_training_jobs_is_what_it_imports_when_used() -> None:
    """Of the constructs both read one file, `__init__.pyi`."""
    tree = ast.parse(inspect.getsource(training_jobs))
    shown = {
        name.asname or name.name: node.module.removeprefix("training_jobs.client.")
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
        for name in node.names
    }
    assert shown == training_jobs._MODULE_OF


@pytest.mark.parametrize("package", [cdk_sagemaker_training, training_jobs])
def test_a_package_has_each_of_its_public_names(package: Any) -> None:
    assert {*package._MODULE_OF} <= {*dir(package)}
    assert sorted(package._MODULE_OF) == package.__all__
    assert [name for name in package.__all__ if not hasattr(package, name)] == []


def refused(code: str, message: str) -> ClientError:
    """As boto3 raises it; there is no account whose credentials have expired."""
    return ClientError({"Error": {"Code": code, "Message": message}}, "ListTrainingJobs")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            refused("ExpiredTokenException", "The security token included in the request is expired"),
            "have expired; `aws sso",
        ),
        (SSOTokenLoadError(error_msg="no token"), "have expired; `aws sso login`"),
        (refused("UnrecognizedClientException", "The security token is invalid"), "the access key does not exist"),
        (refused("ThrottlingException", "Rate exceeded"), "AWS throttles ListTrainingJobs"),
        (EndpointConnectionError(endpoint_url="https://x"), "check the region, the network"),
        (
            refused(
                "AccessDeniedException",
                "User: arn:aws:iam::1:user/a is not authorized to perform: sagemaker:ListTrainingJobs on resource: "
                "arn:aws:sagemaker:us-east-1:1:training-job/* because no identity-based policy allows it",
            ),
            'policy of your user or role: {"Effect": "Allow", "Action": "sagemaker:ListTrainingJobs", '
            '"Resource": "arn:aws:sagemaker:us-east-1:1:training-job/*"}',
        ),
        (refused("InternalFailure", "try\nagain"), "ListTrainingJobs failed with InternalFailure: try again"),
    ],
)
def test_each_error_of_aws_is_one_line_that_says_what_to_do(error: Exception, words: str) -> None:
    line = one_line(error)
    assert line is not None
    assert words in line
    assert "\n" not in line


def test_an_error_of_the_command_line_itself_is_not_taken_for_one_of_aws() -> None:
    assert one_line(KeyError("a defect")) is None


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (EndpointConnectionError(endpoint_url="https://x"), True),
        (refused("ThrottlingException", ""), True),
        (refused("AccessDeniedException", ""), False),
    ],
)
def test_watch_tries_again_after_what_may_pass(error: Exception, lost: bool) -> None:
    assert connection_lost(error) is lost


def test_members_of_the_input_are_json_or_text_and_go_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "input.json").write_text('{"epochs": 1, "optimizer": {"name": "sgd"}}')
    given = execution_input(tmp_path / "input.json", ["epochs=3", "optimizer.rate=0.1", "name=a=b"])
    assert given == {"epochs": 3, "optimizer": {"name": "sgd", "rate": 0.1}, "name": "a=b"}


@pytest.mark.parametrize("member", ["epochs", "=3"])
def test_a_member_that_is_none_is_refused(member: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"must be KEY=VALUE, like epochs=3"):
        execution_input(None, [member])


def test_a_planned_request_has_what_the_input_decides_and_names_what_the_execution_does() -> None:
    request: dict[str, Any] = {
        "HyperParameters": {"epochs.$": "$.training.epochs", "fixed": "1"},
        "CheckpointConfig": {"S3Uri.$": "States.Format('{}{}/', 's3://bucket/', $$.Execution.Name)"},
        "TrainingJobName.$": "$.Training.JobName",
    }
    assert planned_request(request, {"training": {"epochs": 3}}, "monday") == {
        "HyperParameters": {"epochs": 3, "fixed": "1"},
        "CheckpointConfig": {"S3Uri": "s3://bucket/monday/"},
        "TrainingJobName": "<JobName>",
    }


@pytest.mark.parametrize(
    ("values", "bars"),
    [
        ([1.0], "▅"),
        ([0.0, 1.0], "▁█"),
        ([3.0, 3.0], "▅▅"),
        ([float(n) for n in range(16)], "▁▂▃▄▅▆▇█"),
        ([1.0, 0.0, float("nan")], "█▁·"),
    ],
)
def test_a_sparkline_shows_the_last_of_each_stretch_between_least_and_greatest(values: list[float], bars: str) -> None:
    assert sparkline(values, 8) == bars


A_REQUEST = {"AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"}, "RoleArn": "role"}


@pytest.mark.parametrize(
    ("members", "words"),
    [
        (
            {},
            r"model_trainer\(\) needs SageMaker's SDK, version 3: `pip install 'training-jobs\[sagemaker\]'`",
        ),
        (
            {"ProfilerConfig": {"DisableProfiler": True}},
            "no argument for ProfilerConfig; `training-jobs export` prints",
        ),
        (
            {"StoppingCondition": {"MaxRuntimeInSeconds": "<Left>"}},
            "the request takes <Left> from an execution's input",
        ),
    ],
    ids=["without the SDK", "a member", "what an execution knows"],
)
def test_no_model_trainer_where_it_would_send_another_request(members: dict[str, Any], words: str) -> None:
    with pytest.raises(TrainingError, match=words):
        model_trainer({**A_REQUEST, **members}, None, boto3.Session(), "digits")


def test_a_local_accounts_links_are_those_of_its_web_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described = {"pid": os.getpid(), "port": 4566, "web_url": "http://127.0.0.1:5000/token/"}
    (tmp_path / "account.json").write_text(json.dumps(described))
    monkeypatch.setenv("SAGEMAKER_LOCAL_ACCOUNT_STATE", str(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://localhost:4566")
    page = local_page()
    assert page == described["web_url"]
    arn = "arn:aws:states:us-east-1:1:execution:machine:one"
    assert page_links(page, "us-east-1", "digits", arn) == {
        "job": "http://127.0.0.1:5000/token/job/us-east-1/digits",
        "execution": f"http://127.0.0.1:5000/token/execution/{arn.replace(':', '%3A')}",
    }
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://localhost:4567")  # another account
    assert local_page() is None


def test_the_list_of_commands_has_each_purpose_whole(capsys: pytest.CaptureFixture[str]) -> None:
    main_app(["--help"], standalone_mode=False)
    _, _, commands = capsys.readouterr().out.partition("Commands:\n")
    lines = commands.splitlines()
    assert len(lines) == len(main_app.registered_commands)
    assert [line for line in lines if line.endswith("...") or len(line.split(maxsplit=1)) < 2] == []


def test_the_page_of_the_command_line_has_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    main_app(["--help"], standalone_mode=False)
    _, _, commands = capsys.readouterr().out.partition("Commands:\n")
    assert len(commands.splitlines()) == len(main_app.registered_commands)
    written = f"```text\n{commands.rstrip()}\n```"
    assert part(Path(__file__).parents[2] / "docs" / "command-line.md", "commands", written) == written


def test_the_shell_completes_commands() -> None:
    asked = {"_TRAINING_JOBS_COMPLETE": "complete_bash", "COMP_WORDS": "training-jobs wa", "COMP_CWORD": "1"}
    command = [str(Path(sys.prefix) / "bin" / "training-jobs")]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["watch"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["logs", "digits", "--follow"], "digits goes on; follow it again with `training-jobs watch digits`"),
        (["stop", "digits"], "digits is being stopped; `training-jobs describe digits` shows when it is"),
    ],
)
def test_ctrl_c_says_what_becomes_of_the_job(
    command: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    job = SimpleNamespace(name="digits", hosts=list, follow=interrupted, stop=lambda: None, wait=interrupted)
    for module in (show, stop):
        monkeypatch.setattr(module, "connect", lambda context: None)
        monkeypatch.setattr(module, "find_job", lambda account, name: job)
    assert main_app(command, standalone_mode=False) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    main_app(["--version"], standalone_mode=False)
    assert capsys.readouterr().out == f"{version('training-jobs')}\n"


def test_links_of_the_console_have_the_region_and_the_names() -> None:
    arn = "arn:aws:states:eu-west-1:1:execution:machine:monday"
    assert console_links("eu-west-1", "digits-1", arn) == {
        "job": "https://console.aws.amazon.com/sagemaker/home?region=eu-west-1#/jobs/digits-1",
        "execution": f"https://console.aws.amazon.com/states/home?region=eu-west-1#/executions/details/{arn}",
    }
    assert [*console_links("eu-west-1", "digits-1", None)] == ["job"]


OF_TWO_GROUPS = {
    "ResourceConfig": {
        "InstanceGroups": [
            {"InstanceGroupName": "data_group", "InstanceType": "ml.c5.18xlarge", "InstanceCount": 2},
            {"InstanceGroupName": "dnn_group", "InstanceType": "ml.p4d.24xlarge", "InstanceCount": 1},
        ]
    }
}
# As a job of AWS's example training/heterogeneous-clusters printed it: the group named last has the first host.
LOGGED = (
    'SM_RESOURCE_CONFIG={"current_group_name":"data_group","current_host":"algo-2","hosts":["algo-1","algo-2","algo-3"],'
    '"instance_groups":[{"hosts":["algo-1"],"instance_group_name":"dnn_group","instance_type":"ml.p4d.24xlarge"},'
    '{"hosts":["algo-2","algo-3"],"instance_group_name":"data_group","instance_type":"ml.c5.18xlarge"}]}'
)


def test_the_groups_of_hosts_are_those_of_the_log_and_not_the_requests_order() -> None:
    groups = groups_in_log(["SM_RESOURCE_CONFIG={}", "SM_RESOURCE_CONFIG={not JSON}", f"2026 {LOGGED}"])
    assert [(host.name, host.group, host.instance_type) for host in hosts_of(OF_TWO_GROUPS, groups)] == [
        ("algo-1", "dnn_group", "ml.p4d.24xlarge"),
        ("algo-2", "data_group", "ml.c5.18xlarge"),
        ("algo-3", "data_group", "ml.c5.18xlarge"),
    ]


def test_without_such_a_line_groups_have_numbers_of_hosts_and_no_names() -> None:
    groups = groups_in_log(["step 1 loss 2.0"])
    assert [(it.name, it.count, it.hosts) for it in host_groups(OF_TWO_GROUPS, groups)] == [
        ("data_group", 2, ()),
        ("dnn_group", 1, ()),
    ]
    assert [(host.name, host.group) for host in hosts_of(OF_TWO_GROUPS, groups)] == [
        ("algo-1", None),
        ("algo-2", None),
        ("algo-3", None),
    ]


class Looks(Watched):
    """An execution of which each look finds what is listed: a status, or an error of the network."""

    def __init__(self, *found: str | Exception) -> None:
        super().__init__(Account(region="us-east-1"), execution=None, job=None)
        self._found = iter(found)

    def refresh(self) -> None:
        found = next(self._found)
        if isinstance(found, Exception):
            raise found
        self.execution, self.lost, self.seen = {"name": "monday", "status": found}, None, True


LOST = EndpointConnectionError(endpoint_url="https://states")


def test_watch_says_that_the_connection_is_lost_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    watch._print_lines(Looks("RUNNING", LOST, LOST, "SUCCEEDED"), every=0)
    running, lost, over = capsys.readouterr().out.splitlines()
    assert (running, over) == ("monday RUNNING", "monday SUCCEEDED")
    assert lost.startswith("monday RUNNING, connection lost, trying again: Could not connect")


def test_watch_ends_with_an_error_where_the_first_look_fails() -> None:
    with pytest.raises(EndpointConnectionError):
        watch._print_lines(Looks(LOST), every=0)


def test_watch_ends_with_an_error_that_does_not_pass() -> None:
    with pytest.raises(ClientError):
        watch._print_lines(Looks("RUNNING", refused("AccessDeniedException", "")), every=0)


@pytest.mark.parametrize("height", [4, 9, 24])
def test_a_picture_is_no_higher_than_its_terminal_whatever_was_retried(height: int) -> None:
    watched = Looks()
    watched.execution = {"name": "monday", "status": "RUNNING", "startDate": datetime.now(UTC)}
    throttled = ["ThrottlingException: Rate exceeded"]
    watched.states = [StateVisit(name, datetime.now(UTC), errors=throttled) for name in ("Create", "Describe")]
    watched.lines.extend(LogLine(datetime.now(UTC), "algo-1", f"step {number}") for number in range(30))
    console = Console(width=60, record=True, file=io.StringIO())
    console.print(picture(watched, {}, width=60, height=height))
    lines = console.export_text().splitlines()
    assert len(lines) <= height
    assert lines[0].split()[:2] == ["execution", "RUNNING"]


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (11_853.2, 4, "11,850"),
        (1_234_567, 3, "1,230,000"),
        (0.00123456, 3, "0.00123"),
        (0.00001, 4, "0.00001"),
        (9.9999, 3, "10"),
        (12.5, 4, "12.5"),
        (0, 4, "0"),
        (float("inf"), 4, "inf"),
        (-1_500.4, 4, "-1,500"),
    ],
)
def test_a_number_of_a_table_has_no_exponent(value: float, digits: int, text: str) -> None:
    assert figures(value, digits) == text


class OfModel:
    """A job, and S3 of an account that answers HeadObject of its model with a status."""

    def __init__(self, status: int) -> None:
        self.status = status

    def has_model(self) -> bool | None:
        s3 = boto3.client("s3", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
        stub = Stubber(s3)
        given = {"Bucket": "bucket", "Key": "models/train-1/output/model.tar.gz"}
        if self.status == 200:
            stub.add_response("head_object", {}, given)
        else:
            stub.add_client_error("head_object", http_status_code=self.status, expected_params=given)
        with stub:
            return artifacts.exists(s3, "s3://bucket/models/train-1/output/model.tar.gz")


PLACE = "s3://bucket/models/train-1/output/model.tar.gz"
NO_MODEL = "none: nothing was uploaded from /opt/ml/model"


@pytest.mark.parametrize(
    ("training_status", "status", "model"),
    [
        ("Completed", 200, PLACE),
        ("Completed", 404, NO_MODEL),
        ("Failed", 404, NO_MODEL),
        ("Completed", 403, PLACE),  # who may not look is told what SageMaker says
        ("InProgress", 404, PLACE),  # where it will be
    ],
)
def test_a_model_that_is_not_there_is_not_named(training_status: str, status: int, model: str) -> None:
    described = {"TrainingJobStatus": training_status, "ModelArtifacts": {"S3ModelArtifacts": PLACE}}
    job: Any = OfModel(status)
    assert show._model(job, described) == model


@pytest.mark.parametrize(
    ("versions", "ok"),
    [
        ({"node": (24, 1, 0), "cdk": None}, True),  # `npx` fetches it
        ({"node": None, "cdk": None}, False),
        ({"node": (24, 1, 0), "cdk": (2, 1130, 0)}, True),
        ({"node": (24, 1, 0), "cdk": (1, 0, 0)}, False),
    ],
)
def test_doctor_asks_for_a_cdk_cli_only_where_nothing_fetches_it(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, Any], ok: bool
) -> None:
    monkeypatch.setattr(doctor, "_version", versions.__getitem__)
    [check] = [(ok, detail) for name, ok, detail in doctor.tools() if name == "CDK CLI"]
    assert check[0] == ok
    assert ("npx" in check[1]) == (versions["cdk"] is None)


class Histories:
    """An account whose one execution has these events."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self.events = [{"timestamp": datetime.now(UTC), "type": "TaskFailed", **event} for event in events]

    def client(self, service: str) -> Any:
        return self

    def get_paginator(self, operation: str) -> Any:
        return self

    def paginate(self, **given: Any) -> Any:
        return [{"events": self.events}]


def test_a_job_that_failed_is_no_call_that_was_retried() -> None:
    failed = {
        "TrainingJobName": "train-1",
        "TrainingJobStatus": "Failed",
        "FailureReason": "AlgorithmError:\nexit code 1",
    }
    account: Any = Histories(
        {"stateEnteredEventDetails": {"name": "Create"}},
        {"taskFailedEventDetails": {"error": "SageMaker.AmazonSageMakerException", "cause": "Rate exceeded"}},
        {"taskFailedEventDetails": {"error": "States.TaskFailed", "cause": json.dumps(failed)}},
        {"taskTimedOutEventDetails": {"error": "States.Timeout"}},
    )
    [create] = Execution(account, "arn:execution:m:monday").states()
    assert create.errors == ["SageMaker.AmazonSageMakerException: Rate exceeded", "States.Timeout"]
    assert create.failures == ["train-1 Failed: AlgorithmError:\nexit code 1"]
    watched = Looks()
    watched.execution = {"name": "monday", "status": "RUNNING", "startDate": datetime.now(UTC)}
    watched.states = [create]
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(picture(watched, {}, width=80, height=24))
    text = console.export_text()
    # How wide a column is depends on rich's version.
    words = " ".join(text.split())
    assert "before train-1 Failed: AlgorithmError: exit code 1" in words
    assert "retried Create x2: States.Timeout" in words


def test_the_job_that_is_watched_is_not_shown_as_one_before() -> None:
    watched = Looks()
    watched.execution = {"name": "monday", "status": "FAILED", "startDate": datetime.now(UTC)}
    watched.states = [StateVisit("Create", datetime.now(UTC), failures=["train-1 Failed: why", "train-2 Failed: why"])]
    machines = {"ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1}}
    watched.job = {
        "TrainingJobName": "train-2",
        "TrainingJobStatus": "Failed",
        "CreationTime": datetime.now(UTC),
        **machines,
    }
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(picture(watched, {}, width=80, height=24))
    before = [line for line in console.export_text().splitlines() if line.startswith("  before")]
    assert [line.split() for line in before] == [["before", "train-1", "Failed:", "why"]]


def test_the_last_line_of_a_picture_has_room_for_the_echo_of_ctrl_c() -> None:
    watched = Looks()
    watched.execution = {"name": "monday", "status": "RUNNING", "startDate": datetime.now(UTC)}
    watched.lines.append(LogLine(datetime.now(UTC), "algo-1", "a long line " * 10))
    console = Console(width=60, record=True, file=io.StringIO())
    console.print(picture(watched, {}, width=60, height=20))
    last = console.export_text().splitlines()[-1].rstrip()
    assert last.endswith("…")
    assert len(last) == 58


def debugged(**members: Any) -> dict[str, Any]:
    """A description of a job that is training and has remote debugging, which the local account does not offer."""
    remote = {"RemoteDebugConfig": {"EnableRemoteDebug": True}}
    return {"TrainingJobName": "digits", "SecondaryStatus": "Training", **remote, **members}


def test_a_session_is_that_of_a_jobs_host() -> None:
    check_reachable(debugged(), "algo-2", ["algo-1", "algo-2"])
    assert session_command("digits", "algo-2") == (
        ["aws", "ssm", "start-session", "--target", "sagemaker-training-job:digits_algo-2"]
    )


@pytest.mark.parametrize(
    ("members", "host", "words"),
    [
        ({"SecondaryStatus": "Completed"}, "algo-1", "digits is not training but Completed"),
        (
            {"RemoteDebugConfig": {}},
            "algo-1",
            "--training-job-name digits --remote-debug-config EnableRemoteDebug=true`",
        ),
        ({}, "algo-3", "digits has no host 'algo-3', but algo-1, algo-2"),
    ],
)
def test_no_session_where_there_can_be_none(members: dict[str, Any], host: str, words: str) -> None:
    with pytest.raises(TrainingError, match=re.escape(words)):
        check_reachable(debugged(**members), host, ["algo-1", "algo-2"])


def test_the_empty_lines_that_the_toolkit_prints_are_no_lines_of_a_job() -> None:
    """`print(line)` of a line with its end, in watch() of sagemaker-training's process.py."""
    logs = boto3.client("logs", "us-east-1", aws_access_key_id="id", aws_secret_access_key="secret")
    texts = ["loss 0.5", " ", "loss 0.4\n", "\n"]
    events = [
        {"eventId": str(time), "timestamp": time, "message": text, "logStreamName": "digits/algo-1-1700000000"}
        for time, text in enumerate(texts, 1)
    ]
    with Stubber(logs) as stub:
        stub.add_response("filter_log_events", {"events": events})
        read = LogReader(logs, "digits").read()
    assert [line.message for line in read] == ["loss 0.5", "loss 0.4"]
