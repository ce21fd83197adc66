"""What workflows use of Step Functions' limits, as in docs/retries.md: UPDATE_SNAPSHOTS=1 writes its tables."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import aws_sns as sns
from stacks import RenderedWorkflow, UserStack
from state_walk import Walk

from cdk_sagemaker_training import (
    Alternative,
    Budget,
    Cause,
    DataParallelJob,
    InstanceGroup,
    MetricLimit,
    Retry,
    Silence,
    default_retries,
)

PAGE = Path(__file__).parents[2] / "docs" / "retries.md"
BEGIN, END = "<!-- limits -->\n", "<!-- end of limits -->"
# Step Functions, "Quotas related to state machines" and "to state machine executions".
MOST_BYTES, MOST_OF_A_DEFINITION = 256 * 1024, 1024 * 1024
DAY = 24 * 3_600
ON_P4D = DataParallelJob(InstanceGroup("ml.p4d.24xlarge"))
LOST = "InternalServerError: We encountered an internal error. Please try again."
REASONS = {
    Cause.CAPACITY: "CapacityError: Unable to provision requested ML compute capacity.",
    Cause.HOST_LOST: LOST,
}
REFUSALS = {
    Cause.QUOTA: ("SageMaker.ResourceLimitExceededException", "The account-level service limit ..."),
    Cause.THROTTLED: ("SageMaker.SageMakerException", "Rate exceeded (Service: SageMaker, Status Code: 400)"),
    Cause.SERVICE_ERROR: ("SageMaker.SageMakerException", "Internal error (Service: SageMaker, Status Code: 500)"),
}
# Counted in doc_source/ of awsdocs/aws-step-functions-developer-guide at 3d6752c179, as JSON without line ends; each state is a
# Task without Retry or Catch.
AWSS_EXAMPLES = {
    "AWS: train a model (`sample-train-model.md`)": (4, 2_297),
    "AWS: tune a model (`sample-hyper-tuning.md`)": (6, 3_773),
}


@cache
def managed() -> RenderedWorkflow:
    """A workflow with as much of each prop as it takes."""
    stack = UserStack()
    return RenderedWorkflow(
        stack,
        job=ON_P4D,
        max_runtime=28 * DAY,
        retries={**default_retries(), Cause.SILENT: Retry(attempts=2), Cause.HOST_LOST: Retry(attempts=29)},
        alternatives=[Alternative(DataParallelJob(InstanceGroup("ml.g5.48xlarge", count))) for count in range(1, 3)],
        budget=Budget(hours=24 * 28 * 30),
        metric_definitions={f"metric{number}": "loss=([0-9.]+)" for number in range(5)},
        stop_when=[Silence(), *(MetricLimit(f"metric{number}", above=10.0) for number in range(5))],
        notify=[sns.Topic(stack, "Topic")],
        job_metrics=True,
    )


@cache
def plain(integration: str, **props: Any) -> RenderedWorkflow:
    return RenderedWorkflow(job=ON_P4D, integration=integration, max_runtime=DAY, **props)


def retried(integration: str, cause: Cause, times: int) -> Walk:
    """An execution that meets a cause so often, with as many retries."""
    workflow = RenderedWorkflow(
        job=ON_P4D,
        integration=integration,
        max_runtime=DAY,
        retries={cause: Retry(attempts=times, first_wait=60, backoff=1)},
    )
    [poller] = workflow.pollers.values() or [{}]
    if cause in REFUSALS:
        return Walk(workflow.definition, poller, 1, "Completed", refusal=REFUSALS[cause], refused=times).run()
    return Walk(workflow.definition, poller, 1, "Failed", REASONS[cause]).run()


def definitions(workflow: RenderedWorkflow) -> str:
    """The numbers of states and bytes of the workflow's definition, and of that of its poller."""
    machines = [workflow.definition, *workflow.pollers.values()]
    return " and ".join(f"{len(one['States'])}, {len(json.dumps(one)):,}" for one in machines)


def computed() -> str:
    rows = ["| state machine | states, bytes | events, transitions of an execution |", "|---|---|---|"]
    for name, (states, size) in AWSS_EXAMPLES.items():
        rows.append(f"| {name} | {states}, {size:,} | |")
    for integration in ("sync", "poll"):
        for name, props in (("no props", {}), ("`default_retries()`", {"retries": default_retries()})):
            workflow = (
                plain(integration) if not props else RenderedWorkflow(job=ON_P4D, integration=integration, **props)
            )
            [poller] = workflow.pollers.values() or [{}]
            walked = Walk(workflow.definition, poller, 1, "Completed").run()
            rows.append(
                f"| `{integration}`, {name} | {definitions(workflow)} | {walked.histories['workflow'][0]}, {walked.transitions} |"
            )
    rows.append(
        f"| retries, two alternatives, a budget, six rules, a topic, `job_metrics`; and its poller | {definitions(managed())} | |"
    )
    rows += ["", "| each retry after | `sync`: events, transitions | `poll` |", "|---|---|---|"]
    for cause in (*REFUSALS, *REASONS):
        cells = []
        for integration in ("sync", "poll"):
            one, two = (retried(integration, cause, times) for times in (1, 2))
            events = two.histories["workflow"][0] - one.histories["workflow"][0]
            cells.append(f"{events}, {two.transitions - one.transitions}")
        rows.append(f"| {cause} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


@pytest.mark.soak  # computes some 30 workflows, also for `make snapshots`
def test_the_page_has_the_sizes_and_events_that_are_computed() -> None:
    table, text = computed(), PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    found, _, after = rest.partition(END)
    if os.environ.get("UPDATE_SNAPSHOTS"):
        PAGE.write_text(before + BEGIN + table + END + after)
        found = table
    assert found == table


def test_a_definition_with_each_prop_is_within_the_limit() -> None:
    assert max(len(json.dumps(one)) for one in managed().machines.values()) < MOST_OF_A_DEFINITION


@pytest.mark.parametrize("integration", ["sync", "poll"])
def test_a_state_of_a_workflow_with_30_attempts_has_an_input_within_the_limit(integration: str) -> None:
    workflow = RenderedWorkflow(
        job=ON_P4D,
        integration=integration,
        max_runtime=28 * DAY,
        retries={**default_retries(), Cause.HOST_LOST: Retry(attempts=29)},
        alternatives=[DataParallelJob(InstanceGroup("ml.g5.48xlarge"))],
        budget=Budget(hours=24 * 30 * 30),
    )
    [poller] = workflow.pollers.values() or [{}]
    walked = Walk(workflow.definition, poller, 3_600, "Failed", LOST.ljust(1_024), billed=True).run()
    assert len(walked.ends) == 30
    assert walked.largest < MOST_BYTES
