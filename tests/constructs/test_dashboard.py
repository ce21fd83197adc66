"""Metrics of a workflow's jobs, and the dashboard of them."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_sns as sns
from aws_cdk.assertions import Template
from rendered import lint, resolved
from stacks import RenderedWorkflow, UserStack, message_of
from state_walk import Walk

from cdk_sagemaker_training import (
    Budget,
    Cause,
    DataParallelJob,
    InstanceGroup,
    Retry,
    TrainingDashboard,
    TrainingQueue,
    default_retries,
)

LOST = "InternalServerError: We encountered an internal error."


@cache
def counted(integration: str) -> RenderedWorkflow:
    stack = UserStack()
    return RenderedWorkflow(
        stack,
        integration=integration,
        job_metrics=True,
        retries={**default_retries(), Cause.HOST_LOST: Retry(attempts=4)},
        alternatives=[DataParallelJob(InstanceGroup("ml.g5.2xlarge"))],
        budget=Budget(hours=10, least=60),
        notify=[sns.Topic(stack, "Topic")],
    )


def walk(workflow: RenderedWorkflow, status: str, reason: str = "", billed: bool = True) -> Walk:
    [poller] = workflow.pollers.values() or [{}]
    return Walk(workflow.definition, poller, 3_600, status, reason, billed=billed).run()


def dashboard(workflow: Any, **props: Any) -> dict[str, Any]:
    """The body of a workflow's dashboard."""
    stack = cdk.Stack.of(workflow)
    TrainingDashboard(stack, "Dashboard", workflow=workflow, **props)
    [found] = Template.from_stack(stack).find_resources("AWS::CloudWatch::Dashboard").values()
    return dict(json.loads(resolved(found)["Properties"]["DashboardBody"]))


def widgets(body: dict[str, Any]) -> dict[str, Any]:
    return {widget["properties"]["title"]: widget["properties"] for widget in body["widgets"]}


@pytest.mark.parametrize("integration", ["sync", "poll"])
def test_each_failed_attempt_is_counted_by_its_cause(integration: str) -> None:
    walked = walk(counted(integration), "Failed", LOST)
    assert walked.visited.count("CountRetryHostLost") == 4
    assert walked.visited[-2:] == ["CountFailedHostLost", "FailedHostLost"]
    put = counted(integration).states["CountRetryHostLost"]["Parameters"]
    machine = {"Name": "StateMachineArn", "Value.$": "$$.StateMachine.Id"}
    one = {"MetricName": "FailedAttempts", "Value": 1, "Unit": "Count"}
    assert put == {
        "Namespace": "cdk-sagemaker-training",
        "MetricData": [
            {**one, "Dimensions": [machine]},
            {**one, "Dimensions": [machine, {"Name": "Cause", "Value": "host lost"}]},
        ],
    }


@pytest.mark.parametrize("reason", ["CapacityError: none", "AlgorithmError: ExitCode 1", "something new"])
def test_each_attempt_that_fails_is_counted_once(reason: str) -> None:
    walked = walk(counted("sync"), "Failed", reason)
    counted_ones = [name for name in walked.visited if name.startswith("Count") and name != "CountBudget"]
    assert len(counted_ones) == len(walked.ends)


def test_the_times_of_a_job_are_put_once_it_has_ended_and_those_of_one_that_was_not_billed_are_not() -> None:
    assert "PutTimes" in walk(counted("sync"), "Failed").visited
    not_billed = walk(counted("sync"), "Failed", billed=False).visited
    assert "WasBilled" in not_billed
    assert "PutTimes" not in not_billed


def test_a_workflow_without_retries_names_the_causes_that_it_counts() -> None:
    workflow = RenderedWorkflow(job_metrics=True, integration="sync")
    assert walk(workflow, "Failed", "AlgorithmError: ExitCode 1").visited[-2:] == [
        "CountFailedAlgorithmError",
        "FailedAlgorithmError",
    ]
    assert walk(workflow, "Stopped").visited[-2:] == ["CountStopped", "Stopped"]


def test_the_machines_pass_the_check_of_amazon_states_language() -> None:
    assert lint(counted("poll").machines) == []


def test_the_state_machine_may_put_metrics_of_the_librarys_namespace_only() -> None:
    statements = counted("sync").statements("TrainingStateMachineRole")
    [statement] = [one for one in statements if one["Action"] == "cloudwatch:PutMetricData"]
    assert statement["Condition"] == {"StringEquals": {"cloudwatch:namespace": "cdk-sagemaker-training"}}


def test_a_workflow_without_job_metrics_puts_none_and_has_none() -> None:
    plain = RenderedWorkflow()
    assert not any("putMetricData" in str(state.get("Resource")) for state in plain.states.values())
    for name in ("failed_attempts", "training_time", "billable_time", "budgets_nearly_used"):
        said = message_of(getattr(plain.workflow, f"metric_{name}"))
        assert said.startswith("job_metrics must be True for the metric ")
    assert plain.workflow.metric_stopper_failed().metric_name == "ExecutionsFailed"


def test_the_metric_of_a_cause_that_is_none_is_refused() -> None:
    said = message_of(lambda: counted("sync").workflow.metric_failed_attempts("disk full"))  # type: ignore[arg-type]
    assert said == "cause must be a Cause or 'unknown', like Cause.CAPACITY, got 'disk full'"


def test_the_dashboard_shows_the_metrics_that_the_state_machine_puts() -> None:
    workflow = UserStack().workflow(job_metrics=True, metric_definitions={"loss": "loss=([0-9.]+)"})
    shown = widgets(dashboard(workflow, dollars_per_hour=36.0))
    assert list(shown) == [
        "Jobs that may still run though their execution has ended",
        "Executions",
        "Duration of executions, ms",
        "Attempts that did not complete, by cause",
        "Seconds of jobs and executions that ended",
        "Budgets nearly used",
        "Cost at 36.0 dollars an hour",
        "CPU (left) and GPU (right) of each host, percent of one, added up",
        "loss",
    ]
    put = {
        (datum["MetricName"], *(dimension.get("Value") for dimension in datum["Dimensions"][1:]))
        for state in RenderedWorkflow(job_metrics=True, retries=default_retries()).states.values()
        if "putMetricData" in str(state.get("Resource"))
        for datum in state["Parameters"]["MetricData"]
    }
    by_cause = shown["Attempts that did not complete, by cause"]["metrics"]
    causes = {metric[metric.index("Cause") + 1] for metric in by_cause}
    assert {one[1] for one in put if len(one) == 2} <= causes
    assert causes == {*map(str, Cause), "unknown"}
    times = str(shown["Seconds of jobs and executions that ended"]["metrics"])
    assert {one[0] for one in put} == {"FailedAttempts", "TrainingTime", "BillableTime"}
    assert "'TrainingTime'" in times
    assert "'BillableTime'" in times
    [cost, *_] = shown["Cost at 36.0 dollars an hour"]["metrics"]
    assert cost[0]["expression"] == "billed * 0.01"


def test_graphs_of_hosts_and_of_metrics_search_by_the_words_of_the_jobs_names() -> None:
    workflow = UserStack().workflow(job_name_prefix="digits-cnn", metric_definitions={"loss": "loss=([0-9.]+)"})
    shown = widgets(dashboard(workflow))
    [[loss]] = shown["loss"]["metrics"]
    assert loss["expression"] == (
        "SEARCH('{\"/aws/sagemaker/TrainingJobs\",TrainingJobName} MetricName=\"loss\" digits cnn', 'Average')"
    )
    [[cpu], [gpu]] = shown["CPU (left) and GPU (right) of each host, percent of one, added up"]["metrics"]
    assert re.findall(r'MetricName="(\w+)"', cpu["expression"] + gpu["expression"]) == [
        "CPUUtilization",
        "GPUUtilization",
    ]


def test_a_dashboard_of_a_workflow_without_job_metrics_or_in_a_queue_leaves_out_what_nobody_puts() -> None:
    stack = UserStack()
    workflow = stack.workflow(
        queue=TrainingQueue(stack, "Queue", capacity=1), metric_definitions={"loss": "loss=([0-9.]+)"}
    )
    assert list(widgets(dashboard(workflow)))[1:] == ["Executions", "Duration of executions, ms"]


@pytest.mark.parametrize(
    ("metrics", "dollars", "said"),
    [
        (True, 0, "dollars_per_hour must be a number above 0, like 25.25, got 0"),
        (False, 5, "dollars_per_hour must be left out of a workflow without job_metrics, like "),
    ],
)
def test_a_price_that_multiplies_nothing_is_refused(metrics: bool, dollars: float, said: str) -> None:
    workflow = UserStack().workflow(job_metrics=metrics)
    assert message_of(lambda: dashboard(workflow, dollars_per_hour=dollars)).startswith(said)


def test_retries_whatever_the_cause_are_not_together_with_job_metrics() -> None:
    said = message_of(lambda: UserStack().workflow(retries=2, job_metrics=True))
    assert said.startswith("retries must be by cause where job_metrics are given")
