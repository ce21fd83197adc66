"""The client of `training_jobs` and the command line over it, on one deployed stack and its executions."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from adopted import differing, requests_of
from deployed import Deployed, wait_until
from terminal import Terminal
from two_workflows import FOREVER, TwoWorkflows

from sagemaker_local_account.faults import Throttling
from training_jobs import Account, Execution, Job, NotFoundError, TrainingError
from training_jobs.adopt import Adopted
from training_jobs.adopt.from_job import request_of_job
from training_jobs.cli.main import main
from training_jobs.cli.output import print_table
from training_jobs.client.names import elided

COMMAND = str(Path(sys.prefix) / "bin" / "training-jobs")


@pytest.fixture(scope="module")
def account(deployed: Deployed) -> Iterator[Account]:
    """The client of a user who has pasted the account's exports into a terminal."""
    deployed.deploy(TwoWorkflows(cdk.App(context={"aws:cdk:enable-path-metadata": True})))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in deployed.account.environment().items():
            if name.startswith("AWS_"):
                patch.setenv(name, value)
        yield Account()


@pytest.fixture(scope="module")
def finished(account: Account) -> Execution:
    execution = account.workflow("Logging/Training").start({"steps": "3"}, name="three-steps")
    assert execution.wait(0.2)["status"] == "SUCCEEDED"
    return execution


@pytest.fixture(scope="module")
def job(finished: Execution) -> Job:
    return finished.job()


@pytest.fixture(scope="module")
def failed(account: Account) -> Execution:
    execution = account.workflow("Logging/Single").start({"steps": "-1"}, name="no-steps")
    assert execution.wait(0.2)["status"] == "FAILED"
    return execution


@pytest.fixture(scope="module")
def stopped(account: Account, finished: Execution) -> Job:
    """A job that was stopped after its first step."""
    execution = account.workflow("Training").start({"steps": str(FOREVER)}, name="stopped")
    job = wait_until(lambda: next(iter(execution.jobs()), None))
    wait_until(lambda: list(job.logs(grep="step 1 ")))
    job.stop()
    assert job.wait(0.2)["TrainingJobStatus"] == "Stopped"
    return job


class TestAWorkflow:
    def test_has_its_construct_path(self, account: Account) -> None:
        assert [it.path for it in account.workflows()] == ["Logging/Single", "Logging/Training"]

    @pytest.mark.parametrize("name", ["Logging/Training", "Training"])
    def test_is_found_by_its_path_or_the_end_of_it(self, account: Account, name: str) -> None:
        assert account.workflow(name).path == "Logging/Training"

    @pytest.mark.parametrize("name", [None, "Logging"])
    def test_is_not_chosen_among_several(self, account: Account, name: str | None) -> None:
        with pytest.raises(NotFoundError, match="name one of Logging/Single, Logging/Training"):
            account.workflow(name)

    def test_of_no_such_name_is_refused_with_those_that_there_are(self, account: Account) -> None:
        with pytest.raises(NotFoundError, match=r"no workflow 'Trainings' .* name one of Logging/Single"):
            account.workflow("Trainings")

    def test_says_what_it_takes_of_the_input(self, account: Account) -> None:
        assert account.workflow("Training").input_paths() == ["resume_from", "steps"]

    def test_is_not_started_without_what_it_takes_of_the_input(self, account: Account, finished: Execution) -> None:
        workflow = account.workflow("Single")
        before = len(list(workflow.executions()))
        with pytest.raises(TrainingError, match="Logging/Single takes steps of the input, like --set steps=VALUE"):
            workflow.start({"epochs": 3})
        assert len(list(workflow.executions())) == before


class TestAnExecution:
    def test_has_its_jobs(self, finished: Execution, job: Job) -> None:
        assert [it.name for it in finished.jobs()] == [job.name]

    def test_has_its_states_in_order_each_once(self, finished: Execution) -> None:
        names = [state.name for state in finished.states()]
        assert names[:2] == ["FirstAttempt", "Create"]
        assert len(names) == len(set(names))
        assert all(state.over for state in finished.states())

    def test_uses_checkpoints_of_its_own_unless_it_resumes_another(self, job: Job) -> None:
        assert re.search(r"/checkpoints/[a-z0-9-]+/three-steps/$", str(job.checkpoints_uri()))

    def test_is_shown_in_a_notebook_with_its_job_and_why_it_failed(self, failed: Execution) -> None:
        shown = failed._repr_html_()
        assert "<b>no-steps</b> FAILED" in shown
        assert failed.job().name in shown
        assert "exit code" in shown.lower() or "the steps must not be negative" in shown


class TestAJob:
    def test_has_hosts_of_its_groups(self, job: Job) -> None:
        assert [(it.name, it.group, it.instance_type) for it in job.hosts()] == [
            ("algo-1", "data_group", "ml.c5.xlarge"),
            ("algo-2", "dnn_group", "ml.m5.xlarge"),
        ]

    def test_has_the_lines_of_all_hosts_by_time(self, job: Job) -> None:
        lines = list(job.logs())
        assert {line.host for line in lines} == {"algo-1", "algo-2"}
        assert [line.time for line in lines] == sorted(line.time for line in lines)
        assert sum(line.message.startswith("step ") for line in lines) == 6

    def test_has_the_lines_of_one_group_that_contain_a_text(self, job: Job) -> None:
        lines = [(line.host, line.message) for line in job.logs(group="dnn_group", grep="step [12]")]
        assert lines == [("algo-2", "step 1 loss 100"), ("algo-2", "step 2 loss 50")]

    def test_of_one_host_is_read_once(self, job: Job) -> None:
        reader = job.log_reader(host="algo-1")
        assert {line.host for line in reader.read()} == {"algo-1"}
        assert reader.read() == []

    @pytest.mark.parametrize("filters", [{"host": "algo-3"}, {"group": "gpu"}])
    def test_names_its_hosts_and_groups_where_another_is_wanted(self, job: Job, filters: dict[str, str]) -> None:
        with pytest.raises(NotFoundError, match=r"it has (algo-1, algo-2|data_group, dnn_group)"):
            list(job.logs(**filters))

    def test_has_the_metrics_that_its_definitions_find(self, job: Job) -> None:
        of_one_host = [(it.name, it.value) for it in job.metrics() if it.host == "algo-2"]
        assert of_one_host == [("loss", 100.0), ("loss", 50.0), ("loss", 33.0)]

    def test_has_its_metrics_as_a_data_frame(self, job: Job) -> None:
        frame = job.metrics_frame()
        assert list(frame.columns) == ["loss"]
        assert frame["loss"].iloc[-1] == 33.0

    def test_counts_the_time_of_its_machines_so_far_and_at_most(self, job: Job) -> None:
        times = {it.instance_type: it for it in job.machine_times()}
        assert sorted(times) == ["ml.c5.xlarge", "ml.m5.xlarge"]
        assert 0 < times["ml.m5.xlarge"].seconds < times["ml.m5.xlarge"].limit_seconds == 3600

    def test_is_followed_to_its_last_line(self, job: Job) -> None:
        assert [line.message for line in job.follow(host="algo-2")][-1] == "step 3 loss 33"

    def test_has_its_model(self, job: Job, tmp_path: Path) -> None:
        files = {path.name: path.read_text() for path in job.download_model(tmp_path / "model")}
        assert files == {"model.txt": "3\n"}
        assert [path.name for path in (tmp_path / "model").iterdir()] == ["model.txt"]

    def test_has_its_checkpoints(self, job: Job, tmp_path: Path) -> None:
        assert [path.name for path in job.download_checkpoints(tmp_path)] == ["step.txt"]

    def test_that_is_stopped_has_its_last_checkpoint(self, stopped: Job) -> None:
        last = stopped.last_checkpoint()
        assert last is not None
        assert re.search(r"/checkpoints/[a-z0-9-]+/stopped/stopped\.txt$", last.uri)

    def test_that_is_not_there_is_named(self, account: Account) -> None:
        with pytest.raises(NotFoundError, match=r"no training job 'nothing' in us-east-1; `training-jobs list`"):
            account.job("nothing").describe()


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def typed(account: Account, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Runs `training-jobs`, in this process."""

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["training-jobs", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Ran(int(ended.value.code or 0), captured.out, captured.err)

    return run


class TestTheCommand:
    def test_lists_workflows_with_what_they_take(self, typed: Callable[..., Ran]) -> None:
        listed = typed("list", "--workflows").out.splitlines()
        assert [line.split(maxsplit=1) for line in listed[1:]] == [
            ["Logging/Single", "steps"],
            ["Logging/Training", "resume_from, steps"],
        ]

    def test_lists_jobs_the_newest_first(self, typed: Callable[..., Ran], job: Job, failed: Execution) -> None:
        names = [it["name"] for it in typed("list", "--json").json]
        assert names.index(failed.job().name) < names.index(job.name)

    def test_plans_the_request_that_the_next_start_sends(self, typed: Callable[..., Ran], job: Job) -> None:
        planned = typed("dry-run", "Training", "--set", "steps=3", "--name", "three-steps", "--json").json
        [request] = planned["requests"]
        sent = job.describe()
        known = request.keys() - {"Tags", "TrainingJobName"}  # which only the execution makes
        assert {key: request[key] for key in known} == {key: sent[key] for key in known}
        assert {it["limit_seconds"] for it in planned["cost"]["machines"]} == {3600}

    def test_adopts_a_job_that_boto3_made(
        self, typed: Callable[..., Ran], account: Account, failed: Execution, tmp_path: Path
    ) -> None:
        made = {
            **request_of_job(account, failed.job().name),
            "TrainingJobName": "by-boto3",
            "HyperParameters": {"steps": "1", "note": "1e-3"},
            "Environment": {"NAME": "value"},
            "StoppingCondition": {"MaxRuntimeInSeconds": 90},
            "Tags": [{"Key": "team", "Value": "vision"}],
        }
        account.client("sagemaker").create_training_job(**made)
        adopted = typed("adopt", "by-boto3", "--json").json
        stack = Adopted(adopted["source"], ())
        requests, _ = requests_of({"by-boto3": stack})
        listed = {it["member"] for it in adopted["differences"]}
        assert differing(made, requests["by-boto3"]) == listed
        assert listed == {"TrainingJobName", "HyperParameters.note", "Tags[StepFunctionsExecution]"}
        assert typed("adopt", "by-boto3").out == stack.source
        assert typed("init", str(tmp_path / "app"), "--from-job", "by-boto3").code == 0
        assert (tmp_path / "app" / "app.py").read_text() == stack.source

    def test_exports_the_call_of_the_sdk(self, typed: Callable[..., Ran]) -> None:
        ran = typed("export", "Training", "--set", "steps=3", "--name", "once")
        assert ran.code == 0, ran.err
        assert 'hyper_parameters={"steps": "3", "sagemaker_distribution_instance_groups":' in " ".join(ran.out.split())
        assert "training_job_name=f\"training-{time.strftime('%Y-%m-%d-%H-%M-%S')}\"" in ran.out
        [call] = typed("export", "Training", "--set", "steps=3", "--name", "once", "--json").json
        assert call["request"]["HyperParameters"]["steps"] == "3"
        assert f"{call['source']}\n" == ran.out

    def test_exports_a_request_that_any_client_can_send(self, account: Account, typed: Callable[..., Ran]) -> None:
        request = typed("export", "Training", "--set", "steps=2", "--as", "request").json
        assert "Tags" not in request
        account.client("sagemaker").create_training_job(**request)
        assert account.job(request["TrainingJobName"]).wait(0.2)["TrainingJobStatus"] == "Completed"

    def test_exports_a_definition_that_another_tool_can_deploy(
        self, account: Account, typed: Callable[..., Ran]
    ) -> None:
        definition = typed("export", "Training", "--as", "definition").out
        states = account.client("stepfunctions")
        role = states.describe_state_machine(stateMachineArn=account.workflow("Logging/Training").arn)["roleArn"]
        machine = states.create_state_machine(name="of-another-tool", definition=definition, roleArn=role)
        started = states.start_execution(
            stateMachineArn=machine["stateMachineArn"], input='{"steps": "2", "resume_from": "itself"}'
        )["executionArn"]
        ended = wait_until(
            lambda: (it := states.describe_execution(executionArn=started))["status"] != "RUNNING" and it
        )
        assert ended["status"] == "SUCCEEDED", ended
        assert json.loads(ended["output"])["TrainingJobStatus"] == "Completed"

    def test_adopts_nothing_that_is_not_there(self, typed: Callable[..., Ran]) -> None:
        ran = typed("adopt", "nothing")
        assert (ran.code, ran.out) == (2, "")
        assert one_line(ran).startswith("training-jobs: no training job 'nothing' in us-east-1")

    def test_starts_and_follows_a_job_to_its_end(self, typed: Callable[..., Ran]) -> None:
        ran = typed("start", "Training", "--set", "steps=2", "--follow")
        assert ran.code == 0, ran.err
        lines = ran.out.splitlines()
        assert lines[0].startswith("started ")
        assert {"algo-1  step 2 loss 50", "algo-2  step 2 loss 50"} <= {*lines}
        assert lines[-2].endswith(" Completed")
        assert lines[-1] == "loss 50"

    def test_ends_with_1_where_the_job_fails_and_says_why_in_one_line(
        self, typed: Callable[..., Ran], failed: Execution
    ) -> None:
        ran = typed("watch", failed.name)
        assert ran.code == 1
        [line] = ran.err.splitlines()
        assert line.startswith("training-jobs: no-steps FAILED: ")
        assert "the steps must not be negative" in line

    def test_watches_in_lines_of_json(self, typed: Callable[..., Ran], finished: Execution, job: Job) -> None:
        [seen] = [json.loads(line) for line in typed("watch", finished.name, "--json").out.splitlines()]
        assert (seen["execution"], seen["job"], seen["phase"]) == ("SUCCEEDED", job.name, "Completed")
        assert seen["metrics"] == {"loss": 33.0}
        assert {"host": "algo-2", "message": "step 3 loss 33"} in seen["lines"]

    def test_starts_and_follows_in_json(self, typed: Callable[..., Ran]) -> None:
        ran = typed("start", "Single", "--set", "steps=0", "--name", "in-json", "--follow", "--json")
        assert ran.code == 0, ran.err
        started, end = json.JSONDecoder().raw_decode(ran.out)
        assert started["name"] == "in-json"
        assert [json.loads(line) for line in ran.out[end:].splitlines() if line][-1]["execution"] == "SUCCEEDED"

    def test_describes_a_job(self, typed: Callable[..., Ran], job: Job) -> None:
        described = typed("describe", "three-steps").out
        assert f"job         {job.name}" in described
        assert "hosts       dnn_group (ml.m5.xlarge): algo-2" in described
        assert typed("describe", job.name, "--json").json["TrainingJobName"] == job.name

    def test_prints_the_lines_of_a_group(self, typed: Callable[..., Ran], job: Job) -> None:
        ran = typed("logs", job.name, "--group", "dnn_group", "--grep", "step 3")
        assert ran.out == "algo-2  step 3 loss 33\n"

    def test_prints_costs_where_it_has_the_prices(self, typed: Callable[..., Ran], job: Job) -> None:
        ran = typed("cost", job.name, "--json", "--price", "ml.c5.xlarge=3600", "--price", "ml.m5.xlarge=7200")
        [seconds] = {it["seconds"] for it in ran.json["machines"]}
        assert ran.json["dollars"] == pytest.approx(3 * seconds)
        assert ran.json["dollars_at_most"] == pytest.approx(3 * 3600)
        assert typed("cost", job.name, "--json").json["dollars"] is None

    def test_downloads_the_model(self, typed: Callable[..., Ran], job: Job, tmp_path: Path) -> None:
        assert typed("download", job.name, "--to", str(tmp_path)).out == f"{tmp_path / 'model.txt'}\n"

    def test_stops_a_job_and_says_where_its_last_checkpoint_is_from_which_resume_goes_on(
        self, typed: Callable[..., Ran], account: Account
    ) -> None:
        execution = account.workflow("Training").start({"steps": FOREVER}, name="to-stop")
        job = wait_until(lambda: next(iter(execution.jobs()), None))
        wait_until(lambda: list(job.logs(grep="step 1 ")))
        stopped = typed("stop", "to-stop", "--json").json
        assert stopped["status"] == "Stopped"
        assert re.search(r"/checkpoints/[a-z0-9-]+/to-stop/stopped\.txt$", stopped["checkpoint"])
        assert execution.wait(0.2)["status"] == "ABORTED"
        resumed = typed("resume", job.name, "--set", "steps=1", "--follow")
        assert resumed.code == 0, resumed.err
        assert "begins with step.txt stopped.txt" in resumed.out

    def test_reports_a_job_beside_another_in_one_page(
        self, typed: Callable[..., Ran], job: Job, failed: Execution, tmp_path: Path
    ) -> None:
        ran = typed("report", job.name, "--compare", "no-steps", "--to", str(tmp_path / "page.html"))
        assert ran.out == f"{tmp_path / 'page.html'}\n"
        written = re.sub("<[^>]*>", "", (tmp_path / "page.html").read_text())
        assert f"loss: {job.name} 33" in written
        assert "the steps must not be negative" in written

    def test_has_no_links_in_a_local_account_without_a_web_page(self, typed: Callable[..., Ran], job: Job) -> None:
        ran = typed("open", job.name)
        assert (ran.code, ran.out) == (2, "")
        assert "the local account has no web page" in ran.err

    def test_does_not_start_with_an_input_that_the_workflow_does_not_read(
        self, typed: Callable[..., Ran], account: Account
    ) -> None:
        before = len(list(account.workflow("Training").executions()))
        ran = typed("start", "Training", "--set", "steps=3", "--set", "epoch=3")
        assert (ran.code, ran.out) == (2, "")
        assert "Logging/Training takes resume_from, steps of the input, got 'epoch=3'" in ran.err
        assert len(list(account.workflow("Training").executions())) == before

    def test_refuses_to_resume_what_has_no_checkpoints(self, typed: Callable[..., Ran], failed: Execution) -> None:
        ran = typed("resume", "no-steps")
        assert ran.code == 2
        assert "Logging/Single does not take resume_from of the input: deploy it with checkpoints=" in ran.err

    def test_takes_the_local_account_of_its_folder_without_variables(
        self, deployed: Deployed, job: Job, tmp_path: Path
    ) -> None:
        (tmp_path / ".local-account").symlink_to(deployed.account.state)
        environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
        done = subprocess.run([COMMAND, "list"], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert job.name in done.stdout
        assert done.stderr == "training-jobs: the local account of this folder (.local-account); --aws for AWS\n"

    def test_finds_all_that_a_deployment_needs(self, typed: Callable[..., Ran]) -> None:
        checks = {it["check"]: it["ok"] for it in typed("doctor", "--json").json}
        assert checks == dict.fromkeys(["Node", "CDK CLI", "namespaces", "credentials", "region", "bootstrap"], True)


def one_line(ran: Ran) -> str:
    [line] = ran.err.splitlines()
    assert ran.out == ""
    return line


class TestAnErrorOfAws:
    @pytest.fixture(autouse=True)
    def _once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")

    def test_without_credentials_says_how_to_get_some(
        self, typed: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.chdir(tmp_path)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        ran = typed("list")
        assert ran.code == 3
        assert one_line(ran).startswith("training-jobs: no AWS credentials; `aws sso login`")

    def test_with_an_unknown_key_names_the_profile(
        self, typed: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
        ran = typed("list")
        assert ran.code == 3
        assert "the access key does not exist" in one_line(ran)

    def test_of_a_region_that_is_not_there_names_it(self, typed: Callable[..., Ran]) -> None:
        ran = typed("--region", "eu-west-1", "list")
        assert ran.code == 3
        assert "eu-west-1" in one_line(ran)

    def test_of_permissions_names_the_action_and_the_statement_and_starts_nothing(
        self,
        typed: Callable[..., Ran],
        account: Account,
        deployed: Deployed,
        finished: Execution,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        iam = deployed.client("iam")
        iam.create_user(UserName="nobody")
        key = iam.create_access_key(UserName="nobody")["AccessKey"]
        workflow = account.workflow("Training")
        before = len(list(workflow.executions()))
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
        ran = typed("list")
        assert ran.code == 3
        assert '{"Effect": "Allow", "Action": "sagemaker:ListTrainingJobs", "Resource": "' in one_line(ran)
        started = typed("start", workflow.arn, "--set", "steps=1")
        assert started.code == 3
        assert "access denied to states:" in one_line(started)
        assert len(list(workflow.executions())) == before

    def test_that_throttles_says_when_to_try_again(self, typed: Callable[..., Ran], deployed: Deployed) -> None:
        deployed.account.faults.add(Throttling("ListTrainingJobs"))
        ran = typed("list")
        assert ran.code == 3
        assert one_line(ran).endswith(
            "AWS throttles ListTrainingJobs, also after several retries; try again in a minute"
        )

    def test_of_a_job_that_is_not_there_says_what_is(self, typed: Callable[..., Ran]) -> None:
        ran = typed("describe", "nothing")
        assert ran.code == 2
        assert one_line(ran) == (
            "training-jobs: no job or execution 'nothing', and no workflow 'nothing' in us-east-1; "
            "name one of Logging/Single, Logging/Training"
        )


def step(number: int) -> Callable[[list[str]], bool]:
    """Whether a screen shows a step or a later one; between two looks many may pass."""
    return lambda lines: any(int(found) >= number for line in lines for found in re.findall(r"step (\d+) loss", line))


class TestWatchInATerminal:
    def test_shows_a_finished_job_in_80_columns_and_24_lines(self, finished: Execution, job: Job) -> None:
        terminal = Terminal([COMMAND, "watch", finished.name], os.environ)
        assert terminal.ended() == 0
        shown = terminal.lines
        assert shown[0].startswith("execution   SUCCEEDED  ")
        assert shown[0].endswith("  three-steps")
        assert [f"job         {job.name}", "status      Completed"] == [
            line for line in shown if line.startswith(("job ", "status"))
        ]
        assert "hosts       data_group ml.c5.xlarge  algo-1" in shown
        [metric] = [line for line in shown if line.startswith("metric")]
        _, name, bars, last = metric.split()
        assert (name, bars[0], bars[-1], len(bars), last) == ("loss", "█", "▁", 6, "33")
        assert "algo-2  step 3 loss 33" in shown

    def test_shows_how_busy_the_hosts_of_a_group_are(
        self, finished: Execution, job: Job, deployed: Deployed, typed: Callable[..., Ran]
    ) -> None:
        # As SageMaker publishes it: a host's CPUUtilization is a sum over its vCPUs, of which an ml.m5.xlarge has four.
        deployed.client("cloudwatch").put_metric_data(
            Namespace="/aws/sagemaker/TrainingJobs",
            MetricData=[
                {
                    "MetricName": "CPUUtilization",
                    "Dimensions": [{"Name": "Host", "Value": f"{job.name}/algo-2"}],
                    "Timestamp": job.describe()["TrainingStartTime"],
                    "Value": 200.0,
                    "Unit": "Percent",
                }
            ],
        )
        terminal = Terminal([COMMAND, "watch", finished.name], os.environ)
        assert terminal.ended() == 0
        assert "hosts       dnn_group ml.m5.xlarge  algo-2  CPU 50%" in terminal.lines
        assert "hosts       data_group ml.c5.xlarge  algo-1" in terminal.lines
        assert json.loads(typed("watch", finished.name, "--json").out)["utilization"] == {"algo-2": {"cpu": 0.5}}

    def test_shows_which_calls_of_a_state_were_retried_and_why(self, account: Account, deployed: Deployed) -> None:
        deployed.account.faults.add(Throttling("CreateTrainingJob"))
        execution = account.workflow("Single").start({"steps": 0}, name="throttled")
        assert execution.wait(0.2)["status"] == "SUCCEEDED"
        [create] = [state for state in execution.states() if state.errors]
        assert (create.name, len(create.errors)) == ("Create", 1)
        assert "ThrottlingException" in create.errors[0]
        terminal = Terminal([COMMAND, "watch", "throttled"], os.environ)
        assert terminal.ended() == 0
        assert any(line.startswith("  retried   Create x1: ") for line in terminal.lines)

    def test_writes_the_last_picture_to_a_file(
        self, typed: Callable[..., Ran], finished: Execution, tmp_path: Path
    ) -> None:
        assert typed("watch", finished.name, "--svg", str(tmp_path / "watch.svg")).code == 0
        assert "three-steps" in (tmp_path / "watch.svg").read_text()

    def test_shows_a_job_through_a_resize_and_a_lost_connection_to_its_end(
        self, account: Account, deployed: Deployed
    ) -> None:
        execution = account.workflow("Training").start({"steps": FOREVER}, name="watched")
        environment = {**os.environ, "AWS_MAX_ATTEMPTS": "1"}
        terminal = Terminal([COMMAND, "watch", "watched", "--every", "0.2"], environment)
        assert terminal.shows(step(2))
        assert terminal.lines[0].startswith("execution   RUNNING  ")
        terminal.resize(100, 30)
        assert terminal.shows(step(20))
        fault = deployed.account.faults.add(Throttling("DescribeTrainingJob", times=None))
        assert terminal.shows(lambda lines: lines[0].startswith("connection  lost, trying again: AWS throttles"))
        assert any(line.startswith("execution   RUNNING  ") for line in terminal.lines)
        deployed.account.faults.mend(fault)
        assert terminal.shows(lambda lines: lines[0].startswith("execution   RUNNING  "))
        execution.job().stop()
        assert terminal.ended() == 1
        assert any(line.startswith("execution   ABORTED") for line in terminal.lines), terminal.lines

    def test_ends_at_ctrl_c_leaves_the_job_alone_and_says_how_to_come_back(
        self, account: Account, finished: Execution
    ) -> None:
        execution = account.workflow("Training").start({"steps": FOREVER}, name="left-alone")
        terminal = Terminal([COMMAND, "watch", "left-alone", "--every", "0.2"], os.environ)
        assert terminal.shows(step(1))
        terminal.type("\x03")
        assert terminal.ended() == 130
        said = " ".join(" ".join(terminal.lines).split())
        assert "left-alone goes on; follow it again with `training-jobs watch left-alone`" in said
        assert execution.status == "RUNNING"
        execution.job().stop()


def test_ctrl_c_without_a_terminal_leaves_the_job_alone(account: Account, finished: Execution) -> None:
    execution = account.workflow("Training").start({"steps": FOREVER}, name="in-ci")
    command = [COMMAND, "watch", "in-ci", "--every", "0.2"]
    # A shell's background job, as the tests may be, ignores SIGINT.
    command = ["env", "--default-signal=INT", *command]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert any("step 1 " in line for line in process.stdout)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert "in-ci goes on" in process.stderr.read()
    assert execution.status == "RUNNING"
    execution.job().stop()


class TestAPartOfAName:
    def test_is_enough_where_one_job_has_it(self, typed: Callable[..., Ran], job: Job) -> None:
        assert typed("describe", job.name[-14:], "--json").json["TrainingJobName"] == job.name

    def test_is_enough_where_one_execution_has_it(
        self, typed: Callable[..., Ran], finished: Execution, job: Job
    ) -> None:
        assert typed("describe", "ree-ste", "--json").json["TrainingJobName"] == job.name

    def test_is_a_cut_names_beginning_and_end(self, typed: Callable[..., Ran], job: Job) -> None:
        for cut in (elided(job.name, 24), f"{job.name[:12]}...{job.name[-6:]}"):
            assert typed("describe", cut, "--json").json["TrainingJobName"] == job.name
        assert "no job or execution" in one_line(typed("describe", f"{job.name[1:12]}…{job.name[-6:]}"))

    def test_of_several_is_refused_with_them(
        self, typed: Callable[..., Ran], job: Job, failed: Execution, stopped: Job
    ) -> None:
        common = job.name[:17]  # of the workflow
        line = one_line(typed("describe", common))
        assert line.startswith(f"training-jobs: {common!r} is a part of several names: ")
        named = line.partition("several names: ")[2].partition(" and ")[0].split(", ")
        assert 2 <= len(named) <= 5
        assert all(it.startswith(common) for it in named)

    def test_never_means_another_than_the_one_whose_whole_name_it_is(
        self, typed: Callable[..., Ran], account: Account, job: Job
    ) -> None:
        longer = account.workflow("Logging/Training").start({"steps": "1"}, name="three-steps-and-more")
        assert longer.wait(0.2)["status"] == "SUCCEEDED"
        assert typed("describe", "three-steps", "--json").json["TrainingJobName"] == job.name
        assert typed("describe", "steps-and", "--json").json["TrainingJobName"] == longer.job().name


class TestATerminalThatIsTooNarrow:
    def test_gets_names_that_are_cut_in_the_middle_and_can_be_pasted(self, job: Job, typed: Callable[..., Ran]) -> None:
        terminal = Terminal([COMMAND, "list"], os.environ)
        assert terminal.ended() == 0
        heading, *rows = [line for line in terminal.lines if line]
        assert heading.split() == ["JOB", "STATUS", "CREATED", "TOOK"]
        assert max(map(len, rows)) <= 80
        assert all(len(row.split()) >= 5 for row in rows)
        names = {typed("describe", row.split()[0], "--json").json["TrainingJobName"] for row in rows}
        assert job.name in names
        assert len(names) == len(rows)

    def test_is_told_of_columns_that_are_left_out(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        for width, left in ((80, []), (30, ["BATCH"]), (20, ["BATCH", "BOUND"])):
            monkeypatch.setenv("COLUMNS", str(width))
            rows = [["2 x ml.g5.xlarge", "data", "64", "0.5 h"]]
            print_table(["MACHINES", "BOUND", "BATCH", "HOURS"], rows, cut="MACHINES", leave_out=["BATCH", "BOUND"])
            heading, *lines = capsys.readouterr().out.splitlines()
            assert heading.split() == [it for it in ("MACHINES", "BOUND", "BATCH", "HOURS") if it not in left]
            said = f"left out for {width} columns: {', '.join(left)}; a wider terminal, a pipe and --json have them"
            assert lines[1:] == ([said] if left else [])
            assert len(lines[0]) <= width

    def test_is_none_where_the_output_is_a_pipe(self, typed: Callable[..., Ran], job: Job) -> None:
        assert job.name in typed("list").out.split()


def test_the_shell_completes_the_names_of_jobs_and_workflows(job: Job) -> None:
    def completed(*words: str) -> list[str]:
        asked = {"_TRAINING_JOBS_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(["training-jobs", *words])}
        asked["COMP_CWORD"] = str(len(words))
        done = subprocess.run([COMMAND], env={**os.environ, **asked}, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return done.stdout.split()

    assert job.name in completed("describe", job.name[:20])
    assert completed("start", "Logging/T") == ["Logging/Training"]
    assert completed("describe", "nothing-of-this") == []
