"""How soon a workflow notices that its job is over, and with how many events."""

from __future__ import annotations

from functools import cache
from typing import Any

import aws_cdk as cdk
import pytest
from rendered import lint
from stacks import RenderedWorkflow
from state_walk import Walk

from cdk_sagemaker_training import DataParallelJob, InstanceGroup
from cdk_sagemaker_training.lifecycle.polling import Intervals

PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/spring"
DAY = 24 * 3_600
MOST_EVENTS = 25_000  # Step Functions, "Quotas related to state machine executions"
A_YEAR = 365 * DAY


class Rendered(RenderedWorkflow):
    """A workflow that polls."""

    def walk(self, seconds: float, status: str = "Completed") -> Walk:
        [poller] = self.pollers.values() or [{}]
        return Walk(self.definition, poller, seconds, status).run()

    def allowed(self, role: str) -> list[tuple[Any, Any]]:
        """The actions and resources of a role, without those of its logs."""
        statements = [one for one in self.statements(role) if "logs:CreateLogDelivery" not in one["Action"]]
        return [(one["Action"], one["Resource"]) for one in statements]


@cache
def rendered(attempts: int = 1, days: float = 1, plan: str | None = None, timeout: int | None = None) -> Rendered:
    return Rendered(
        job=DataParallelJob(InstanceGroup("ml.p4d.24xlarge")),
        integration="poll",
        retries=attempts - 1 or None,
        max_runtime=cdk.Duration.seconds(int(days * DAY)),
        **({} if plan is None else {"training_plan": plan}),
        **({} if timeout is None else {"timeout": cdk.Duration.seconds(timeout)}),
    )


@pytest.mark.parametrize("attempts", [1, 3, pytest.param(30, marks=pytest.mark.soak)])
@pytest.mark.parametrize("days", [1 / 24, 1, 28])
def test_a_job_that_is_over_is_noticed_within_two_minutes_and_no_history_is_full(attempts: int, days: float) -> None:
    walk = rendered(attempts, days).walk((days + 1) * DAY - 1, status="Failed")
    assert len(walk.ends) == attempts
    assert max(walk.noticed) <= 120
    assert max([*walk.histories["workflow"], *walk.histories["poller"]]) < MOST_EVENTS


def test_a_job_that_is_over_at_once_is_noticed_within_seconds() -> None:
    assert max(rendered(attempts=30, days=28).walk(1).noticed) <= 2


@pytest.mark.soak  # the longest of the histories
def test_a_year_of_waiting_for_a_training_plan_fits_into_the_histories() -> None:
    walk = rendered(plan=PLAN, attempts=30).walk(A_YEAR / 30, status="Failed")
    assert max([*walk.histories["workflow"], *walk.histories["poller"]]) < MOST_EVENTS


def test_a_short_job_is_polled_by_the_execution_itself() -> None:
    assert not rendered().pollers
    assert "Wait" in rendered().definition["States"]


def test_an_execution_that_waits_for_a_training_plan_has_no_time_out_of_ours() -> None:
    assert "TimeoutSeconds" not in rendered(plan=PLAN).definition


def test_an_execution_with_a_training_plan_has_the_time_out_that_is_given() -> None:
    assert rendered(plan=PLAN, timeout=7_200).definition["TimeoutSeconds"] == 7_200
    assert not rendered(plan=PLAN, timeout=7_200).pollers


def test_the_machines_of_a_long_job_pass_the_check_of_amazon_states_language() -> None:
    assert lint(rendered(attempts=30, days=28).machines) == []


def test_the_workflow_runs_executions_of_its_poller_only_and_stops_them_with_it() -> None:
    long = rendered(attempts=30, days=28)
    [poller] = long.pollers
    granted = long.allowed("TrainingStateMachineRole")
    assert ("states:StartExecution", f"{{{poller}}}") in granted
    [executions] = [resource for action, resource in granted if "states:StopExecution" in action]
    assert executions.startswith("arn:aws:states:us-east-1:123456789012:execution:{")
    [rule] = [resource for action, resource in granted if "events:PutRule" in action]
    assert rule.endswith(":rule/StepFunctionsGetEventsForStepFunctionsExecutionRule")
    assert long.definition["States"]["Poll"]["Resource"] == "arn:aws:states:::states:startExecution.sync:2"


def test_a_job_whose_poller_fails_is_described_and_polled_on() -> None:
    poll = rendered(attempts=30, days=28).definition["States"]["Poll"]
    assert poll["Next"] == "Describe"
    assert poll["Catch"] == [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.Training.Error", "Next": "Describe"}]


def test_an_execution_of_the_poller_ends_before_its_history_is_full() -> None:
    [poller] = rendered(attempts=30, days=28).pollers.values()
    [rule] = [rule for rule in poller["States"]["IsOver"]["Choices"] if rule["Variable"] == "$.Polls"]
    assert rule == {"Variable": "$.Polls", "NumericGreaterThanEquals": 2_181, "Next": "Done"}  # of 11 events each


def test_intervals_grow_to_the_shortest_with_which_all_polls_fit_into_a_history() -> None:
    # One job leaves 24,000 - 260 events of its 20 longer intervals and its other states, which are 2,637 polls of 9.
    assert Intervals.over(60, jobs=1) == Intervals(first=2, step=2, last=30)
    assert Intervals.over(10 * DAY, jobs=1) == Intervals(first=2, step=17, last=328)
    assert Intervals.over(10 * DAY, jobs=10, refusals=100) == Intervals(first=2, step=24, last=461)


def test_the_poller_may_describe_the_workflows_jobs_and_do_nothing_else() -> None:
    assert rendered(attempts=30, days=28).allowed("TrainingPollerStateMachineRole") == [
        (
            "sagemaker:DescribeTrainingJob",
            "arn:aws:sagemaker:us-east-1:123456789012:training-job/stack-training-04d490aa-*",
        )
    ]


def test_the_pollers_executions_are_logged_as_the_workflows_are() -> None:
    machines = rendered(attempts=30, days=28).resources_of("AWS::StepFunctions::StateMachine")
    assert len(machines) == 2
    assert len({str(machine["LoggingConfiguration"]) for machine in machines}) == 1
