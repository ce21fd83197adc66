"""The account's web page, over HTTP as a browser reads it."""

from __future__ import annotations

import html
import http.client
import json
import re
import shlex
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from shell_jobs import BUCKET, ShellJobs

from sagemaker_local_account.account import LocalAccount
from sagemaker_local_account.core import fidelity
from sagemaker_local_account.web.graph import graph_of, states_of

HOSTILE = "<script>alert(1)</script>&\"'"
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;&amp;&#34;&#39;"
DEFINITION = {
    "StartAt": "Create",
    "States": {
        "Create": {
            "Type": "Task",
            "Resource": "arn:aws:states:::aws-sdk:sqs:getQueueUrl",
            "Parameters": {"QueueName": "none"},
            "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "Say"}],
            "Next": "Done",
        },
        "Say": {"Type": "Pass", "Next": "Check"},
        "Check": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.again", "IsPresent": True, "Next": "Create"}],
            "Default": "End",
        },
        "End": {"Type": "Succeed"},
        "Done": {"Type": "Succeed"},
    },
}


class Page:
    """The web page of an account with a stack, an execution that has ended, and a job."""

    def __init__(self, account: LocalAccount) -> None:
        self.log = account.state / "account.log"
        url = account.description.web_url
        assert url is not None
        self.address = urlsplit(url)
        jobs = ShellJobs(account.environment(), account.state)
        self.execution = self._executed(jobs)
        jobs.client("cloudformation").create_stack(
            StackName="Digits",
            TemplateBody=json.dumps({"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}}),
        )
        jobs.create(
            "one-job", f"echo {shlex.quote(f'said: {HOSTILE}')}; echo loss=0.5 >&2", HyperParameters={"text": HOSTILE}
        )
        says = "for v in 0.75 0.5 0.25; do echo loss=$v; echo; done; echo accuracy=0.9; for n in $(seq 40); do echo line $n; done"
        specification = jobs.request("curved", says)["AlgorithmSpecification"]
        definitions = [{"Name": name, "Regex": f"{name}=(.*)"} for name in ("loss", "accuracy")]
        jobs.create("curved", says, AlgorithmSpecification={**specification, "MetricDefinitions": definitions})
        jobs.ended("one-job")
        jobs.ended("curved")
        jobs.s3.put_object(Bucket=BUCKET, Key="data/<b>four&.txt", Body=b"four")

    def _executed(self, jobs: ShellJobs) -> str:
        states = jobs.client("stepfunctions")
        role = jobs.make_role("States", {"Service": "states.amazonaws.com"})
        machine = states.create_state_machine(name="Machine", definition=json.dumps(DEFINITION), roleArn=role)
        started = states.start_execution(
            stateMachineArn=machine["stateMachineArn"], input=json.dumps({"text": "<script>&"})
        )
        states.create_state_machine(name="Quickly", definition=json.dumps(DEFINITION), roleArn=role, type="EXPRESS")
        arn = str(started["executionArn"])
        while states.describe_execution(executionArn=arn)["status"] == "RUNNING":
            time.sleep(0.05)
        return arn

    def get(self, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
        """The answer to a path after the token; an absolute one is sent as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.address.port)
        connection.request(method, path if path.startswith("/") else self.address.path + path, headers=headers)
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body

    def shown(self, path: str) -> str:
        status, _, body = self.get(path)
        assert status == 200, body
        return body


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with LocalAccount(state=tmp_path_factory.mktemp("account"), web=True) as account:
        yield Page(account)


@pytest.mark.parametrize("path", ["/", "/wrong/", "/wrong/job/us-east-1/one-job", "/%C3%A9/", "//"])
def test_an_address_without_the_token_shows_nothing(page: Page, path: str) -> None:
    status, _, body = page.get(path)
    assert (status, body) == (403, "the address of this page is what `local-account status` prints\n")


@pytest.mark.parametrize(
    "headers",
    [{"Host": "example.com"}, {"Host": "localhost"}, {"Host": "127.0.0.1:1"}, {"Origin": "http://127.0.0.1"}],
    ids=str,
)
def test_requests_of_other_web_pages_are_refused_though_they_have_the_token(
    page: Page, headers: dict[str, str]
) -> None:
    status, _, body = page.get("", **headers)
    assert status == 403
    assert "Digits" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
def test_it_is_read_only(page: Page, method: str) -> None:
    assert page.get("", method)[0] == 405


def test_it_is_not_stored_runs_no_script_and_sends_no_address_elsewhere(page: Page) -> None:
    _, headers, body = page.get("")
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["content-security-policy"].startswith("default-src 'none'; style-src 'unsafe-inline'")
    assert "<script" not in body
    assert re.findall(r'(?:href|src)="(?!/)[^"]*"', body) == []


def test_it_lists_stacks_executions_jobs_and_buckets(page: Page) -> None:
    body = page.shown("")
    for text in ("Digits", "CREATE_COMPLETE", "one-job", "Completed", "Machine", "SUCCEEDED", BUCKET):
        assert text in body


def test_its_links_lead_to_pages(page: Page) -> None:
    links = {link for link in re.findall(r'href="([^"]+)"', page.shown("")) if link != page.address.path}
    assert len(links) == 6
    assert [link for link in links if page.get(link)[0] != 200] == []


def test_it_shows_how_far_each_answer_can_be_trusted(page: Page) -> None:
    body = page.shown("fidelity")
    for row in (row for rows in fidelity.services().values() for row in rows):
        assert f"<td>{html.escape(row.feature, quote=False)}</td><td>{row.kind}</td>" in body.replace("&#39;", "'")


def test_a_job_has_its_phases_configuration_and_the_lines_of_each_host(page: Page) -> None:
    body = page.shown("job/us-east-1/one-job")
    for text in ("Training", "ml.m5.large", "algo-1", "said: ", "loss=0.5"):
        assert text in body


def test_what_jobs_say_and_names_hold_is_escaped(page: Page) -> None:
    job = page.shown("job/us-east-1/one-job")
    assert f"said: {ESCAPED}" in job
    assert f"<td>{ESCAPED}</td>" in job  # the hyperparameter
    execution = page.shown(f"execution/{quote(page.execution)}")
    assert "&lt;script&gt;&amp;" in execution  # its input
    bucket = page.shown(f"bucket/{BUCKET}?prefix=data/")
    assert "<td>data/&lt;b&gt;four&amp;.txt</td><td>4</td>" in bucket
    for body in (job, execution, bucket):
        assert "<script" not in body
        assert "<b>" not in body


def test_an_execution_is_a_graph_coloured_by_what_happened_in_its_states(page: Page) -> None:
    body = page.shown(f"execution/{quote(page.execution)}")
    found = {name: how for how, name in re.findall(r'<g class="(\w*)"><title>(.+?) \(\w+\)', body)}
    assert found == {
        "Create": "retried",
        "Say": "succeeded",
        "Check": "succeeded",
        "End": "succeeded",
        "Done": "",
    }
    assert len(graphs := body.split("<svg")[1:]) == 2
    # The states that it has entered, and once more with all.
    assert [graph.count("<rect") for graph in graphs] == [4, 5]
    assert [graph.count('class="catches"') for graph in graphs] == [1, 1]


def test_an_execution_and_a_job_that_are_over_are_not_read_again(page: Page) -> None:
    assert 'http-equiv="refresh"' in page.shown("")
    for path in (f"execution/{quote(page.execution)}", "job/us-east-1/one-job"):
        assert 'http-equiv="refresh"' not in page.shown(path)


def test_a_job_has_the_curve_of_each_metric_and_its_phases_as_a_bar(page: Page) -> None:
    body = page.shown("job/us-east-1/curved")
    caption, single = re.findall(r"<figcaption>(.*?)</figcaption>", body)
    assert caption == "loss <b>0.25</b>"
    assert single.startswith("accuracy <b>0.9</b> at ")  # a value is no curve
    [points] = re.findall(r'<polyline points="([^"]*)"', body)
    heights = [float(point.split(",")[1]) for point in points.split()]
    assert heights == [10.0, 78.0, 146.0]  # 0.75, 0.5 and 0.25
    bar = re.findall(r'<span class="phase-\d" style="width: ([\d.]+)%">', body)
    names = re.findall(r'<i class="phase-\d"></i>(\w+)', body)
    assert len(bar) == len(names)
    assert names[-2:] == ["Training", "Uploading"]
    assert sum(map(float, bar)) == pytest.approx(100, abs=0.1)


def test_a_host_has_its_last_lines_and_those_before_folded_and_no_empty_ones(page: Page) -> None:
    body = page.shown("job/us-east-1/curved")
    before, last = re.findall(r"<pre>(.*?)</pre>", body, re.DOTALL)
    assert len(last.splitlines()) == 30
    assert last.splitlines()[-1] == "line 40"
    assert "loss=0.75" in before
    assert all(line.strip() for line in [*before.splitlines(), *last.splitlines()])


def test_an_account_with_a_state_machine_of_type_express_is_shown(page: Page) -> None:
    # ListExecutions: StateMachineTypeNotSupported
    assert "Quickly" not in page.shown("")
    assert "Machine" in page.shown("")


def test_a_bucket_has_folders_and_objects(page: Page) -> None:
    assert "data/" in page.shown(f"bucket/{BUCKET}")
    assert "four" in page.shown(f"bucket/{BUCKET}?prefix=data/")


@pytest.mark.parametrize(
    "path",
    [
        "nothing",
        "job/us-east-1/none",
        "job/eu-west-1/one-job",
        "job",
        "bucket/none",
        "stack/us-east-1/None",
        "execution/x",
    ],
)
def test_what_is_not_there_is_said(page: Page, path: str) -> None:
    status, _, body = page.get(path)
    assert status == 404
    assert "Not shown" in body


def test_the_token_is_in_no_log(page: Page) -> None:
    page.get("nothing")
    token = page.address.path.strip("/")
    assert len(token) == 32
    assert token not in page.log.read_text()


@pytest.mark.parametrize(
    ("events", "status", "expected"),
    [
        (["+A"], "RUNNING", {"A": "running"}),
        (["+A"], "FAILED", {"A": "failed"}),
        (["+A"], "ABORTED", {"A": "stopped"}),
        (["+A", "!", "-A", "+B"], "TIMED_OUT", {"A": "retried", "B": "failed"}),
        (["+A", "!"], "FAILED", {"A": "failed"}),
        (["+A", "-A", "+A"], "RUNNING", {"A": "running"}),
    ],
)
def test_a_state_has_the_status_of_its_last_visit(events: list[str], status: str, expected: dict[str, str]) -> None:
    made: list[dict[str, Any]] = [
        {"type": "TaskFailed"}
        if text == "!"
        else {"type": "TaskStateEntered", "stateEnteredEventDetails": {"name": text[1:]}}
        if text[0] == "+"
        else {"type": "TaskStateExited", "stateExitedEventDetails": {"name": text[1:]}}
        for text in events
    ]
    assert states_of(made, status) == expected


def test_no_two_states_of_a_graph_overlap_and_a_loop_ends() -> None:
    graph = graph_of(DEFINITION, {})
    assert [node.name for node in graph.nodes] == ["Create", "Done", "Say", "Check", "End"]
    places = {(node.x, node.y) for node in graph.nodes}
    assert len(places) == 5
    assert all(x >= 0 and x + graph.box[0] <= graph.width and y + graph.box[1] <= graph.height for x, y in places)
    assert len(graph.edges) == 5
