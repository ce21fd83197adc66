"""Jobs that are stopped by rules: how the poller checks them, and which rules are errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import aws_cdk as cdk
import pytest
from rendered import lint
from stacks import RenderedWorkflow, UserStack, message_of
from state_walk import Walk

from cdk_sagemaker_training import Cause, MetricLimit, Plateau, Retry, Silence
from cdk_sagemaker_training.handlers.watch import decide

HOUR = 3_600
DAY = 24 * HOUR
MOST_EVENTS = 25_000  # Step Functions, "Quotas related to state machine executions"
METRICS = {"loss": "loss=([0-9.]+)", "accuracy": "accuracy=([0-9.]+)"}
RULES = (
    Silence(2 * HOUR),
    MetricLimit("loss", above=10.0, readings=3),
    MetricLimit("accuracy", above=1.0, below=0.1),
    Plateau("loss", min_delta=0.01),
    Plateau("accuracy", 3 * DAY, mode="max"),
)


@cache
def rendered(*, retried: bool = False) -> RenderedWorkflow:
    return RenderedWorkflow(
        metric_definitions=METRICS,
        stop_when=RULES,
        retries={Cause.SILENT: Retry(attempts=2)} if retried else {Cause.HOST_LOST: Retry(attempts=29)},
        max_runtime=28 * DAY,
    )


def poller() -> dict[str, Any]:
    [definition] = rendered().pollers.values()
    return dict(definition["States"])


def walked(seconds: float, look: Callable[[Any], dict[str, Any] | None], *, retried: bool = False) -> Walk:
    """An execution whose jobs each train for some time, by what the function answers."""
    [definition] = rendered(retried=retried).pollers.values()
    walk = Walk(rendered(retried=retried).definition, definition, seconds, "Completed", watched=True, look=look)
    return walk.run()


def test_only_a_job_that_trains_and_was_not_stopped_yet_is_checked() -> None:
    [rule] = [rule for rule in poller()["IsOver"]["Choices"] if rule["Next"] == "Look"]
    assert rule["And"] == [
        {"Variable": "$.Job.Secondary", "StringEquals": "Training"},
        {"Variable": "$.Stop.Because", "StringEquals": ""},
    ]


def test_the_function_gets_the_rules_and_what_it_returned_last() -> None:
    payload = poller()["Look"]["Parameters"]["Payload"]
    assert [payload[name] for name in ("JobName.$", "State.$", "Seconds.$")] == [
        "$.JobName",
        "$.Stop.State",
        "$.Seconds",
    ]
    assert payload["Rules"] == [
        {"Kind": "Silence", "Seconds": 7_200, "Because": "no host has logged a line for 7200 seconds"},
        {
            "Kind": "MetricLimit",
            "Metric": "loss",
            "Above": 10.0,
            "Readings": 3,
            "Because": "loss was above 10 in 3 readings",
        },
        {
            "Kind": "MetricLimit",
            "Metric": "accuracy",
            "Above": 1.0,
            "Below": 0.1,
            "Readings": 1,
            "Because": "accuracy was above 1 or below 0.1 in 1 readings",
        },
        {
            "Kind": "Plateau",
            "Metric": "loss",
            "Mode": "min",
            "MinDelta": 0.01,
            "Seconds": 3_600,
            "Because": "loss has not improved by 0.01 for 3600 seconds",
        },
        {
            "Kind": "Plateau",
            "Metric": "accuracy",
            "Mode": "max",
            "MinDelta": 0.0,
            "Seconds": 3 * DAY,
            "Because": "accuracy has not improved for 259200 seconds",
        },
    ]


def test_a_rule_holds_for_as_long_as_it_says_although_the_poller_has_several_executions() -> None:
    accuracy = [rule.rendered() for rule in RULES[4:]]

    def look(given: Any) -> dict[str, Any]:
        because, state = decide(accuracy, None, {"accuracy": [0.5]}, given["State"], given["Seconds"])
        return {"Because": because, "State": state}

    walk = walked(28 * DAY, look)
    assert 0 <= walk.now - 3 * DAY < 10 * 60
    assert len(walk.histories["poller"]) == 3
    assert walk.visited[-1] == "StoppedByRule"


def test_a_job_whose_looks_all_fail_goes_on_and_no_history_is_full() -> None:
    walk = walked(5 * DAY, lambda given: None)
    assert walk.visited[-1] == "Completed"
    assert max([*walk.histories["workflow"], *walk.histories["poller"]]) < MOST_EVENTS


def test_another_job_of_the_execution_is_looked_at_as_if_there_had_been_none() -> None:
    states: list[Any] = []

    def look(given: Any) -> dict[str, Any]:
        states.append(given["State"])
        silent = len(states) == 10
        return {"Because": "no host has logged a line for 7200 seconds" if silent else "", "State": {"0": len(states)}}

    walk = walked(DAY, look, retried=True)
    assert len(walk.ends) == 2
    assert [place for place, state in enumerate(states) if state == {}] == [0, 10]
    assert walk.visited[-1] == "Completed"


def test_a_job_that_was_stopped_is_polled_until_it_has_ended() -> None:
    assert poller()["Stop"]["Next"] == "Count"
    assert poller()["Count"]["Next"] == "Wait"


def test_a_job_that_could_not_be_stopped_is_looked_at_again() -> None:
    assert [caught["Next"] for caught in poller()["Stop"]["Catch"]] == ["NotStopped"]
    assert poller()["NotStopped"] == {"Type": "Pass", "Result": "", "ResultPath": "$.Stop.Because", "Next": "Count"}


def test_a_rule_that_stopped_the_job_is_the_executions_cause() -> None:
    states = rendered().states
    assert states["StoppedByRule"]["CausePath"] == (
        "States.Format('{}: stopped, since {}', $.Training.JobName, $.Training.Polled.Because)"
    )
    assert "StoppedByRule" in [rule["Next"] for rule in states["IsOver"]["Choices"]]


def test_a_silent_job_is_run_again_where_that_is_wanted() -> None:
    states = rendered(retried=True).states
    [rule] = [rule for rule in states["IsOver"]["Choices"] if rule["Next"] == "RetrySilent"]
    assert {"Variable": "$.Training.Polled.Because", "StringMatches": "no host has logged a line for*"} in rule["And"]
    assert states["RetrySilent"]["Next"] == "NextAttempt"


def allowed(role: str) -> dict[str, Any]:
    return {
        action: one["Resource"]
        for one in rendered().statements(role)
        for action in ([one["Action"]] if isinstance(one["Action"], str) else one["Action"])
    }


def test_the_function_may_look_and_the_poller_may_call_it_and_stop_the_job() -> None:
    looking = allowed("SageMakerTrainingRulesHandlerRole")
    assert looking["logs:DescribeLogStreams"] == (
        "arn:aws:logs:us-east-1:123456789012:log-group:/aws/sagemaker/TrainingJobs:log-stream:*"
    )
    assert looking["cloudwatch:GetMetricData"] == "*"
    assert looking.keys() - {"logs:CreateLogStream", "logs:PutLogEvents"} == {
        "logs:DescribeLogStreams",
        "cloudwatch:GetMetricData",
    }
    polling = allowed("TrainingPollerStateMachineRole")
    assert polling["lambda:InvokeFunction"] == poller()["Look"]["Parameters"]["FunctionName"]
    assert "sagemaker:StopTrainingJob" in polling
    assert not {"cloudwatch:GetMetricData", "logs:DescribeLogStreams"} & polling.keys()


def test_the_workflow_may_no_more_than_without_rules() -> None:
    of_workflow = allowed("TrainingStateMachineRole").keys()
    assert "sagemaker:CreateTrainingJob" in of_workflow
    assert not {"cloudwatch:GetMetricData", "logs:DescribeLogStreams", "lambda:InvokeFunction"} & of_workflow


def test_workflows_of_a_stack_share_the_function() -> None:
    stack = UserStack()
    for name in ("First", "Second"):
        stack.workflow(name, stop_when=[Silence()])
    stack.workflow("Third")
    resources = stack.template()["Resources"].values()
    functions = [one for one in resources if one["Type"] == "AWS::Lambda::Function"]
    assert sorted(one["Properties"]["Description"] for one in functions) == [
        "Checks training jobs against the rules that stop them",
        "Stops training jobs before their workflow is deleted",
    ]


def test_the_machines_pass_the_check_of_amazon_states_language() -> None:
    assert lint(rendered().machines) == []
    assert lint(rendered(retried=True).machines) == []


@pytest.mark.soak  # 600,000 polls
def test_a_watched_job_of_28_days_with_30_attempts_fits_into_the_histories() -> None:
    [definition] = rendered().pollers.values()
    lost = "InternalServerError: We encountered an internal error."
    walked = Walk(rendered().definition, definition, 28 * DAY, "Failed", lost, watched=True).run()
    assert len(walked.ends) == 30
    assert max([*walked.histories["workflow"], *walked.histories["poller"]]) < MOST_EVENTS


def test_a_workflow_without_rules_has_the_poller_it_had() -> None:
    plain = RenderedWorkflow(max_runtime=28 * DAY, integration="poll")
    [definition] = plain.pollers.values()
    assert set(definition["States"]) == {"Start", "Wait", "Describe", "IsOver", "WaitLonger", "Count", "Done"}
    assert "Because" not in json.dumps([definition, plain.definition])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Silence(60), "after must be at least 3600 seconds, since CloudWatch Logs may know of a line as late"),
        (lambda: Silence("1h"), "after must be "),  # type: ignore[arg-type]
        (lambda: Plateau("loss", 60), "patience must be at least 600 seconds, in which there are two readings, like"),
        (lambda: Plateau("loss", min_delta=-1), "min_delta must be a number of at least 0, like 0.01, got -1"),
        (lambda: Plateau("loss", mode="down"), "mode must be "),  # type: ignore[arg-type]
        (
            lambda: UserStack().workflow(stop_when=[Plateau("loss")]),
            "metric of a Plateau must be a name in metric_definitions, like ",
        ),
        (lambda: MetricLimit("loss"), "above must be set unless below is, like 10.0, got None and None"),
        (
            lambda: MetricLimit("loss", above=float("inf")),
            "above must be a finite number, since JSON has no other",
        ),
        (
            lambda: MetricLimit("loss", below=float("nan")),
            "below must be a finite number, since JSON has no other",
        ),
        (
            lambda: UserStack().workflow(stop_when=[Silence(7_200)], max_runtime=7_200),
            "after of a Silence must be less than max_runtime, 7200 seconds, at which the job ends anyway, like ",
        ),
        (
            lambda: UserStack().workflow(
                stop_when=[Plateau("loss", cdk.Duration.days(2))], metric_definitions={"loss": "loss=(.*)"}
            ),
            "patience of a Plateau must be less than max_runtime, 86400 seconds, at which the job ends anyway, like ",
        ),
        (lambda: MetricLimit("loss", above=1, readings=11), "readings must be a number from 1 to 10, like 3, got 11"),
        (lambda: MetricLimit("", above=1), "metric must be text"),
        (
            lambda: UserStack().workflow(stop_when=[MetricLimit("loss", above=1.0)]),
            "metric of a MetricLimit must be a name in metric_definitions, like ",
        ),
        (
            lambda: UserStack().workflow(stop_when=[Silence(), Silence()]),
            "stop_when must be at most one Silence and 5 rules of metrics, like ",
        ),
        (
            lambda: UserStack().workflow(stop_when=[Silence(cdk.Duration.hours(1))], integration="sync"),
            "integration must be 'poll' with stop_when",
        ),
        (
            lambda: UserStack().workflow(retries={Cause.SILENT: Retry(attempts=1)}),
            "stop_when must have a Silence where retries have Cause.SILENT",
        ),
        (
            lambda: UserStack().workflow(retries={Cause.INTERRUPTED: Retry(attempts=1)}),
            "spot must be given where retries have Cause.INTERRUPTED, since no other job is interrupted, like ",
        ),
    ],
)
def test_rules_that_cannot_be_are_refused(make: Any, message: str) -> None:
    assert message_of(make).startswith(message)
