"""A budget of all attempts: what it comes to, how an attempt is limited to the rest, and what is refused."""

from __future__ import annotations

from functools import cache
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_sns as sns
from aws_cdk import aws_stepfunctions as sfn
from rendered import lint
from stacks import RenderedWorkflow, UserStack, message_of
from state_walk import Walk

from cdk_sagemaker_training import (
    Budget,
    Cause,
    CompiledJob,
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    InstancePreference,
    Neuron,
    Retry,
    S3Prefix,
    Torchrun,
)

P5, P4D, C5 = "ml.p5.48xlarge", "ml.p4d.24xlarge", "ml.c5.18xlarge"
HOUR = 3_600
INTEGRATIONS = ("sync", "poll")
ON_P5 = DataParallelJob(InstanceGroup(P5, 2))
ON_P4D = DataParallelJob(InstanceGroup(P4D, 2))
PRICES = {P5: 50.0, P4D: 20.0, C5: 4.0}
LOST = "InternalServerError: We encountered an internal error."


@cache
def rendered(integration: str = "poll", hours: float = 10) -> RenderedWorkflow:
    return RenderedWorkflow(
        job=ON_P5,
        integration=integration,
        max_runtime=4 * HOUR,
        retries={Cause.HOST_LOST: Retry(attempts=29)},
        budget=Budget(hours=hours),
    )


def walk(workflow: RenderedWorkflow, seconds: float, **more: Any) -> Walk:
    [poller] = workflow.pollers.values() or [{}]
    return Walk(workflow.definition, poller, seconds, "Failed", LOST, billed=True, **more).run()


@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_attempts_begin_as_long_as_the_budget_has_room_for_one(integration: str) -> None:
    walked = walk(rendered(integration), 3 * HOUR)
    assert len(walked.ends) == 4  # 9 hours, and one of those that are left
    assert walked.visited[-1] == "BudgetUsed"


@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_the_attempts_are_limited_to_what_is_left(integration: str) -> None:
    walked = walk(rendered(integration), 3 * HOUR)
    assert walked.limits == [4 * HOUR, 4 * HOUR, 4 * HOUR, 1 * HOUR]


def test_a_budget_of_less_than_max_runtime_limits_the_first_attempt() -> None:
    assert walk(rendered("sync", hours=3), HOUR).limits == [3 * HOUR, 2 * HOUR, HOUR]


def test_what_is_taken_from_the_budget_is_what_aws_bills_and_else_what_the_job_trained() -> None:
    states = rendered().states
    job = "$.Training.Job"
    assert states["WhatIsBilled"]["Choices"] == [
        {"Variable": f"{job}.BillableTimeInSeconds", "IsPresent": True, "Next": "TakeBilled"},
        {"Variable": f"{job}.TrainingTimeInSeconds", "IsPresent": True, "Next": "TakeTrained"},
    ]
    taken = {name: states[name]["Parameters"]["SecondsLeft.$"] for name in ("TakeBilled", "TakeTrained")}
    assert taken == {
        "TakeBilled": (
            "States.MathAdd($.Training.Budget.SecondsLeft, "
            f"States.StringToJson(States.Format('-{{}}', {job}.BillableTimeInSeconds)))"
        ),
        "TakeTrained": (
            "States.MathAdd($.Training.Budget.SecondsLeft, "
            f"States.StringToJson(States.Format('-{{}}', {job}.TrainingTimeInSeconds)))"
        ),
    }


@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_the_machines_pass_the_check_of_amazon_states_language(integration: str) -> None:
    assert lint(rendered(integration).machines) == []


def test_the_machine_of_one_attempt_passes_it_too() -> None:
    workflow = RenderedWorkflow(budget=Budget(hours=10))
    assert lint(workflow.machines) == []
    assert "IsBudgetLeft" not in workflow.states


def test_an_attempt_that_the_budget_ended_names_it_and_one_that_ended_by_itself_does_not() -> None:
    [rule, *others] = rendered().states["HowItEnded"]["Choices"]
    assert rule["Next"] == "BudgetUsed"
    assert {"Variable": "$.Training.Budget.Limit", "NumericLessThan": 4 * HOUR} in rule["And"]
    assert {"Variable": "$.Training.Job.SecondaryStatus", "StringEquals": "MaxRuntimeExceeded"} in rule["And"]
    assert others[0]["Next"] == "FindModel"


def test_an_event_says_once_that_the_budget_is_nearly_used() -> None:
    stack = UserStack()
    told = RenderedWorkflow(
        stack,
        job=ON_P5,
        integration="sync",
        max_runtime=4 * HOUR,
        retries={Cause.HOST_LOST: Retry(attempts=29)},
        budget=Budget(hours=10, least=60),
        notify=[sns.Topic(stack, "Topic")],
    )
    walked = walk(told, HOUR)
    assert len(walked.ends) == 10
    assert walked.visited.count("TellBudget") == 1
    # Nine hours of ten are used before the last attempt; of eight a fifth is left, which is not less than that.
    [told_at] = [number for number, name in enumerate(walked.visited) if name == "TellBudget"]
    assert walked.visited[:told_at].count("Create") == 9
    assert told.states["TellBudget"]["Parameters"]["Entries"][0]["Detail"] == {
        "Execution.$": "$$.Execution.Id",
        "JobName.$": "$.Training.JobName",
        "Attempt.$": "$.Training.Attempt",
        "SecondsLeft.$": "$.Training.Budget.SecondsLeft",
        "Seconds": 10 * HOUR,
    }


def test_a_workflow_without_a_budget_has_the_request_it_had() -> None:
    rendered = RenderedWorkflow(job=ON_P5, max_runtime=HOUR)
    assert rendered.request["StoppingCondition"] == {"MaxRuntimeInSeconds": HOUR}
    assert not {"WhatIsBilled", "IsBudgetLeft"} & rendered.states.keys()


@pytest.mark.parametrize(
    ("job", "alternatives", "seconds"),
    [
        (ON_P5, [], HOUR),
        (DataParallelJob(InstanceGroup([P5, P4D], 2)), [], HOUR),
        (DataParallelJob(InstanceGroup([InstancePreference(P5, 1), InstancePreference(P4D, 5)])), [], HOUR),
        (ON_P4D, [], 2.5 * HOUR),
        (ON_P4D, [ON_P5], HOUR),
        (HeterogeneousJob({"data": InstanceGroup(C5, 5)}, ON_P4D, "dnn"), [], 100 / 60 * HOUR),
    ],
)
def test_dollars_are_the_seconds_that_the_dearest_machines_may_run(
    job: Any, alternatives: list[Any], seconds: float
) -> None:
    states = RenderedWorkflow(job=job, alternatives=alternatives, budget=Budget(dollars=100, prices=PRICES)).states
    assert states["FirstAttempt"]["Parameters"]["Budget"]["SecondsLeft"] == int(seconds)


def test_the_lower_of_hours_and_dollars_counts() -> None:
    states = RenderedWorkflow(job=ON_P5, budget=Budget(hours=0.5, dollars=100, prices=PRICES)).states
    assert states["FirstAttempt"]["Parameters"]["Budget"]["SecondsLeft"] == HOUR / 2


@pytest.mark.parametrize(
    ("props", "message"),
    [
        ({}, "hours of a Budget must be set unless dollars is, like Budget(hours=24), got "),
        ({"hours": 0}, "hours must be a number above 0, like 24, got 0"),
        ({"hours": 1, "least": -1}, "least must be "),
        ({"hours": 1, "nearly_used": 1.0}, "nearly_used must be a share between 0 and 1, like 0.8, got 1.0"),
        ({"dollars": -5, "prices": PRICES}, "dollars must be a number above 0, like 24, got -5"),
        ({"dollars": 5, "prices": {P5: 0.0}}, f"prices[{P5!r}] must be a number above 0, like 24, got 0"),
        (
            {"dollars": 5, "prices": {"ml.p5.49xlarge": 1.0}},
            "prices must be a type that SageMaker trains on, like 'ml.p5.4xlarge', or unlisted(",
        ),
        ({"dollars": 5}, "prices must be set where dollars is, like {'ml.g5.xlarge': 1.41}, got None with 5"),
    ],
)
def test_a_budget_of_nothing_is_refused(props: Any, message: str) -> None:
    assert message_of(lambda: Budget(**props)).startswith(message)


STACK = UserStack()


@pytest.mark.parametrize(
    ("props", "message"),
    [
        (
            {"budget": Budget(hours=0.1)},
            "budget must be at least one attempt of 600 seconds, like Budget(hours=24), got 360 seconds of ",
        ),
        ({"budget": Budget(dollars=1, prices=PRICES)}, "budget must be at least one attempt of 600 seconds, like "),
        (
            {"budget": Budget(dollars=100, prices={P4D: 20.0})},
            f"prices must have each type of the job, like {{{P5!r}: ",
        ),
        (
            {
                "budget": Budget(dollars=100, prices=PRICES),
                "job": DataParallelJob(InstanceGroup(P5, sfn.JsonPath.number_at("$.machines"))),
            },
            "dollars must be left out where an execution's input has the machines",
        ),
        (
            {"budget": Budget(hours=9), "max_runtime": cdk.Duration.seconds(sfn.JsonPath.number_at("$.seconds"))},
            "max_runtime must be known at synth where a budget is given",
        ),
        (
            {
                "budget": Budget(hours=9),
                "job": CompiledJob(
                    InstanceGroup("ml.trn1.32xlarge"),
                    launcher=Torchrun(),
                    compiler=Neuron(cache=S3Prefix(STACK.bucket, "cache/"), trial={"steps": 1}),
                ),
            },
            "budget must be left out of a job that makes several requests",
        ),
        ({"budget": 24}, "budget must be a Budget, like Budget(hours=48), got 24"),
    ],
)
def test_a_budget_that_no_attempt_fits_into_is_refused(props: Any, message: str) -> None:
    assert message_of(lambda: UserStack().workflow(**{"job": ON_P5, **props})).startswith(message)
